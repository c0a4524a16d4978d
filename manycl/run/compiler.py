"""A plan is compiled before time starts, to the script that the engine plays. Pure."""

from __future__ import annotations

from collections.abc import Callable

from manycl.errors import PolicyError
from manycl.plan.plan import Plan
from manycl.plan.problem import Problem
from manycl.run.coherence import Directory
from manycl.run.emit import Emitter
from manycl.run.replacement import TightEmitter
from manycl.run.script import Script
from manycl.run.steps import Lowered


def compiled(
    problem: Problem,
    plan: Plan,
    lowered: Lowered,
    directory: Directory,
    overwritten: Callable[[int, int], bool],
) -> Script:
    """The script of a plan whose steps are ``lowered``, from the directory's present state (open for the steps).
    ``overwritten(step, key)``: whether a step writes all of a piece although ``Launch.overwrites`` does not say so.
    Raises PolicyError for a plan that cannot be followed: for other devices, or whose order is not the graph's."""
    assert lowered.plan is not None or not lowered.steps
    steps = (lowered.plan or plan).assignments
    queues = _checked(problem, lowered, lowered.plan or plan)
    emitter = emitting(problem, lowered, directory, overwritten, queues, lowered.plan or plan)
    if emitter.far:
        emitter.give(steps)
        emitter.begin(steps)
    for step in steps:
        emitter.add(step)
    emitter.finish()
    return emitter.script(plan)


def emitting(
    problem: Problem,
    lowered: Lowered,
    directory: Directory,
    overwritten: Callable[[int, int], bool],
    queues: tuple[int, ...],
    plan: Plan | None,
) -> Emitter:
    """Who emits the steps of a plan (None: of a policy that decides while the run goes on)."""
    if lowered.room is None:
        return Emitter(problem, lowered, directory, overwritten, queues)
    return TightEmitter(problem, lowered, directory, overwritten, queues, plan)


def _checked(problem: Problem, lowered: Lowered, plan: Plan) -> tuple[int, ...]:
    """How many queues a plan uses of each device."""
    devices = len(problem.machine.devices)
    names = tuple(d.name for d in problem.machine.devices)
    if plan.devices != names:
        raise PolicyError(f"the plan is for devices {', '.join(plan.devices)}, not for {', '.join(names)}")
    if problem.fixed:
        raise PolicyError("the engine cannot continue a partial schedule yet (problem.fixed)")
    used = [0] * devices
    seen = bytearray(len(lowered.graph.nodes))
    for a in plan.assignments:
        if not (0 <= a.node < len(seen) and -1 <= a.device < devices and a.queue >= 0) or seen[a.node]:
            raise PolicyError(f"the plan is not valid: {a}")
        seen[a.node] = 1
        if a.device >= 0 and a.queue >= used[a.device]:
            used[a.device] = a.queue + 1
    if not all(seen):
        raise PolicyError(f"policy {plan.policy} planned {sum(seen)} of {len(seen)} nodes")
    return tuple(used)
