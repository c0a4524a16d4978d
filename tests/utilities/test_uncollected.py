"""Garbage collection while much is imported: it waits, and is due later, but nothing is kept from it."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from types import ModuleType

import pytest

from manycl.utilities.interrupts import uncollected


@pytest.fixture(autouse=True)
def _unfrozen() -> Iterator[None]:
    """The tests' own objects are frozen, for quick collections."""
    gc.unfreeze()
    yield
    gc.freeze()


class Node:
    """An object of a cycle."""


@pytest.mark.parametrize("was_enabled", [True, False])
def test_what_was_made_inside_is_found_later(was_enabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    (gc.enable if was_enabled else gc.disable)()
    try:
        with uncollected():
            assert not gc.isenabled()
            node = Node()
            node.itself = node  # type: ignore[attr-defined]
            kept = [[] for _ in range(3000)]  # type: ignore[var-annotated]
            monkeypatch.setitem(sys.modules, "imported_inside", ModuleType("imported_inside"))
        assert gc.isenabled() is was_enabled
        assert gc.get_count()[1:] == (0, 0)
        assert gc.get_freeze_count() == 0
        gone = weakref.ref(node)
        del node
        gc.collect()
        assert gone() is None
        assert len(kept) == 3000
    finally:
        gc.enable()


def test_what_the_program_has_frozen_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    with uncollected():
        monkeypatch.setitem(sys.modules, "imported_inside", ModuleType("imported_inside"))
    assert frozen - 100 < gc.get_freeze_count() <= frozen  # (other threads drop some of these)


def test_without_imports_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """To count what a program has frozen takes tens of milliseconds where it is much."""
    monkeypatch.delattr(gc, "get_freeze_count")
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
