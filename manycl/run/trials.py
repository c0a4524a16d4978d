"""Which plan of a graph that runs again and again is kept: of the first few, the one that ran fastest; later ones, made
when more is known, take its place if they run faster. Pure."""

from __future__ import annotations

from manycl.plan.plan import Plan
from manycl.run.windows import same_plan

PLANNED_RUNS = 4
"""Every run's planning knows better how long kernels and transfers take; of so many plans, the one that ran fastest is
kept."""
POSTPONED_RUNS = 32
"""Unless the policy says that it will know more soon: then it is asked again, at most so often."""
SECOND_THOUGHTS = (4, 16)
"""After so many runs of what is kept, the policy is asked once more: the first runs are slow (memory is new, code is
cold), and so is what was learned from them."""
COMPARED = 3
"""So many runs of another plan are compared with those of what is kept: of each, the fastest."""


class Trials:
    """``plan``: the one to run next, None where the policy is to be asked. ``later``: whether it is asked again after
    its first plans."""

    def __init__(self, plan: Plan | None = None, *, later: bool = True) -> None:
        self.plan = plan
        self._tried: list[tuple[float, Plan | None]] = []
        self._asked = 0
        self._thoughts = list(SECOND_THOUGHTS) if later and plan is None else []
        self._seconds: list[float] = []  # of the plan's runs
        self._rival: tuple[Plan, float] | None = None  # what was kept before the plan that is being tried, and its time

    @property
    def planned(self) -> int:
        """Plans that have run."""
        return len(self._tried)

    @property
    def kept(self) -> Plan | None:
        """The plan that has proved to be the best so far."""
        return self._rival[0] if self._rival is not None else self.plan

    def answered(self, seconds: float, plan: Plan | None) -> None:
        """The policy was asked, and its plan took so long."""
        self._asked += 1
        postponed = plan is not None and plan.details.get("postponed") and self._asked < POSTPONED_RUNS
        if self._rival is not None:  # it has thought again
            if plan is None or same_plan(plan, self._rival[0]):
                self._keep(self._rival[0])
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
        if self._rival is not None:
            if len(self._seconds) >= COMPARED:
                former, before = self._rival
                self._keep(self.plan if min(self._seconds) < before else former)
        elif self._thoughts and len(self._seconds) >= self._thoughts[0] and self.plan is not None:
            del self._thoughts[0]
            self._rival, self.plan = (self.plan, min(self._seconds)), None

    def _keep(self, plan: Plan | None) -> None:
        self.plan, self._rival, self._seconds = plan, None, []
