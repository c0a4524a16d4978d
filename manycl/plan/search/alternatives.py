"""Alternatives of groups: a launch that has a version of several kernels runs as one unit, or in several smaller ones.

"Static partitioning and scheduling of kernels from profiles" (REPARA), Section 2.1, Eq. 3: a large unit and the smaller
ones in its place are incompatible, and a plan has the one or the others. As smaller ones, each kernel is a node of the
graph: on any device, and divided or not. So every policy that plans chooses between them, by the plans that it makes of
the graphs of all combinations or, where these are many, of launches that are alike together, one kind after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, combinations, islice

from manycl.errors import PolicyError
from manycl.graph.graph import Graph, Launch, version_contents
from manycl.graph.versions.units import Units, in_units, version_in_units
from manycl.plan.options import Options
from manycl.plan.plan import Plan
from manycl.plan.problem import Problem
from manycl.plan.search.objective import OPTIONS, energy, objective
from manycl.plan.split import AnalysedSplits
from manycl.plan.tuning import PLANNING

_OWN = Options("", *OPTIONS)


def following(problem: Problem, plan: Plan | None) -> Problem:
    """Return the problem whose nodes are those of a plan."""
    return problem if plan is None or not plan.in_units or problem.graph.origins else variant(problem, plan.in_units)


def variant(problem: Problem, units: Units) -> Problem:
    """Return the problem with some launches in smaller units. Raises PolicyError where nothing is estimated of them."""
    other, foresee = of_graph(problem, in_units(problem.graph, units)), problem.foresee
    return other if foresee is None else replace(other, foresee=lambda plan: foresee(plan, other))


def of_graph(problem: Problem, graph: Graph) -> Problem:
    """Return the problem of another graph, whose plans are not foreseen. Raises PolicyError where nothing is estimated
    of it."""
    estimates, splits = problem.estimates.for_graph(graph), problem.splits
    if estimates is None:
        raise PolicyError("nothing is known of the kernels of a version, which are to run as nodes of their own")
    guesses, devices = estimates.uncounted(), problem.machine.indices
    seconds = lambda node: min([guesses.launch(node, d) for d in devices], default=0.0)  # noqa: E731
    found = splits.for_graph(graph, seconds) if isinstance(splits, AnalysedSplits) else {}
    return replace(problem, graph=graph, estimates=estimates, splits=found, foresee=None)


def with_units(problem: Problem, ask: Callable[[Problem], Plan]) -> Plan:
    """Return the best of the plans that ``ask`` makes of the problem, and of it with launches in smaller units. Raises
    PolicyError where there is none."""
    is_given = problem.fixed or problem.graph.origins or len(problem.machine.devices) < 2
    tried = () if is_given else tuple(_tried(problem))
    if not tried or problem.estimates.for_graph(problem.graph) is None:
        return ask(problem)
    plans = list[tuple[tuple[float, float], int, Plan]]()
    failures = list[PolicyError]()
    for units in ((), *tried):
        try:
            of = variant(problem, units) if units else problem
            plan = replace(ask(of), in_units=units)
        except PolicyError as error:
            failures.append(error)
            continue
        if not plans or _is_across(of, plan):
            plans.append((_cost(of, plan), len(plans), plan))
    if not plans:
        raise failures[0]
    return min(plans)[-1]


def _tried(problem: Problem) -> Iterator[Units]:
    """Yield the launches that are tried in smaller units: all combinations, where these are few, of launches or of
    kinds of them; else one kind after another."""
    nodes = [n for n in range(len(problem.graph)) if version_in_units(problem.graph, n)]
    few = 1 + PLANNING.foreseen
    kinds = dict[object, list[tuple[int, int]]]()
    for n in nodes:
        task = problem.graph.nodes[n]
        assert isinstance(task, Launch)
        kind = n if 1 << len(nodes) <= few else (version_contents(task.versions), task.device)
        kinds.setdefault(kind, []).append((n, version_in_units(problem.graph, n)))
    for count in range(1, 1 + (len(kinds) if 1 << len(kinds) <= few else min(1, len(kinds)))):
        for groups in islice(combinations(kinds.values(), count), PLANNING.foreseen):
            yield tuple(sorted(chain.from_iterable(groups)))


def _is_across(problem: Problem, plan: Plan) -> bool:
    """Return whether the units of some launch are on several devices: on one, it could run as a whole in that
    version."""
    places = {(problem.graph.origins[a.node], a.device) for a in plan.assignments}
    return any(sum(node == n for n, _ in places) > 1 for node, _ in plan.in_units)


def _cost(problem: Problem, plan: Plan) -> tuple[float, float]:
    """Return the cost of a plan by the problem's objective, and its seconds: as the engine would run it, where it can
    foresee that. Predictions are not exact to a handover: each launch in smaller units has to gain one."""
    wanted = objective(problem, _OWN.read({k: v for k, v in problem.options.items() if k in _OWN.names}))
    found = plan if plan.foreseen or problem.foresee is None else problem.foresee(plan)
    seconds = found.makespan + problem.handover * len(plan.in_units)
    return wanted.cost(seconds, energy(problem, found)), seconds
