"""The compiler from a plan to the command graph that the engine plays; it runs before time starts. Pure."""

from __future__ import annotations

from manycl.errors import PolicyError
from manycl.plan.plan import ON_HOST, Plan
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.commands.emit import Emitter
from manycl.run.commands.transfers import Subject
from manycl.run.tiling.replacement import TightEmitter


def compiled(subject: Subject, plan: Plan) -> CommandGraph:
    """Return the command graph of a plan. Raises PolicyError for a plan that cannot be followed: for other devices, or
    in an order that is not the graph's."""
    lowered = subject.lowered
    assert lowered.plan is not None or not lowered.steps
    steps = lowered.plan or plan
    emitter = emitting(subject, _checked(subject, steps), steps)
    if emitter.far:
        for a in steps.assignments:
            emitter.give((a.device, a.queue), (a.node,))
        emitter.begin()
    for step in steps.assignments:
        emitter.add(step)
    emitter.finish()
    return emitter.command_graph(plan)


def emitting(subject: Subject, queues: tuple[int, ...], plan: Plan | None) -> Emitter:
    """Return the emitter of a plan's steps (None: of a policy that decides at run time)."""
    return Emitter(subject, queues) if subject.lowered.room is None else TightEmitter(subject, queues, plan)


def _checked(subject: Subject, plan: Plan) -> tuple[int, ...]:
    """Return how many queues of each device a plan uses. Raises PolicyError for a plan that is not valid."""
    problem = subject.problem
    devices = len(problem.machine.devices)
    problem.check(plan)
    if problem.fixed:
        raise PolicyError("the engine cannot continue a partial schedule yet (problem.fixed)")
    used = [0] * devices
    seen = bytearray(len(subject.lowered.graph.nodes))
    for a in plan.assignments:
        if not (0 <= a.node < len(seen) and ON_HOST <= a.device < devices and a.queue >= 0) or seen[a.node]:
            raise PolicyError(f"the plan is not valid: {a}")
        seen[a.node] = 1
        if a.device != ON_HOST and a.queue >= used[a.device]:
            used[a.device] = a.queue + 1
    if not all(seen):
        raise PolicyError(f"policy {plan.policy} planned {sum(seen)} of {len(seen)} nodes")
    return tuple(used)
