"""What every estimate can be asked, and that who wraps others forgets nothing of them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from manycl.model.estimates import Ends, Estimates, Wrapped
from manycl.model.occupancy import LaunchRange


def asked() -> set[str]:
    """Everything that estimates may be asked."""
    return {name for name in vars(Estimates) if not name.startswith("_")}


class Odd(Estimates):
    """Answers that nobody else gives."""

    contended = True

    def launch(self, node: int, device: int) -> float:
        return 1.5

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 2.5

    def groups(self, node: int, device: int, count: int, of: int) -> float | None:
        return 3.5

    def together(self, nodes: Sequence[int], device: int) -> float:
        return 8.5

    def version(self, node: int, device: int) -> int:
        return 4

    def doubt(self, node: int, devices: Sequence[int]) -> float:
        return 5.5

    def is_measured(self, node: int, device: int) -> bool:
        return False

    def off(self, node: int, devices: Sequence[int]) -> float:
        return 9.5

    def relative(self, node: int, device: int, where: LaunchRange) -> float:
        return 11.5

    def waves(self, node: int, device: int, of: int) -> float:
        return 12.5

    def first_slice(self, node: int, device: int) -> float | None:
        return 10.5

    def traffic(self, node: int, device: int) -> float:
        return 6.5

    def slowdowns(self, ends: Sequence[Ends]) -> list[float]:
        return [7.5] * len(ends)


ARGUMENTS = {
    "node": 0,
    "device": 0,
    "count": 1,
    "of": 2,
    "where": LaunchRange(0, 1, 2),
    "nbytes": 8,
    "source": 0,
    "target": 1,
    "devices": [0, 1],
    "nodes": [0, 1],
}


def answers(estimates: Estimates) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in asked():
        what = getattr(estimates, name)
        if callable(what):
            known = {**ARGUMENTS, "ends": [(0, 1), (1, 0)]}
            what = what(*(known[p] for p in inspect.signature(what).parameters))
        found[name] = what
    return found


def test_who_wraps_estimates_keeps_all_that_they_say() -> None:
    class Mine(Wrapped):
        def launch(self, node: int, device: int) -> float:
            return 9.0

    given, defaults = answers(Odd()), answers(Wrapped(Odd()))
    assert asked() <= set(vars(Odd)), "a new question: give Odd an answer of its own"
    assert given == defaults
    assert answers(Mine(Odd())) == {**given, "launch": 9.0}


def test_what_nobody_knows() -> None:
    class Least(Estimates):
        def launch(self, node: int, device: int) -> float:
            return 1.0

        def transfer(self, nbytes: int, source: int, target: int) -> float:
            return 0.0

    found = answers(Least())
    assert [found[name] for name in ("groups", "together", "version", "doubt", "traffic")] == [None, 2.0, 0, 0.0, 0.0]
    assert (found["slowdowns"], found["contended"]) == ([1.0, 1.0], False)
