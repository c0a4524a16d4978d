"""The syntax of device selections: examples by hand, and a round trip and a fuzz with Hypothesis."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from manycl.device_syntax import Item, parse
from manycl.errors import DeviceError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all", [Item("all")]),
        ("gpu", [Item("gpu")]),
        ("cpu/2", [Item("cpu", (2,))]),
        ("cpu/2#0,cpu/2#1@4", [Item("cpu", (2,), (0, 0)), Item("cpu", (2,), (1, 1), 4.0)]),
        ("gpu0,cpu/1+1", [Item("gpu0"), Item("cpu", (1, 1))]),
        ("cpu/8#2-5@1.5", [Item("cpu", (8,), (2, 5), 1.5)]),
        (" Intel(R) OpenCL , oclgrind@2", [Item("Intel(R) OpenCL"), Item("oclgrind", factor=2.0)]),
        ("cpu/2#1@4@process,gpu@process", [Item("cpu", (2,), (1, 1), 4.0, True), Item("gpu", own_process=True)]),
        (["cpu0", "gpu0,gpu1"], [Item("cpu0"), Item("gpu0"), Item("gpu1")]),
    ],
)
def test_examples(text: str | list[str], expected: list[Item]) -> None:
    assert list(parse(text)) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no device"),
        ([], "no device"),
        ("  ", "no device"),
        ("cpu,", "''"),
        ("cpu,,gpu", "''"),
        ("/2", "/2"),
        ("cpu/", "cpu/"),
        ("cpu/0", "at least one"),
        ("cpu/1+0", "at least one"),
        ("cpu/2+", "cpu/2+"),
        ("cpu/-2", "cpu/-2"),
        ("cpu/5000", "4096"),
        ("cpu#0", "not divided"),
        ("cpu/2#1-0", "first part"),
        ("cpu/2#a", "cpu/2#a"),
        ("cpu@0.5", "from 1"),
        ("cpu@0", "from 1"),
        ("cpu@nan", "cpu@nan"),
        ("cpu@inf", "cpu@inf"),
        ("cpu@4@2", "cpu@4@2"),
        ("cpu@4/2", "cpu@4/2"),
        ("cpu@process@4", "cpu@process@4"),
        ("cpu@thread", "cpu@thread"),
        ("cpu/" + "9" * 5000, "cpu/9"),
        ("cpu/\N{ARABIC-INDIC DIGIT TWO}", "cpu/"),
    ],
)
def test_refusals_say_what_and_give_an_example(text: str | list[str], words: str) -> None:
    with pytest.raises(DeviceError, match="for example: all") as caught:
        parse(text)
    assert words in caught.value.message


_selectors = st.text(st.characters(exclude_characters="/#@,", codec="utf-8"), min_size=1).map(str.strip)


@st.composite
def _items(draw: st.DrawFn) -> Item:
    sizes: list[int] = draw(st.lists(st.integers(1, 4096), max_size=4))
    division = tuple(sizes)
    parts = None
    picked: bool = draw(st.booleans())
    if division and picked:
        first: int = draw(st.integers(0, 10_000))
        parts = (first, first + draw(st.integers(0, 10_000)))
    return Item(draw(_selectors.filter(bool)), division, parts, draw(st.floats(1.0, 1e6)), draw(st.booleans()))


@given(st.lists(_items(), min_size=1, max_size=5))
def test_round_trip(items: list[Item]) -> None:
    assert list(parse(",".join(map(str, items)))) == items
    assert list(parse([str(i) for i in items])) == items


@given(st.text() | st.text("cpu0123/+#-@., \t\n", max_size=40))
@example("a " * 2000 + "/x")
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        items = parse(text)
    except DeviceError:
        return
    assert items == parse(",".join(map(str, items)))
    for item in items:
        assert item.selector.strip()
        assert 1.0 <= item.factor <= 1e6
        assert all(n >= 1 for n in item.division)
        assert item.parts is None or (item.division and 0 <= item.parts[0] <= item.parts[1])
