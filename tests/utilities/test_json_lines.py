"""Lines of places in JSON texts, judged by texts whose layout is known; and the reader's own strictness."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.errors import SpecificationError
from manycl.utilities.json_lines import Location, find_line, parse, read_text, show

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def places(value: Any, where: tuple[str | int, ...] = ()) -> Any:
    yield where, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*where, key))


@given(VALUES)
def test_every_place_is_found(value: Any) -> None:
    """json.dumps with indent puts every member on a line of its own: count the lines that come before it."""
    text = json.dumps(value, indent=1)
    assert parse(text, "f") == value
    for line, (where, _) in enumerate(places(value), 1):
        assert find_line(text, where) == line + _closed_before(value, where)


def _closed_before(value: Any, where: tuple[str | int, ...]) -> int:
    """Lines with a closing bracket before the place: one per non-empty container that ended earlier."""
    count = 0
    for other, inner in places(value):
        if other == where:
            break
        if isinstance(inner, (dict, list)) and inner and where[: len(other)] != other:
            count += 1
    return count


@given(st.text(max_size=40))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        expected = json.loads(text, parse_constant=lambda name: name)
    except ValueError:
        with pytest.raises(SpecificationError, match=r"^f(:\d+)?: not valid JSON"):
            parse(text, "f")
    else:
        with contextlib.suppress(SpecificationError):
            assert parse(text, "f") == expected


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{"a": 1,\n "b": }', 2, "column 7"),
        ('{"a": 1,\n "a": 2}', 1, "'a' appears twice"),
        ('[1,\n {"x": {"b": 1, "b": 2}}]', 2, "'b' appears twice"),
        ('{"a": NaN}', 0, "NaN is not a number"),
        ('["\\ud800"]', 0, "surrogate"),
        ("[" * 100_000, 0, "nested too deeply"),
        ("1" * 5000, 0, "not valid JSON"),
        ("", 1, "not valid JSON"),
    ],
)
def test_what_is_refused(text: str, line: int, words: str) -> None:
    with pytest.raises(SpecificationError, match=words) as caught:
        parse(text, "f.json")
    assert caught.value.line == line
    assert str(caught.value).startswith("f.json")


def test_places_and_files(tmp_path: Path) -> None:
    assert show(("kernels", 2, "args", 0)) == "kernels[2].args[0]"
    assert show(("buffers", "A, B", "type")) == 'buffers["A, B"].type'
    error = Location("f.json", '{\n"a": [1,\n2]}').at("a", 1).error("is two")
    assert str(error) == "f.json:3: a[1]: is two"
    assert str(Location("g", fixed_line=7).error("odd")) == "g:7: odd"
    with pytest.raises(SpecificationError, match="No such file"):
        read_text(tmp_path / "none")
    with pytest.raises(SpecificationError, match="not a possible file name"):
        read_text(Path("a\0b"))
    (tmp_path / "latin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecificationError, match="not a text file in UTF-8"):
        read_text(tmp_path / "latin")
