"""What a program's facts say besides directions: types, shapes, options, places, warnings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from manycl.analysis import ArgumentFacts, KernelFacts, parse_program, service
from manycl.analysis.reading.frontend import LONG_TABLE
from manycl.analysis.reading.options import are_own
from manycl.errors import OptionError, SourceError


def only(source: str, *options: str, path: str = "<source>") -> KernelFacts:
    (kernel,) = parse_program(source, path=path, options=options).kernels.values()
    return kernel


def argument(parameter: str, before: str = "", *options: str) -> ArgumentFacts:
    (found,) = only(f"{before}\nkernel void k({parameter}) {{}}", *options).arguments
    return found


@pytest.mark.parametrize(
    ("parameter", "kind", "element", "base", "lanes", "size", "space", "const"),
    [
        ("global float *a", "buffer", "float", "float", 1, 4, "global", False),
        ("global const float4 *a", "buffer", "float4", "float", 4, 16, "global", True),
        ("global uchar3 *a", "buffer", "uchar3", "uchar", 3, 4, "global", False),
        ("global unsigned long *restrict a", "buffer", "ulong", "ulong", 1, 8, "global", False),
        ("global size_t *a", "buffer", "ulong", "ulong", 1, 8, "global", False),
        ("global half *a", "buffer", "half", "half", 1, 2, "global", False),
        ("global double2 *a", "buffer", "double2", "double", 2, 16, "global", False),
        ("constant int *a", "buffer", "int", "int", 1, 4, "constant", True),
        ("global void *a", "buffer", "void", "", 1, 0, "global", False),
        ("global number *a", "buffer", "short8", "short", 8, 16, "global", False),
        ("global struct s *a", "buffer", "struct s", "", 1, 12, "global", False),
        ("global t *a", "buffer", "t", "", 1, 32, "global", False),
        ("global enum e *a", "buffer", "enum e", "uint", 1, 4, "global", False),
        ("const global int a[]", "buffer", "int", "int", 1, 4, "global", True),
        ("global int (*a)[4]", "buffer", "int[4]", "", 1, 16, "global", False),
        ("local int *a", "local", "int", "int", 1, 4, "local", False),
        ("int a", "scalar", "int", "int", 1, 4, "private", False),
        ("const uint a", "scalar", "uint", "uint", 1, 4, "private", False),
        ("float16 a", "scalar", "float16", "float", 16, 64, "private", False),
        ("t a", "scalar", "t", "", 1, 32, "private", False),
        ("image2d_t a", "image", "image2d_t", "", 1, 0, "global", False),
        ("write_only image2d_array_t a", "image", "image2d_array_t", "", 1, 0, "global", False),
        ("sampler_t a", "sampler", "sampler_t", "", 1, 0, "private", False),
    ],
)
def test_types(
    parameter: str, kind: str, element: str, base: str, lanes: int, size: int, space: str, const: bool
) -> None:
    before = "typedef short8 number; struct s { int x[3]; }; enum e { A, B };"
    before += "typedef struct { float4 v; int n; } t;"
    found = argument(parameter, before)
    assert (found.name, found.index) == ("a", 0)
    assert (found.kind, found.element, found.base, found.lanes) == (kind, element, base, lanes)
    assert (found.size, found.address_space, found.is_const) == (size, space, const)


def test_later_standards_are_found_without_being_asked_for() -> None:
    assert argument("read_only pipe float4 a").element == "float4"
    assert argument("global atomic_int *a").base == "int"
    with pytest.raises(SourceError, match=r"OpenCL C 1\.2"):
        argument("global atomic_int *a", "", "-cl-std=CL1.2")


@pytest.mark.parametrize(
    ("body", "dimensions"),
    [
        ("", 1),
        ("get_global_id(0);", 1),
        ("get_local_id(1) + get_group_id(0);", 2),
        ("get_num_groups(2);", 3),
        ("get_global_size((uint)(1));", 2),
        ("for (int d = 0; d < 2; d++) get_global_id(d);", 3),
        ("helper();", 2),
    ],
)
def test_dimensions(body: str, dimensions: int) -> None:
    assert (
        only(f"int helper(void) {{ return get_global_id(1); }} kernel void k() {{ {body} }}").dimensions == dimensions
    )


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("16, 8, 1", (16, 8, 1)),
        ("N * 2, (N), 0x1u", (8, 4, 1)),
        ("sizeof(int4), 010, 1", (16, 8, 1)),
        ("WIDE, 1, 1", (32, 1, 1)),
    ],
)
def test_required_work_group(attribute: str, expected: tuple[int, int, int]) -> None:
    source = f"enum {{ WIDE = 32 }};\nkernel __attribute__((reqd_work_group_size({attribute}))) void k() {{}}"
    found = only(source, "-DN=4")
    assert found.required_work_group == expected
    assert found.dimensions == (2 if expected[1] > 1 else 1)


def test_local_memory_and_barriers_of_called_functions_count() -> None:
    source = """
    void meet(void) { barrier(CLK_LOCAL_MEM_FENCE); }
    kernel void inner(global float *a) { local float tile[16][2]; local int n; meet(); }
    kernel void outer(global float *a) { local float4 v; inner(a); }
    kernel void plain(global float *a) { a[0] = 1.0; }
    """
    kernels = parse_program(source).kernels
    assert [kernels[name].local_bytes for name in ("inner", "outer", "plain")] == [132, 148, 0]
    assert [kernels[name].uses_barrier for name in ("inner", "outer", "plain")] == [True, True, False]


@pytest.mark.parametrize(
    ("code", "double"),
    [
        ("kernel void k(global float *a) { a[0] = 2.0; }", False),
        ('kernel void k(global float *a) { printf("%f", a[0]); }', False),
        ("kernel void k(global float *a) { a[0] = a[1] * 2.0; }", True),
        ("kernel void k(global double *a) {}", True),
        ("kernel void k(global float *a) { a[0] = (float)sqrt((double)a[1]); }", True),
        ("kernel void k(global float *a) { a[0] = __builtin_ilogb(a[1]); }", True),
        ("double two(void) { return 2; } kernel void k(global float *a) { a[0] = (float)two(); }", True),
    ],
)
def test_double(code: str, double: bool) -> None:
    assert only(code).uses_double is double


def test_lines_and_order() -> None:
    source = "// first\n\n/* two\nlines */ kernel\nvoid\nlate(void) {}\n#if 0\n\n#endif\nkernel void\nearly() {}\n"
    assert [(k.name, k.line) for k in parse_program(source).kernels.values()] == [("late", 6), ("early", 11)]


def test_a_file_without_kernels() -> None:
    assert parse_program("int f(int x) { return x; }\n").kernels == {}
    assert parse_program("").kernels == {}
    assert parse_program("kernel void declared(global int *a);").kernels == {}


def test_macros_and_options() -> None:
    source = "#ifndef T\n#error T is missing\n#endif\nkernel void NAME(global T *a) { a[0] = 1; }"
    kernel = only(source, "-D", "T=float4", "-DNAME=k", "-cl-fast-relaxed-math", "-w", "-Werror", "-cl-mad-enable")
    assert kernel.name == "k"
    assert kernel.arguments[0].element == "float4"
    with pytest.raises(SourceError, match="#error T is missing"):
        parse_program(source)
    for wrong in (["-D"], ["-D1=2"], ["-cl-std=CL9"], ["N=4"], ["-D", "a b"]):
        with pytest.raises(OptionError):
            parse_program(source, options=wrong)


OWN = ["-w", "-Werror", "-cl-mad-enable", "-cl-opt-disable", "-cl-std=CL2.0", "-DX=1", "-I/nowhere"]
OF_DRIVERS = ["-Wall", "-O3", "-g3", "-fno-math-errno", "-cl-nv-verbose", "-cl-intel-greater-than-4GB-buffer-required"]


def test_options_that_are_none_are_refused_and_those_of_drivers_are_theirs_to_judge() -> None:
    for option in OWN + OF_DRIVERS:
        assert only("kernel void k(global int *a) {}", option).name == "k"
        assert are_own([option]) == (option in OWN)
    assert are_own(OWN)
    assert not are_own([*OWN, "-Wall"])
    for option in ("--bogus", "-cl-no-such-option", "-cl-mad-enabled", "-cl", "-cl-nv", "-bogus", "-", "-cl-Wall"):
        with pytest.raises(OptionError, match=f"{option} is no build option"):
            only("kernel void k(global int *a) {}", option)


@pytest.mark.parametrize(
    "condition",
    [
        "__OPENCL_VERSION__ == 120 && __OPENCL_C_VERSION__ == 120",
        "defined(cl_khr_fp64) && defined(M_PI) && defined CL_VERSION_1_2 && __ENDIAN_LITTLE__",
        "INT_MAX == 2147483647 && !defined(__cplusplus) && __LINE__ == 1",
    ],
)
def test_predefined_macros(condition: str) -> None:
    assert only(f"#if {condition}\nkernel void k() {{}}\n#endif").name == "k"


@pytest.mark.parametrize(
    "expression",
    [
        "1.f",
        ".5f",
        "0x1p3f",
        "1.e5f",
        "2.5e-3f",
        "1e3f",
        "x -MINUS",
        "x +MINUS",
        "x - -MINUS",
        "PASTE(x, 1)",
        "M_PI_F",
    ],
)
def test_tokens_survive_expansion(expression: str) -> None:
    macros = "#define f 7\n#define e 8\n#define p 9\n#define MINUS -1\n#define PASTE(a, b) a##b\n"
    assert only(f"{macros}kernel void k(float x, float x1, global float *o) {{ o[0] = {expression}; }}").arguments


def test_includes(tmp_path: Path) -> None:
    (tmp_path / "near.h").write_text('#include "deep/far.h"\n')
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "far.h").write_text("#define ONE 1\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "other.h").write_text("typedef int other;\nint broken(void) { return oops; }\n")
    file = tmp_path / "k.cl"
    source = '#include "near.h"\nkernel void k(global int *a) { a[0] = ONE; }'
    assert only(source, path=str(file)).arguments[0].writes
    with pytest.raises(SourceError) as caught:
        parse_program("#include <other.h>\n", path=str(file), options=["-I", str(tmp_path / "elsewhere")])
    (problem,) = caught.value.diagnostics
    assert (problem.path, problem.line, problem.column) == (str(tmp_path / "elsewhere" / "other.h"), 2, 27)
    with pytest.raises(SourceError, match=r"k\.cl:1:10: error: 'other\.h' file not found"):
        parse_program("#include <other.h>\n", path=str(file))


def test_an_included_file_that_changes_is_read_again(tmp_path: Path) -> None:
    source, file = '#include "t.h"\nkernel void k(global T *a) {}', str(tmp_path / "k.cl")
    for element in ("int", "float"):
        (tmp_path / "t.h").write_text(f"typedef {element} T;\n")
        assert only(source, path=file).arguments[0].element == element


def test_the_same_program_is_parsed_once() -> None:
    source = "kernel void once(global int *a) {}"
    assert parse_program(source) is parse_program(source)
    assert parse_program(source) is not parse_program(source, options=["-DX"])


@pytest.mark.parametrize(("numbers", "values"), [(9, (20, 20)), (LONG_TABLE, (-(2**33), 2**33 - 4))])
def test_the_values_of_long_tables_are_unknown(numbers: int, values: tuple[int, int]) -> None:
    table = ",".join(["5"] * numbers)
    program = parse_program(f"constant int T[] = {{{table}}}; kernel void k(global int *y) {{ y[T[0]] = 1; }}")
    (access,) = [each for each in service.symbolic(program, "k").accesses if each.argument == 0]
    assert (access.offset.low, access.offset.high) == values


@pytest.mark.parametrize(
    ("source", "line", "column", "words"),
    [
        ("kernel void k() {\n  int x = y;\n}", 2, 11, "undeclared identifier 'y'"),
        ("#define BAD y\nkernel void k() {\n  /* c */ int x =  zz; }", 3, 20, "'zz'"),
        ("/* a\n b */ kernel void k() { return 1; }", 2, 25, "should not return a value"),
        ("kernel int k() { return 1; }", 1, 12, "must have void return type"),
        ("kernel void k(float *p) {}", 1, 22, "address space"),
        ("kernel void k() {", 1, 18, "expected '}'"),
        ("/* open", 1, 1, "unterminated /* comment"),
        ("int a;\n#if 1\n", 2, 2, "unterminated conditional"),
        ("\n#endif\n", 2, 2, "#endif"),
        ("\n#include\n", 2, 9, "FILENAME"),
        ("#define 3 4\n", 1, 9, "must be an identifier"),
        ("int f(int", 1, 10, "expected ')'"),
        ("\n\n#bogus\n", 3, 2, "invalid preprocessing directive"),
        ("\n\0", 2, 0, "NUL"),
        (
            "int f(int n) {\n  return n ? f(n - 1) : 0; }\nkernel void k(global int *x) { *x = f(3); }",
            2,
            14,
            "f calls f",
        ),
        (
            "int g(int n);\nint f(int n) { return g(n); }\n/* é */ int g(int n) { return n ? f(n - 1) : 0; }\n"
            "kernel void k(global int *x) { *x = f(3); }",
            2,
            23,
            "f calls g calls f",
        ),
        ("kernel void k(global int *x, int n) { if (n) k(x, n - 1); }", 1, 46, "k calls k"),
        ("\n\ud800", 2, 0, "Unicode"),
    ],
)
def test_errors_have_their_place(source: str, line: int, column: int, words: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse_program(source, path="dir/k.cl", options=["-cl-std=CL1.2"])
    problem = caught.value.diagnostics[0]
    assert (problem.path, problem.line, problem.column) == ("dir/k.cl", line, column)
    assert problem.severity.endswith("error")
    assert words in problem.text
    assert words in str(caught.value)


def test_functions_that_nobody_calls_may_call_themselves() -> None:
    facts = parse_program("int f(int n) { return n ? f(n - 1) : 0; } kernel void k(global int *x) { *x = 3; }")
    assert list(facts.kernels) == ["k"]


def test_all_errors_of_a_source_are_told_with_a_caret() -> None:
    """Columns are of the text as it was given."""
    source = (
        "kernel void h(global int *a) { a[0] = b; }\n"
        "kernel void g(global int *a) {\n\ta[0] = 1\n\t;a[1] = y; a[2] = 3; a[3] = z; }"
    )
    with pytest.raises(SourceError) as caught:
        parse_program(source, path="k.cl")
    rows = source.split("\n")
    told = [(d.line, d.column, d.text.split("'")[1]) for d in caught.value.diagnostics]
    assert told == [(1, 39, "b"), (4, 10, "y"), (4, 30, "z")]
    for problem in caught.value.diagnostics:
        _, row, caret = problem.lines()
        assert row.strip() == rows[problem.line - 1].strip()
        assert len(caret) - len("  ^") == problem.column - 1
        assert f"\n  {row}\n  {caret}" in str(caught.value)


def test_of_many_errors_the_first_are_told() -> None:
    source = "".join(f"kernel void k{n}(global int *a) {{ a[0] = unknown_{n}; }}\n" for n in range(30))
    with pytest.raises(SourceError) as caught:
        parse_program(source)
    assert len(caught.value.diagnostics) == 30
    assert str(caught.value).count("undeclared identifier") == 20
    assert "and 10 more" in str(caught.value)


TOLERATED = """
kernel void chained(global int *x, int n) { if (0 < n < 5) x[0] = 1; }
kernel void pointers(global uint2 *x, global uint *y) { global uint *p = x; y[0] = p[0]; }
kernel void from_pointer(global int *x, global int *y) { long p = x; y[0] = p & 0; }
kernel void to_pointer(global int *x, global int *y) { long p = x; global int *q = p; q[0] = y[0]; }
static twice(int x) { return 2 * x; }
kernel void no_type(global int *x) { x[0] = twice(x[0]); }
"""


def test_what_drivers_warn_about_is_no_error() -> None:
    kernels = parse_program(TOLERATED).kernels
    directions = {name: [a.direction for a in k.arguments if a.kind == "buffer"] for name, k in kernels.items()}
    assert directions == {
        "chained": ["written"],
        "pointers": ["read", "written"],
        "from_pointer": ["both", "written"],  # whoever has the number may have the address
        "to_pointer": ["both", "both"],
        "no_type": ["both"],
    }


@pytest.mark.parametrize(
    "pragma", ["unroll UNROLL", "unroll(UNROLL)", "unroll TIMES(2)", "clang loop unroll_count(UNROLL)"]
)
def test_macros_in_pragmas_are_expanded(pragma: str) -> None:
    loop = f"#pragma {pragma}\n  for (int k = 0; k < UNROLL; k++) a[k] = 1;"
    source = f"#define UNROLL 4\n#define TIMES(n) n * 2\nkernel void k(global int *a) {{\n{loop}\n}}"
    assert only(source).arguments[0].direction == "written"
    extension = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\nkernel void k(global double *a) { a[0] = 1; }"
    assert only(extension).uses_double


def test_line_markers_are_no_errors() -> None:
    source = '# 1 "k.cl"\nkernel void k(global int *a) { a[0] = N; }\n# 7 "part.h" 1 3 4\n#line 3 "k.cl"\n'
    assert only(source, "-DN=1").arguments[0].direction == "written"


@pytest.mark.parametrize("options", [["-DSQ(x)=((x)*(x))"], ["-D", "SQ(x)=((x)*(x))"], ["-DSQ(x)=0", "-DSQ(x)=x"]])
def test_function_like_macros_in_build_options(options: list[str]) -> None:
    assert only("kernel void k(global int *a, int n) { a[0] = SQ(n); }", *options).arguments[0].writes


def test_quoted_includes_are_found_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With other include folders or without, and wherever the process was when the first source was read."""
    source = '#include "here.h"\nkernel void k(global int *a) { a[0] = N; }'
    (tmp_path / "other").mkdir()
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "here.h").write_text("#define N 1\n")
        monkeypatch.chdir(tmp_path / folder)
        assert only(source).arguments[0].writes
        assert only(source, "-I", str(tmp_path / "other")).arguments[0].writes


def test_warnings_are_kept() -> None:
    source = "#warning careful\nkernel void k(global int *a) { a[0] == 1; }"
    first, second = parse_program(source, path="k.cl").warnings
    assert first == "k.cl:1:2: warning: careful"
    assert second.startswith("k.cl:2:37: warning: equality comparison result unused")
    assert parse_program(source, path="k.cl", options=["-w"]).warnings == ()


def test_variables_that_outlive_a_kernel_are_warned_of() -> None:
    (warning,) = parse_program("global int count = 0;\nkernel void k() { count++; }", path="k.cl").warnings
    assert "k.cl:1: warning: variable count keeps its value" in warning
    assert parse_program("constant int table[2] = {1, 2};\nkernel void k() {}").warnings == ()


def test_importing_the_stage_loads_no_compiler() -> None:
    code = "import sys, manycl.analysis; print([m for m in ('clang', 'subprocess') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("code", "extensions"),
    [
        (
            "kernel void k(global half *h, global float *f) { f[0] = vload_half(0, &h[1]); vstore_half(2.0f, 3, h); }",
            (),
        ),
        ("kernel void k(global half *h) { h[0] = h[1] * h[2]; }", ("cl_khr_fp16",)),
        ("half f(half x) { return x; } kernel void k(global half *h) { h[0] = f(h[1]); }", ("cl_khr_fp16",)),
        ("kernel void k(global int *n) { atom_add(n, 1); atomic_max(n, 2); }", ()),
        ("kernel void k(global long *n) { atom_add(n, 1L); }", ("cl_khr_int64_base_atomics",)),
        ("kernel void k(global ulong *n) { atom_max(n, 1UL); }", ("cl_khr_int64_extended_atomics",)),
    ],
)
def test_extensions_without_which_it_cannot_be_built(code: str, extensions: tuple[str, ...]) -> None:
    enabled = "".join(f"#pragma OPENCL EXTENSION {name} : enable\n" for name in extensions)
    assert only(enabled + code).extensions == extensions
