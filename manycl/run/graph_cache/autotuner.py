"""The autotuner: which plan of a graph that runs repeatedly runs next. That is the one that ran fastest so far; another
one is tried while trials have cost little beside all runs. Pure."""

from __future__ import annotations

from math import inf

from manycl.plan.plan import Plan, same_plan
from manycl.run.engine.trial import LOSING, Fallback
from manycl.utilities.kept import ENOUGH

PLANNED_RUNS = 4
"""The number of first runs of a prepared graph that are planned, whatever that costs, as each planning knows better how
long kernels and transfers take; our own choice."""
POSTPONED_RUNS = 32
"""The most times that a policy is asked which says that it will know more soon; until then its plans do not count; our
own choice."""
TRIAL_SHARE = 0.03
"""The part of the seconds of all runs that trials may cost, beside the time of one run; our own choice."""
FIRST_WAIT = 2
"""The number of runs of the kept plan after which the policy is asked again, doubled each time; our own choice."""
RIVAL = 3
"""The number of plannings of which the last one is asked for a rival, a plan that the policy does not predict to be the
fastest; our own choice."""


class TrialBudget:
    """The seconds that trials of one graph may cost. ``total``: of all its runs so far; ``least``: of the fastest one;
    ``spent``: by which trials took longer than that, their planning included, and the slower way tried again."""

    def __init__(self) -> None:
        self.total = self.spent = 0.0
        self.least = inf

    def ran(self, seconds: float, *, is_trial: bool = False, planning: float = 0.0) -> None:
        """Note a run, before which planning took so long."""
        self.total += seconds + planning
        if is_trial and self.least < inf:
            self.spent += max(seconds - self.least, 0.0)
            self.spent += planning
        self.least = min(self.least, seconds)

    @property
    def spare(self) -> float:
        """The seconds that the next trial may cost."""
        return TRIAL_SHARE * self.total + (self.least if self.least < inf else 0.0) - self.spent


class Autotuner:
    """The tuning of one graph's plan, which may be given. ``is_asked``: whether the policy is asked again once a plan
    is kept; ``free``: the number of first runs that are planned at any cost; ``former``: the fastest plan of a tuning
    before, with which the policy's next one is compared."""

    def __init__(
        self,
        plan: Plan | None = None,
        budget: TrialBudget | None = None,
        *,
        is_asked: bool = True,
        free: int = 1,
        former: Fallback | None = None,
    ) -> None:
        self._best, self._least = former or (plan, inf)  # and seconds of the fastest run of that plan
        self._is_new = former is not None  # whether the policy is asked at once
        self.planned = 0  # the plannings that count
        self._budget = budget or TrialBudget()
        self._is_asked = is_asked and plan is None
        self._free = free if self._best is None else 0
        self._asked = 0
        self.candidate: Plan | None = None
        """The plan that runs, if it is not the kept one."""
        self.ahead: Plan | None = None
        """The policy's next plan, once it was made in the background."""
        self._trial_least, self._trial_runs = inf, 0
        self._cost = 0.0  # seconds that the last planning took
        self._wait, self._runs = FIRST_WAIT, 0  # runs of the kept plan before the next question, and since the last one

    @property
    def plan(self) -> Plan | None:
        """The plan to run next; None: the policy is to be asked."""
        if self.candidate is not None:
            return self.candidate
        if self.planned < self._free or self._is_new:
            return None
        is_asked = self._is_asked and self._runs >= self._wait
        is_due = is_asked and self._cost + (LOSING - 1.0) * self._least <= self._budget.spare
        return self._best if not is_due else None

    @property
    def kept(self) -> Plan | None:
        """The fastest plan so far, once the first ones have run."""
        return self._best if self.planned >= self._free else None

    @property
    def fallback(self) -> Fallback | None:
        """The kept plan, or one of a policy that will know more soon, with the seconds of its fastest run."""
        if self._best is None or 0 < self.planned < self._free:
            return None
        return Fallback(self._best, self._least)

    @property
    def rival(self) -> bool:
        """True if the policy is to be asked for a rival."""
        return (self.planned + 1) % RIVAL == 0 and self._is_asked

    def answered(self, seconds: float, plan: Plan | None, planning: float = 0.0) -> None:
        """Note that the policy was asked, which took ``planning`` seconds, and that its plan took so many seconds.
        ``plan``: None where the run was stopped on its way."""
        self._asked += 1
        self._cost, self._runs, self._is_new = planning, 0, False
        if self.kept is None if plan is None else plan.details.get("postponed") and self._asked < POSTPONED_RUNS:
            self._budget.ran(seconds)
            if plan is not None:
                self._best, self._least = plan, seconds
            return
        is_free = self.planned < self._free and self._best is None  # (nothing else could have run)
        self._budget.ran(seconds, is_trial=not is_free, planning=planning)
        self.planned += 1
        self._wait = 2 * self._wait if self.planned > self._free else self._wait
        if plan is None:
            return
        if self._best is not None and same_plan(plan, self._best):
            self._best, self._least = plan, min(self._least, seconds)  # (its shares may move now)
        elif self.planned <= self._free:
            if seconds < self._least or self.planned == 1:
                self._best, self._least = plan, seconds
        else:
            self.candidate, self._trial_least, self._trial_runs = plan, seconds, 1

    def repeated(self, seconds: float) -> None:
        """Note one more run of the plan."""
        self._budget.ran(seconds, is_trial=self.candidate is not None)
        if self.candidate is None:
            self._runs, self._least = self._runs + 1, min(self._least, seconds)
            return
        self._trial_least, self._trial_runs = min(self._trial_least, seconds), self._trial_runs + 1
        if self._trial_least > LOSING * self._least or self._trial_runs >= ENOUGH:
            if self._trial_least < self._least:
                self._best, self._least = self.candidate, self._trial_least
            self.candidate = None
