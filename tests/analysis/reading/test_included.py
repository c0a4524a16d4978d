"""Files that programs may include are told apart by their contents, whatever branch names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from manycl.analysis.reading.options import included


def test_nothing_is_read_for_texts_that_include_nothing() -> None:
    assert included("__kernel void f(__global int *a) { a[0] = 1; }", ["-I", "/nowhere"]) == ()


def test_contents_count(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text('# include "deep/b.h"\n')
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.h").write_text("#define B 1\n")
    options = ["-I", str(tmp_path)]
    text = "#ifdef NEVER\n%:  include <a.h>\n#endif\n"
    first = included(text, options)
    assert first is not None
    assert len(first) == 2
    assert included(text, options) == first
    (tmp_path / "deep" / "b.h").write_text("#define B 2\n")
    assert included(text, options) not in (None, first)


def test_joined_lines_and_comments(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("#define A 1\n")
    told = included('/* #include "b.h" */ // include\n/* c */ #inc\\\nlude "a.h"\n', (), [str(tmp_path)])
    assert told is not None
    assert [Path(word.split()[0]).name for word in told] == ["a.h"]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("#define NAME <a.h>\n#include NAME\n", []),
        ("int x = sizeof(__DATE__);", []),
        ("#if __has_include(<a.h>)\n#endif\n", []),
        ("int x;", ["-include", "a.h"]),
    ],
)
def test_what_cannot_be_told(text: str, options: list[str]) -> None:
    assert included(text, options) is None
