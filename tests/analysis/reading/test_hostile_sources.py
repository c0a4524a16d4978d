"""No source can end this process: every input is answered with facts or with a SourceError."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manycl.analysis import ProgramFacts, parse_program, service
from manycl.analysis.interpreter.interpret import interpret
from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.reading import frontend, kernels, preprocess
from manycl.analysis.reading.options import BuildOptions, read_options
from manycl.analysis.service import launched, sub_kernel, symbolic
from manycl.errors import SourceError
from manycl.group_range import GroupRange
from manycl.utilities import limited

BODY = "kernel void k(global int *a) {{ {} }}"
VALID = """
#define N 4
#if N > 3 && defined(N)
typedef struct { float4 v; int n[N]; } item;
#endif
float twice(const global item *p, int i) { return 2.0f * p[i].v.x; }
kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void k(global item *a, global const item *restrict b, local float *l, int n, read_only image2d_t m) {
  int i = get_global_id(0);
  for (int j = 0; j < n; ++j) { l[j & 15] = twice(b, i); barrier(CLK_LOCAL_MEM_FENCE); }
  if (i < n) a[i].v.zw = l[0] > 0 ? b[i].v.lo : (float2)(1.0f, 0x1p3f); // end
  atomic_add((global int *)a, N); /* two
  lines */
}
"""
PUNCTUATION = "( ) { } [ ] ; , . -> & * + - ~ ! ++ -- = += ? : < << \" # ## \\ @ $ ... 1 0x 1.f 'c'"
KEYWORDS = """
    int float4 void kernel global constant local struct union enum typedef if else for do while switch case
    return goto sizeof a b k T __attribute__ half image2d_t const volatile get_global_id barrier vload4 as_int
"""
DIRECTIVES = ["#define a b\n", "#include <a>\n", "#if a\n", "#endif\n", "#undef a\n"]
BLANKS = ["\n", "/*", "*/", "//", "\\\n", "\t", "\u00e9"]
TOKENS = [*PUNCTUATION.split(), *KEYWORDS.split(), *DIRECTIVES, *BLANKS]


def answered(source: str, *options: str) -> ProgramFacts | None:
    try:
        return parse_program(source, options=options)
    except SourceError:
        return None


@pytest.mark.parametrize(
    "source",
    [
        "(" * 30_000,
        BODY.format("a[0] = " + "- " * 30_000 + "1;"),
        BODY.format("a[0] = " + "~" * 20_000 + "1;"),
        BODY.format("a[0] = " + "1+" * 30_000 + "1;"),
        BODY.format("a[0] = " + "1?1:" * 30_000 + "1;"),
        BODY.format("if (1) " * 30_000 + ";"),
        BODY.format("{" * 30_000),
        BODY.format("int " + "*" * 50_000 + "p;"),
        "struct a {" * 30_000,
        "/*" * 30_000,
        "#if " + "(" * 10_000,
        "#define A A\nA",
        "#define A(x) B(x)\n#define B(x) A(x) A(x)\nA(1)",
        "#if 1 << 99999999999\n#endif",
        "#if 1 / 0\n#endif",
        "#include <",
        '#include "/dev/zero"',
        "#define f(x\nf(1",
        "??=",
        "\\",
        "\xff\xfe" * 100,
    ],
    ids=lambda source: source[:24].encode("unicode_escape").decode(),
)
def test_nasty_sources(source: str) -> None:
    answered(source)
    assert answered("kernel void after(global int *a) { a[0] = 1; }") is not None


def test_long_but_reasonable_sources() -> None:
    for body in (
        "a[0] = " + "a[1] + " * 1000 + "1;",
        "if (a[0]) { a[1]++; }" * 500,
        "{" * 200 + "a[0]++;" + "}" * 200,
    ):
        program = answered(BODY.format(body))
        assert program is not None
        assert program.kernels["k"].arguments[0].direction == "both"


def test_a_file_that_includes_itself(tmp_path: Path) -> None:
    file = tmp_path / "self.cl"
    file.write_text('#include "self.cl"\nint x;\n#include "self.cl"\n')
    with pytest.raises(SourceError, match="nested too deeply"):
        parse_program(file.read_text(), path=str(file))


def test_a_source_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    answered("")  # the worker is there
    monkeypatch.setattr(service, "SOURCE_LIMIT", 1.0)
    doubling = "".join(f"#define A{i} A{i + 1} A{i + 1}\n" for i in range(19))
    with pytest.raises(SourceError, match="took more than 1 s"):
        parse_program(f"{doubling}\n#define A19 int x(void);\nA0")
    monkeypatch.undo()
    assert answered("kernel void k() {}") is not None


def test_macros_that_explode_are_given_up() -> None:
    doubling = "".join(f"#define A{i} A{i + 1} A{i + 1}\n" for i in range(40))
    with pytest.raises(SourceError, match="do its macros explode"):
        parse_program(f"{doubling}\nA0")
    assert answered("kernel void k() {}") is not None


def test_a_pipe_that_is_included_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.h")
    monkeypatch.setattr(limited, "PATIENCE", 0.2)
    with pytest.raises(SourceError, match="stands still"):
        preprocess.expand('#include "pipe.h"\n', "k.cl", str(tmp_path), BuildOptions(), "CL1.2")
    assert answered("kernel void k() {}") is not None


@pytest.mark.parametrize(
    "statement",
    [
        "long x = 3; " + "x = x * x; " * 40 + "d[0] = (int)x;",
        "ulong x = 3; " + "x = x * x; " * 40 + "d[0] = (int)x;",
        "long x = n; " + "x = x * 2147483647; " * 600 + "d[0] = (int)x;",
        "d[0] = n" + " * 2147483647" * 600 + ";",
        "int x = 3; for (int i = 0; i < 40; ++i) x = x * x; d[0] = x;",
        "long x = n + 5; " + "x = x * x + x; " * 12 + "if (x > 3) d[0] = 1;",
    ],
    ids=["signed", "unsigned", "factor", "constant", "loop", "polynomial"],
)
def test_numbers_of_any_length_are_answered_for(statement: str) -> None:
    """Python writes numbers of 4,300 digits at most."""
    program = parse_program(f"kernel void grows(global int *d, int n) {{ {statement} }}")
    symbolic(program, "grows")
    facts = launched(program, "grows", KnownLaunch((64,), (8,), (), {1: b"\7\0\0\0"}, {0: 256}))
    assert facts.region(0, "write").rectangles
    assert facts.work().operations


def test_a_worker_that_dies_between_questions_is_replaced() -> None:
    answered("")
    process = service._worker().process
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert answered("kernel void survivor() {}") is not None
    assert service._worker().process.pid != process.pid


def test_threads_share_the_worker() -> None:
    sources = [f"kernel void k{n}(global int *a) {{ a[{n}] = 1; }}" for n in range(24)]
    start = threading.Barrier(4)

    def ask(source: str) -> list[str]:
        if source in sources[:4]:
            start.wait(timeout=60)
        return list(parse_program(source).kernels)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, sources)) == [[f"k{n}"] for n in range(24)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_gets_its_own_worker() -> None:
    answered("")
    mine = service._worker().process.pid
    child = os.fork()
    if child == 0:
        status = 1
        try:
            program = answered("kernel void in_child() {}")
            status = 0 if program is not None and service._worker().process.pid != mine else 1
            service._stop()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert answered("kernel void in_parent() {}") is not None
    assert service._worker().process.pid == mine


fuzz = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], database=None)


@fuzz
@given(st.lists(st.sampled_from(TOKENS), max_size=60))
def test_token_soup(tokens: list[str]) -> None:
    answered(" ".join(tokens))


@fuzz
@given(st.lists(st.sampled_from(TOKENS), max_size=25))
def test_token_soup_in_a_kernel(tokens: list[str]) -> None:
    answered(BODY.format(" ".join(tokens)))


@fuzz
@given(st.data())
def test_mutations_of_a_valid_kernel(data: st.DataObject) -> None:
    source = VALID
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(source)))
        end = min(len(source), start + data.draw(st.integers(0, 12)))
        words = data.draw(st.sampled_from(["", source[start:end] * 2, *TOKENS]))
        source = source[:start] + words + source[end:]
    answered(source)


@fuzz
@given(st.text(max_size=80))
def test_any_text(text: str) -> None:
    answered(text)
    answered(BODY.format(text.replace("{", "").replace("}", "")))


@fuzz
@given(st.binary(max_size=120))
def test_binary_garbage(garbage: bytes) -> None:
    answered(garbage.decode("latin-1"))


@fuzz
@given(st.lists(st.text(max_size=12), max_size=4))
def test_any_options(options: list[str]) -> None:
    answered("kernel void k() {}", *options)


def test_the_valid_kernel_is_valid() -> None:
    program = answered(VALID)
    assert program is not None
    assert [a.direction for a in program.kernels["k"].arguments] == ["both", "read", "", "", "unused"]


def test_hash_functions_are_answered_for() -> None:
    """Whatever is computed doubles with every step, written as an expression."""
    steps = "\n".join("a = (a ^ b) * a + (b >> 3); b = a + b * (a | 1);" for _ in range(60))
    source = f"kernel void hash(global uint *d, uint a, uint b) {{ {steps} d[get_global_id(0)] = a; d[b & 7] = a; }}"
    program = parse_program(source)
    numbers = {1: b"\5\0\0\0", 2: b"\7\0\0\0"}
    assert not symbolic(program, "hash").failure
    facts = launched(program, "hash", KnownLaunch((64,), (8,), (), numbers, {0: 256}))
    assert facts.region(0, "write").nbytes == 256


def test_what_kernels_do_not_call_costs_little() -> None:
    unused = "\n".join(f"int unused_{k}(int x) {{ return x * {k} + unused_{k - 1}(x); }}" for k in range(1, 50))
    source = f"int unused_0(int x) {{ return x; }}\n{unused}\nkernel void k(global int *d) {{ d[0] = unused_1(2); }}"
    unit = frontend.load(source, "<source>", None, read_options(()))
    assert [f.name for f in unit.functions.values()] == ["unused_0", "unused_1", "k"]


def test_variables_that_lost_pointers_may_change_are_counted() -> None:
    """Each store makes new values of them all, so following takes as many steps."""
    held = "".join(f"int v{k} = y[{k}]; " for k in range(64))
    stored = "*p = i; " * 100
    source = f"""kernel void k(global int *y, long at) {{
        {held} global int *p = (global int *)at;
        for (int i = 0; i < at; i++) {{ {stored} }}
        y[0] = {" + ".join(f"v{k}" for k in range(64))};
    }}"""
    unit = frontend.load(source, "<source>", None, read_options(()))
    found = interpret(unit, kernels.kernel_facts(unit)["k"])
    assert 64 * 100 < len(found.origins) <= found.steps


def test_included_files_are_read_again_once_they_have_changed(tmp_path: Path) -> None:
    header = tmp_path / "part.h"
    source = '#include "part.h"\nkernel void k(global int *d) { d[get_group_id(0)] = N; }'
    for number in (1, 23):
        header.write_text(f"#define N {number}\n")
        program = parse_program(source, path=str(tmp_path / "k.cl"))
        assert f"= {number};" in sub_kernel(program, "k").source


def test_branches_on_hash_functions_are_answered_for() -> None:
    source = """kernel void count(global int *d, uint seed, int n) {
        int found[4] = {0, 0, 0, 0};
        for (int i = 0; i < n; i++) {
            uint a = (seed + i) * 2654435761u;
            a ^= a >> 13; a *= 1274126177u; a ^= a >> 16;
            if (a < 1u << 30 && a > 3u)
                for (int k = 0; k < 4; k++) found[k] += (a & 3) == k;
        }
        for (int k = 0; k < 4; k++) d[4 * get_global_id(0) + k] = found[k];
    }"""
    program = parse_program(source)
    numbers = {1: b"\5\0\0\0", 2: (1000).to_bytes(4, "little")}
    facts = launched(program, "count", KnownLaunch((64,), (8,), (), numbers, {0: 1024}))
    assert not facts.summary.failure
    region = facts.region(0, "write", GroupRange(0, 2, 3))
    assert (region.exact, region.nbytes, facts.split(0).splittable) == (True, 3 * 8 * 16, True)
