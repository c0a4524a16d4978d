"""Which plan of a graph that runs again and again is kept: of the first few, the one that ran fastest; later ones, made
when more is known, take its place if they run faster. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from manycl.plan.plan import Plan, same_plan

PLANNED_RUNS = 4
"""Every run's planning knows better how long kernels and transfers take; of so many plans, the one that ran fastest is
kept."""
POSTPONED_RUNS = 32
"""Unless the policy says that it will know more soon: then it is asked again, at most so often."""
RIVAL = 3
"""The planning that asks for a rival: what the policy does not take for the fastest."""
SECOND_THOUGHTS = (4, 4, 16)
"""After so many runs of what is kept, the policy is asked once more: the first runs are slow (memory is new, code is
cold), and so is what was learned from them."""
RIVAL_THOUGHT = 2
"""The second thought that asks for a rival once more: its one run among the first may have been slow as these are."""
COMPARED = 3
"""So many runs of another plan are compared with those of what is kept: of each, the fastest."""
MUCH = 2e-3
"""Seconds: a plan that takes more than half as long again as what is kept, and longer by this, is not run again."""


class Autotuner:
    """``plan``: the one to run next, None where the policy is to be asked. ``thoughts``: after how many runs of what is
    kept it is asked again, each time."""

    def __init__(self, plan: Plan | None = None, *, thoughts: Sequence[int] = SECOND_THOUGHTS) -> None:
        self.plan = plan
        self._tried: list[tuple[float, Plan | None]] = []
        self._asked = 0
        self._thoughts = list(thoughts) if plan is None else []
        self._thought = 0
        self._seconds: list[float] = []  # of the plan's runs
        # what was kept before the policy was asked again, and its time
        self._former: tuple[Plan, float] | None = None

    @property
    def planned(self) -> int:
        """Plans that have run."""
        return len(self._tried)

    @property
    def rival(self) -> bool:
        """Whether the policy is to be asked for a rival."""
        return self._thought == RIVAL_THOUGHT if self._former is not None else self.planned + 1 == RIVAL

    @property
    def is_comparing(self) -> bool:
        """Whether another plan than what is kept runs."""
        return self._former is not None

    @property
    def kept(self) -> Plan | None:
        """The plan that has proved to be the best so far."""
        return self._former[0] if self._former is not None else self.plan

    def answered(self, seconds: float, plan: Plan | None) -> None:
        """The policy was asked, and its plan took so long."""
        self._asked += 1
        postponed = plan is not None and plan.details.get("postponed") and self._asked < POSTPONED_RUNS
        if self._former is not None:  # it has thought again
            if plan is None or same_plan(plan, self._former[0]):
                self._keep(self._former[0])
            else:
                self.plan, self._seconds = plan, []
            return
        if not postponed:
            self._tried.append((seconds, plan))
        if len(self._tried) >= PLANNED_RUNS:
            self._keep(min(self._tried, key=lambda tried: tried[0])[1])

    def repeated(self, seconds: float) -> None:
        """The plan has run once more."""
        self._seconds.append(seconds)
        if self._former is not None:
            former, before = self._former
            lost = seconds > max(1.5 * before, before + MUCH)
            if lost or len(self._seconds) >= COMPARED:
                self._keep(self.plan if min(self._seconds) < before else former)
        elif self._thoughts and len(self._seconds) >= self._thoughts[0] and self.plan is not None:
            del self._thoughts[0]
            self._thought += 1
            self._former, self.plan = (self.plan, min(self._seconds)), None

    def _keep(self, plan: Plan | None) -> None:
        self.plan, self._former, self._seconds = plan, None, []
