"""``portfolio``: the best of several list schedulers, then improved by local search. HEFT with insertion on three
ranks, CPOP, PEFT and every device alone; see ``plan/search/local_search.py`` for the search."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from manycl.machine import DeviceIndex
from manycl.plan.options import Options, whole
from manycl.plan.plan import Plan
from manycl.plan.policies.classical import cpop, peft
from manycl.plan.policy import register
from manycl.plan.problem import Problem
from manycl.plan.search.insertion import CONTENTION, Setting, ready_order, setting
from manycl.plan.search.local_search import Search, layout
from manycl.plan.search.rank import mean_seconds
from manycl.plan.timeline.delays import upward_ranks
from manycl.plan.timeline.timeline import Schedule
from manycl.plan.tuning import PLANNING

_EFFORT, _SEED = whole("effort", PLANNING.effort), whole("seed", 0)


def heft(given: Setting, ranks: list[float]) -> Schedule:
    """Return the schedule of HEFT's processor selection with insertion (Topcuoglu, Hariri and Wu 2002, Section 5.1)."""
    board = given.board()
    for node in ready_order(given, ranks):
        board.put(node, given.view.places[node])
    return board.schedule()


def members(given: Setting) -> Iterator[tuple[str, Callable[[], Schedule]]]:
    """Yield the portfolio: names, and functions that make the schedules."""
    yield "heft", lambda: heft(given, upward_ranks(given.view))
    yield "peft", lambda: peft.schedule(given)
    yield "cpop", lambda: cpop.schedule(given)
    yield "longest first", lambda: heft(given, mean_seconds(given.view.places, given.view.seconds))
    for device, described in given.problem.machine.numbered():
        yield described.name, lambda device=device: _alone(given, device)  # type: ignore[misc]


def _alone(given: Setting, device: DeviceIndex) -> Schedule:
    """Return the schedule with everything that may on one device, and every other node where it ends first."""
    where = [device if device in places else None for places in given.view.places]
    order = ready_order(given, upward_ranks(given.view))
    return Search(given, 0, 0).board(order, where).schedule()


def schedule(given: Setting, effort: int = PLANNING.effort, seed: int = 0) -> tuple[Schedule, dict[str, object]]:
    """Return the best schedule found, and details: the best member, its makespan, the bound, the nodes placed."""
    made = sorted(((name, make()) for name, make in members(given)), key=lambda pair: pair[1].makespan)
    name, found = made[0]
    details: dict[str, object] = {"member": name, "member_makespan": found.makespan}
    bound = given.bound()
    placed = 0
    for i, (_, start) in enumerate(made[: PLANNING.starts] if found.assignments else ()):
        search = Search(given, effort // PLANNING.starts, seed * PLANNING.starts + i)
        best = search.improve(layout(start), bound)
        placed += search.placed
        if best.makespan < found.makespan:
            found = min(found, search.board(best.order, best.where).schedule(), key=lambda s: s.makespan)
    return found, {**details, "bound": bound, "placed": placed}


@register("portfolio")
class Portfolio:
    """The policy of several list schedulers and local search; options ``contention``, ``effort``, ``seed``."""

    options = Options("portfolio", CONTENTION, _EFFORT, _SEED)

    def plan(self, problem: Problem) -> Plan:
        values = self.options.read(problem.options)
        given = setting(problem, "portfolio", values[CONTENTION])
        found, details = schedule(given, values[_EFFORT], values[_SEED])
        return given.plan("portfolio", found, **details)
