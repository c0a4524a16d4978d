"""Alternatives of groups: a launch that has a version of several kernels runs as one unit, or in several smaller ones.

"Static partitioning and scheduling of kernels from profiles" (REPARA), Section 2.1, Eq. 3: a large unit and the smaller
ones in its place are incompatible, and a plan has the one or the others. As smaller ones, each kernel is a node of the
graph: on any device, and divided or not. So every policy that plans chooses between them, by the plans that it makes of
the graphs of all combinations or, where these are many, of launches that are alike together, one kind after another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product

from manycl.errors import PolicyError
from manycl.graph.graph import Launch, version_contents
from manycl.graph.versions.units import Units, in_units, versions_in_units
from manycl.plan.options import Options
from manycl.plan.plan import Plan
from manycl.plan.problem import Problem
from manycl.plan.search.objective import OPTIONS, energy, objective
from manycl.plan.split import AnalysedSplits
from manycl.plan.tuning import PLANNING

_OWN = Options("", *OPTIONS)


def following(problem: Problem, plan: Plan | None) -> Problem:
    """Return the problem whose nodes are those of a plan."""
    is_other = plan is not None and plan.in_units and not problem.graph.origins
    return variant(problem, plan.in_units) if plan is not None and is_other else problem


def variant(problem: Problem, units: Units) -> Problem:
    """Return the problem with some launches in smaller units. Raises PolicyError where nothing is estimated of them."""
    graph = in_units(problem.graph, units)
    estimates, splits = problem.estimates.for_graph(graph), problem.splits
    if estimates is None:
        raise PolicyError("nothing is known of the kernels of a version, which are to run as nodes of their own")
    guesses, devices = estimates.uncounted(), problem.machine.indices
    seconds = lambda node: min([guesses.launch(node, d) for d in devices], default=0.0)  # noqa: E731
    found = splits.for_graph(graph, seconds) if isinstance(splits, AnalysedSplits) else {}
    other = replace(problem, graph=graph, estimates=estimates, splits=found, foresee=None)
    foresee = problem.foresee
    return other if foresee is None else replace(other, foresee=partial(_foreseen, foresee, other))


def _foreseen(foresee: Callable[..., Plan], problem: Problem, plan: Plan) -> Plan:
    return foresee(plan, problem)


def with_units(problem: Problem, ask: Callable[[Problem], Plan]) -> Plan:
    """Return the best of the plans that ``ask`` makes of the problem, and of it with launches in smaller units. Raises
    PolicyError where there is none."""
    choices = {} if problem.fixed or problem.graph.origins or len(problem.machine.devices) < 2 else _choices(problem)
    if not choices:
        return ask(problem)
    best: tuple[tuple[float, float], Plan] | None = None
    failure = PolicyError("there is nothing to plan with")
    taken: dict[int, int] = {}
    for tried in _tried(problem, choices, taken):
        units = tuple(sorted(tried.items()))
        try:
            of = variant(problem, units) if units else problem
            plan = replace(ask(of), in_units=units)
        except PolicyError as error:
            failure = error if best is None and not units else failure
            continue
        cost = _cost(of, plan)
        if best is None or (cost < best[0] and _is_across(of, plan)):
            best = cost, plan
            taken.update(tried)
    if best is None:
        raise failure
    return best[1]


def _choices(problem: Problem) -> dict[int, list[int]]:
    """Return the launches that may run in smaller units, and the versions for that, in a problem whose estimates know
    other graphs."""
    nodes = range(len(problem.graph))
    found = {node: versions for node in nodes if (versions := versions_in_units(problem.graph, node))}
    return found if found and problem.estimates.for_graph(problem.graph) is not None else {}


def _tried(problem: Problem, choices: dict[int, list[int]], taken: dict[int, int]) -> Iterator[dict[int, int]]:
    """Yield the combinations that are tried: versions by launch, none at first. ``taken``: that of the best plan so
    far."""
    yield {}
    if math.prod(1 + len(versions) for versions in choices.values()) <= 1 + PLANNING.foreseen:
        for found in product(*([(node, v) for v in (None, *versions)] for node, versions in choices.items())):
            if units := {node: v for node, v in found if v is not None}:
                yield units
        return
    alike: dict[object, list[int]] = {}
    for node in choices:
        task = problem.graph.nodes[node]
        assert isinstance(task, Launch)
        alike.setdefault((version_contents(task.versions), task.device), []).append(node)
    kinds = [(nodes, v) for nodes in alike.values() for v in choices[nodes[0]]]
    for nodes, v in kinds[: PLANNING.foreseen]:
        yield taken | dict.fromkeys(nodes, v)


def _is_across(problem: Problem, plan: Plan) -> bool:
    """Return whether the units of some launch are on several devices: on one, it could run as a whole in that
    version."""
    places: dict[int, set[int]] = {node: set() for node, _ in plan.in_units}
    for a in plan.assignments:
        places.get(problem.graph.origins[a.node], set()).add(a.device)
    return any(len(devices) > 1 for devices in places.values())


def _cost(problem: Problem, plan: Plan) -> tuple[float, float]:
    """Return the cost of a plan by the problem's objective, and its seconds: as the engine would run it, where it can
    foresee that. Predictions are not exact to a handover: each launch in smaller units has to gain one."""
    wanted = objective(problem, _OWN.read({k: v for k, v in problem.options.items() if k in _OWN.names}))
    found = plan if plan.foreseen or problem.foresee is None else problem.foresee(plan)
    seconds = found.makespan + problem.handover * len(plan.in_units)
    return wanted.cost(seconds, energy(problem, found)), seconds
