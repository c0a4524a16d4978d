"""Plain lines pass by the preprocessor: judged by what it makes of the whole source."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis import frontend
from manycl.analysis.options import read_options
from manycl.analysis.preprocess import Expanded
from manycl.errors import SourceError

HERE = Path(__file__).parent
FILES = sorted(HERE.rglob("*.cl"))
NAMES = ("N", "F", "G", "OPEN", "x", "y")
LINES = (
    *("x = y;", "int a[N];", "F(x, y);", "F(x,", "y);", "F", "(x, y)", "G", "OPEN x, y", ")", "{", "}", ""),
    *("/* N", "F */", "// F(", "x; // don't", 's = "N \' (";', "c = '(';", "c = '\"'; /* F */", 's = "\\"// F";'),
    *("f(x, y);", "f(x,", "  y, x)", "long \\", "x;", "// x \\", "N;", "x N y", "#pragma unroll", "__LINE__", "a%:b"),
    *(
        "#define N 4",
        "#define N (",
        "#define F(a, b) a + b",
        "#define F(a, b) #a",
        "#define G F",
        "#undef N",
        "#undef F",
    ),
    *("#define \\", "#define F\\", "N 3", "F 2", "# define  G(a) a a"),
    *("#define OPEN f(", "#define OPEN F(", "#define G \\", "  F", "#if N > 2", "#ifdef F", "#if 0", "#else", "#endif"),
)
DOUBTFUL = ("__LINE__", "a%:b", 's = "\\"// F";', "// x \\", "#define OPEN f(", "#define OPEN F(", "#define N (")


def both(source: str, options: tuple[str, ...] = ()) -> tuple[object, object]:
    """What becomes of a source with and without plain lines passing by: lines that are not blank with where they are
    from, or the messages."""
    expander, read = frontend._expander("CL1.2"), read_options(options)
    found: list[object] = []
    for expand in (expander.expand, expander._expand):
        try:
            result = expand(source, "<source>", None, read)
        except SourceError as error:
            found.append([str(d) for d in error.diagnostics])
        else:
            assert len(result.lines) == result.text.count("\n") + 1
            found.append((rows(result), result.warnings))
    return found[0], found[1]


def rows(result: Expanded) -> list[tuple[list[str], tuple[str, int]]]:
    lines = zip(result.text.split("\n"), result.lines, strict=True)
    return [(text.split(), place) for text, place in lines if text.strip()]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_corpus(file: Path) -> None:
    short, whole = both(file.read_text(encoding="utf-8"))
    assert short == whole


@settings(max_examples=300, deadline=None)
@given(
    lines=st.lists(st.sampled_from(LINES), min_size=1, max_size=14)
    | st.lists(st.sampled_from([line for line in LINES if line not in DOUBTFUL]), min_size=1, max_size=14),
    options=st.sampled_from([(), ("-DN=7",), ("-DG",), ("-UN",), ("-Dx=y",)]),
)
def test_any_lines(lines: list[str], options: tuple[str, ...]) -> None:
    short, whole = both("\n".join(lines), options)
    assert short == whole


def test_plain_lines_pass_by() -> None:
    """The test above would also hold if none did."""
    from manycl.analysis.plain_lines import shorten

    source = "#define N 4\nint a[N];\nint f(int x,\n      int y) {\n  return x; // N\n}\n"
    found = shorten(source, ())
    assert found is not None
    assert [number for number in range(7) if f"manycl_plain_{number}" in found.text] == [2, 3, 4, 5]
