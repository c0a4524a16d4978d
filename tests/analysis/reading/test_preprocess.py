"""What the preprocessor makes of a source, judged by the values that clang computes for what each source says."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.analysis import parse_program
from manycl.analysis.reading import frontend, preprocess
from manycl.analysis.reading.options import read_options
from manycl.errors import SourceError
from tests import ROOT


def expanded(source: str, *options: str, folder: str | None = None) -> preprocess.Expanded:
    found = preprocess.expand(source, "dir/k.cl", folder, read_options(options), "CL1.2")
    assert len(found.lines) == found.text.count("\n") + 1
    return found


def words(source: str, *options: str) -> str:
    return " ".join(expanded(source, *options).text.split())


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("#define M(x) do { x = 1; /* one\n two */ \\\n } while (0)\nM(a);", "do { a = 1; } while (0);"),
        ("#define STEP a += 1; /* a note \\\n goes on */ a *= 2;\nSTEP", "a += 1; a *= 2;"),
        ("#define N 3 // a folder C:\\\\ \\\n#define N 4\nN", "3"),
        ("int a = 1; // C:\\temp\\\n a = 2;\na = 3;", "int a = 1; a = 3;"),
        ('#define N 3\n#pragma push_macro("N")\n#undef N\n#define N 4\nN\n#pragma pop_macro("N")\nN', "4 3"),
        ("#define _ 7\n0_ 1.f .5f 0x1p3 1e+_", "0_ 1.f .5f 0x1p3 1e+_"),
        ("#define CAT(a, b) a##b\n#define X CAT(__COUNTER__, u)\n__COUNTER__ __COUNTER__", "0 1"),
        ('#define log(f, ...) printf(f, ##__VA_ARGS__)\nlog("a"); log("b", 1);', 'printf("a"); printf("b", 1);'),
        ("#define S(x) #x\nS( a  'b' \"c\\n\" )", "\"a 'b' \\\"c\\\\n\\\"\""),
        ('#if __has_include("nowhere.h")\n1\n#else\n2\n#endif', "2"),
        ("// Größe\n/* 長さ */ int x; // ü", "int x;"),
        ('\ufeffchar *s = "長さ";\r\nint y;\r\n', 'char *s = "長さ"; int y;'),
        ("#define f f(1)\nf f", "f(1) f(1)"),
        ("-N", "- -1"),
        ("#define A(x) x\n#define B A(\nB 3)", "3"),
        ("#if CHAR_BIT == 8 && defined CLK_LOCAL_MEM_FENCE && CL_VERSION_1_2 == 120\n1\n#endif", "1"),
        ("CLK_LOCAL_MEM_FENCE INFINITY M_PI_F NAN", "CLK_LOCAL_MEM_FENCE INFINITY M_PI_F NAN"),
        ("#define M_PI_F 3\nM_PI_F", "3"),
        ("#if __OPENCL_VERSION__ == 120 && __OPENCL_C_VERSION__ == 120\n1\n#endif", "1"),
        ("__LINE__ __FILE__\n#line 40\n__LINE__", '1 "dir/k.cl" 40'),
        ('_Pragma("unroll 2") for', "#pragma unroll 2 for"),
        ("#define U 4\n#pragma unroll U\nx U", "#pragma unroll 4 x 4"),
        ("#define A 1", ""),
    ],
)  # fmt: skip
def test_expansion(source: str, said: str) -> None:
    assert words(source, "-DN=-1") == said


def test_options() -> None:
    assert words("A B C(2) D", "-DA", "-DB=x", "-DC(y)=y+y", "-DD=1", "-UD") == "1 x 2 +2 D"
    assert words("#ifdef __FAST_RELAXED_MATH__\n1\n#endif", "-cl-fast-relaxed-math") == "1"


def test_rows_are_those_of_the_source() -> None:
    """One for one where nothing is included, however many lines do nothing."""
    source = "int a;\n" + "// nothing\n" * 50 + "#define N \\\n  3\nint b = N;\n\n\nint c;"
    found = expanded(source)
    assert found.lines == tuple(("dir/k.cl", number) for number in range(1, len(found.lines) + 1))
    assert found.text.split("\n")[source.split("\n").index("int b = N;")] == "int b = 3;"


def test_included_files_are_named_and_listed(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("int in_a;\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.h").write_text('#pragma once\n#include "../a.h"\nint in_b;\n')
    text = '#define NAME "sub/b.h"\nint x;\n#include NAME\nint y;\n#include "sub/b.h"\nint z;'
    found = expanded(text, folder=str(tmp_path))
    places = {row: place for row, place in zip(found.text.split("\n"), found.lines, strict=True) if row}
    assert {row: line for row, (_, line) in places.items()} == {
        "int x;": 2,
        "int in_a;": 1,
        "int in_b;": 3,
        "int y;": 4,
        "int z;": 6,
    }
    assert places["int in_b;"][0] == "dir/sub/b.h"
    assert {Path(file).resolve().name for file in found.files} == {"a.h", "b.h"}


@pytest.mark.parametrize("file", sorted((ROOT / "tests" / "analysis").rglob("*.cl")), ids=lambda file: file.name)
def test_the_files_of_the_tests_have_the_tokens_of_the_whole_compiler(file: Path) -> None:
    """Which includes OpenCL's header: what it defines is expanded there, so each side is expanded to the end."""
    source = file.read_text(encoding="utf-8")
    assert to_the_end(expanded(source).text) == to_the_end(source)


def to_the_end(text: str) -> list[str]:
    """The tokens of a text with all macros of OpenCL's header expanded."""
    include = preprocess.cindex.Config.resource_dir
    header = ("-Xclang", "-finclude-default-header", f"-I{include}/include")
    output = preprocess._run(f'# 1 "here.cl"\n{text}\n', None, "CL1.2", *header, "-D__OPENCL_VERSION__=120")[0]
    rows, inside = [], False
    for row in output.split("\n"):
        if row.startswith("# "):
            inside = '"here.cl"' in row
        elif inside and not row.startswith("#pragma"):
            rows.append(row)
    found = preprocess._TOKEN.findall("\n".join(rows))
    assert found
    return found


TOKENS = ("a", "bb", "+", "-", "(", ")", "1.0f", ";", "TWO", "CALL(a)", '"s"', "/* c */", "  ", "\t", "ü")


@given(st.lists(st.sampled_from(TOKENS), max_size=10), st.sampled_from([" ", "  ", "\t"]), st.data())
def test_columns_are_those_of_the_source(parts: list[str], between: str, data: st.DataObject) -> None:
    """Of a token that no macro makes; what one makes is at it, or at the first of a row that is all different."""
    row = between.join(part for part in [*parts, "unknown", *data.draw(st.lists(st.sampled_from(TOKENS), max_size=4))])
    source = f"#define TWO x y\n#define CALL(z) (z)\n{row}"
    found = expanded(source)
    text = found.text.split("\n")[2]
    path, line, column, own = found.place(2, text.index("unknown") + 1, text)
    assert (path, line, own) == ("dir/k.cl", 3, row)
    behind = row[row.index("unknown") :]
    before = row[: row.index("unknown")]
    if not re.search("TWO|CALL", before) or not re.search("TWO|CALL", behind):
        assert column == row.index("unknown") + 1
    else:
        assert 1 <= column <= len(row)


def test_errors_stand_at_the_users_column() -> None:
    source = "#define F(x)   ((x) + 1)\nkernel void k(global int *a) {  a[0] =   F(2)  + F(3) +   zz;  /* c */ }"
    with pytest.raises(SourceError) as caught:
        frontend.load(source, "k.cl", None, read_options([]))
    (problem,) = caught.value.diagnostics
    assert (problem.line, problem.column) == (2, source.split("\n")[1].index("zz") + 1)
    assert problem.source == source.split("\n")[1]


@pytest.mark.parametrize("path", ["<manycl>", "<merge kernel>", "<command>", "a.cl"])
def test_sources_of_any_name_are_read(path: str) -> None:
    assert list(parse_program("kernel void k(global int *x) { x[0] = 1; }", path=path).kernels) == ["k"]


def test_where_no_more_processes_may_be_started_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **given: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr("subprocess.Popen", full)
    with pytest.raises(SourceError, match=r"no more processes may be started here \(ulimit -u\)$") as caught:
        expanded("kernel void f() {}")
    assert not caught.value.hint
