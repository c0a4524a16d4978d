"""What the static policies and the ranks ask of a problem again and again, looked up once, in plain lists."""

from __future__ import annotations

from dataclasses import dataclass

from manycl.graph.graph import HostTask
from manycl.plan.problem import Problem


@dataclass(frozen=True, slots=True)
class Costs:
    """``allowed[n]``: devices that may run node n (none: it is a host task). ``seconds[n][d]``: its time on
    device d. ``moves``: the machine has more than one memory, so data must be moved."""

    allowed: list[tuple[int, ...]]
    seconds: list[list[float]]
    moves: bool


def costs(problem: Problem) -> Costs:
    devices = range(len(problem.machine.devices))
    launch = problem.estimates.launch
    by_preference: dict[str, tuple[int, ...]] = {}
    allowed: list[tuple[int, ...]] = []
    seconds: list[list[float]] = []
    nothing = [0.0 for _ in devices]
    for index, node in enumerate(problem.graph.nodes):
        if isinstance(node, HostTask):
            allowed.append(())
            seconds.append(nothing)
            continue
        places = by_preference.get(node.device)
        if places is None:
            places = by_preference[node.device] = problem.allowed(index)
        allowed.append(places)
        seconds.append([launch(index, d) for d in devices])
    return Costs(allowed, seconds, problem.machine.memories > 1)
