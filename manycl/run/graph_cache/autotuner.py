"""The autotuner: which plan of a graph that runs repeatedly is kept. That is the plan of the first few that ran
fastest; later ones, made when more is known, replace it if they run faster. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from manycl.plan.plan import Plan, same_plan

PLANNED_RUNS = 4
"""The number of planned runs of which the fastest plan is kept: each planning knows better how long kernels and
transfers take."""
POSTPONED_RUNS = 32
"""The most times that a policy is asked which says that it will know more soon; until then its plans do not count."""
RIVAL = 3
"""The number of the planning that asks for a rival: a plan that the policy does not predict to be the fastest."""
SECOND_THOUGHTS = (4, 4, 16)
"""The numbers of runs of the kept plan after which the policy is asked once more: the first runs are slow (memory is
new, code is cold), and so is what was learned from them."""
RIVAL_THOUGHT = 2
"""The number of the second thought that asks for a rival once more: its one run among the first may have been slow,
too."""
COMPARED = 3
"""The number of runs of another plan that are compared with those of the kept plan, by the fastest of each."""
MUCH = 2e-3
"""The seconds by which a plan has to take longer than the kept plan, and more than half as long again, so that it is
not run again."""


class Autotuner:
    """The tuning of one graph's plan. ``plan``: the one to run next, None where the policy is to be asked.
    ``thoughts``: the numbers of runs of the kept plan after which the policy is asked again, each time. ``runs``: the
    number of planned runs of which the fastest plan is kept."""

    def __init__(
        self, plan: Plan | None = None, *, thoughts: Sequence[int] = SECOND_THOUGHTS, runs: int = PLANNED_RUNS
    ) -> None:
        self.plan = plan
        self._runs = runs
        self._tried: list[tuple[float, Plan | None]] = []
        self._asked = 0
        self._thoughts = list(thoughts) if plan is None else []
        self._thought = 0
        self._count, self._least = 0, inf  # runs of the plan, and the seconds of the fastest
        # the plan that was kept before the policy was asked again, and its time
        self._former: tuple[Plan, float] | None = None

    @property
    def planned(self) -> int:
        """The number of plans that have run."""
        return len(self._tried)

    @property
    def rival(self) -> bool:
        """True if the policy is to be asked for a rival."""
        return self._thought == RIVAL_THOUGHT if self._former is not None else self.planned + 1 == RIVAL

    @property
    def is_comparing(self) -> bool:
        """True if the plan that runs is not the kept one."""
        return self._former is not None

    @property
    def kept(self) -> Plan | None:
        """The plan that has proved to be the best so far."""
        return self._former[0] if self._former is not None else self.plan

    def answered(self, seconds: float, plan: Plan | None) -> None:
        """Note that the policy was asked, and that its plan took so many seconds."""
        self._asked += 1
        postponed = plan is not None and plan.details.get("postponed") and self._asked < POSTPONED_RUNS
        if self._former is not None:  # this was a second thought
            if plan is None or same_plan(plan, self._former[0]):
                self._keep(self._former[0])
            else:
                self.plan, self._count, self._least = plan, 0, inf
            return
        if not postponed:
            self._tried.append((seconds, plan))
        if len(self._tried) >= self._runs:
            self._keep(min(self._tried, key=lambda tried: tried[0])[1])

    def repeated(self, seconds: float) -> None:
        """Note one more run of the plan."""
        self._count, self._least = self._count + 1, min(self._least, seconds)
        if self._former is not None:
            former, before = self._former
            lost = seconds > max(1.5 * before, before + MUCH)
            if lost or self._count >= COMPARED:
                self._keep(self.plan if self._least < before else former)
        elif self._thoughts and self._count >= self._thoughts[0] and self.plan is not None:
            del self._thoughts[0]
            self._thought += 1
            self._former, self.plan = (self.plan, self._least), None

    def _keep(self, plan: Plan | None) -> None:
        self.plan, self._former, self._count, self._least = plan, None, 0, inf
