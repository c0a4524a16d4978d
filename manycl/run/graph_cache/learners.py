"""Learning policies: the same object is used again, and gets the times of each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from manycl import flags
from manycl.plan import policy as plan_policy
from manycl.plan.options import check_options
from manycl.plan.plan import Plan
from manycl.plan.policy import LearningPolicy, Policy, Timed, find, learns
from manycl.run.graph_cache.stalls import waiting
from manycl.run.lowering.steps import RANGE
from manycl.utilities.kept import Kept

if TYPE_CHECKING:
    from manycl.run.engine.result import Result

_plain: Kept[str, Policy] = Kept(256)
"""Policies that do not learn, by FILE.py:NAME, so that their files are not run again to find that out."""


class Learners:
    """The learning policies that were asked for by name, each made once."""

    def __init__(self) -> None:
        self._known: dict[str, LearningPolicy] = {}
        self._others: dict[str, Callable[[], Policy] | None] = {}  # by name, the maker of a policy that does not learn

    def find(
        self, policy: str | Policy | Plan | None, options: Mapping[str, str] | None = None
    ) -> str | Policy | Plan | None:
        """Return a learning policy as an object, any other as it was given (None: MANYCL_POLICY). Raises PolicyError,
        also for options that the policy does not take."""
        found: Policy | Plan
        if policy is not None and not isinstance(policy, str):
            found = policy
        else:
            name = policy or flags.policy()
            if not options and (made := self._others.get(name)) is not None and made is plan_policy.registry.get(name):
                return policy
            found = self._known.get(name) or _plain.get(name) or find(name)
            if learns(found):
                self._known[name] = found
            elif ".py:" in name:
                found = _plain.keep(name, found)
            else:
                self._others[name] = plan_policy.registry.get(name)
        check_options(found, options or {})
        return found if learns(found) else policy


def told(policy: LearningPolicy, result: Result) -> Result:
    """Pass the times of a run to the policy that planned it, and return the run under the plan's name."""
    from manycl.run.engine.asking_policies import asked  # that module imports planning

    waits = _waits(result) if result.machine.memories > 1 else None
    asked(policy, "learning", lambda: policy.observe(result.graph, _measured(result), waits), lambda: None)
    return result if result.plan is None else replace(result, policy=result.plan.policy)


def _measured(result: Result) -> Iterator[Timed]:
    """Yield the times of nodes by device: of their shares as planned, also where others have run a part of these."""
    steps = [m for m in result.measured() if m.step.role in ("", RANGE)]
    ran, planned = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    if result.plan is not None and result.playback is not None and any(result.playback.stolen.values()):
        for m in steps:
            ran[m.step.node, m.device] += m.step.groups
        for a in result.plan.assignments:
            planned[a.node, a.device] += a.groups
    for m in steps:
        of = m.step.node, m.device
        if not ran[of]:
            yield *of, m.seconds
        elif planned[of]:
            yield *of, m.seconds * planned[of] / ran[of]


def _waits(result: Result) -> Iterator[Timed]:
    yield from waiting(result.trace, result.machine)  # the trace is made only when needed
