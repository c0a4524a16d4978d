"""Options of policies: what is refused is told by name, and with what would do."""

from __future__ import annotations

import pytest

from manycl.errors import PolicyError
from manycl.plan.options import check_names, seconds, whole


def test_names() -> None:
    check_names("x", {"a": "1"}, ("a", "b"))
    with pytest.raises(PolicyError, match="policy x has no option c") as caught:
        check_names("x", {"a": "1", "c": "2"}, ("a", "b"))
    assert caught.value.hint == "there are a, b"


def test_seconds() -> None:
    assert seconds({"t": "2.5e-3"}, "t", 7.0) == 0.0025
    assert seconds({"u": "1"}, "t", 7.0) == 7.0
    assert seconds({"t": "0"}, "t", 7.0, zero=True) == 0.0
    for text in ("0", "-1", "nan", "inf", "soon", "", "1 s"):
        with pytest.raises(PolicyError, match=f"option t={text}: expected seconds above zero"):
            seconds({"t": text}, "t", 7.0)
    with pytest.raises(PolicyError, match=r"expected seconds$"):
        seconds({"t": "-0.5"}, "t", 7.0, zero=True)


def test_whole_numbers() -> None:
    assert whole({"n": "12"}, "n", 3) == 12
    assert whole({}, "n", 3) == 3
    for text in ("0", "5", "-1", "1.0", "\N{SUPERSCRIPT TWO}", "", "9" * 5000):
        with pytest.raises(PolicyError, match="expected a whole number from 1 to 4"):
            whole({"n": text}, "n", 3, 1, 4)
