"""Values of any stage as HTML for notebooks. What makes it is far above: the package's root says where it is."""

from __future__ import annotations

from collections.abc import Callable

Show = Callable[[object], str]

_found: list[Callable[[], Show]] = []


def shown_by(find: Callable[[], Show]) -> None:
    """Have a function show values, which ``find`` returns when a notebook asks for the first time."""
    _found[:] = [find]


def html(value: object) -> str:
    """Return HTML for a value, escaped."""
    return _found[-1]()(value)
