"""What a lowered plan has to do with where devices do not hold all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from manycl.graph.graph import Buffer, HostTask
from manycl.machine import HOST, DeviceIndex, Machine
from manycl.plan.problem import Problem
from manycl.run.limits import stores, too_large
from manycl.run.locality import ordered
from manycl.run.steps import Lowered, Room


def with_room(problem: Problem, lowered: Lowered, limits: Mapping[DeviceIndex, int]) -> Lowered:
    """The steps of a plan with the limits that they have to keep: those given, and those of devices that do not hold
    all buffers that the plan's merging needs. Raises RunError for a step that does not fit alone."""
    if lowered.temporaries:
        limits = {**limits, **_too_many(problem, lowered)}
    if not limits:
        return lowered
    room = lowered.room or Room({}, {}, (), {b.key: b.nbytes for b in _buffers(problem, lowered)})
    room = replace(room, limits=limits)
    if lowered.plan is None:
        return replace(lowered, room=room)
    _check(lowered, room, problem.machine)
    plan, room = ordered(problem, lowered, room)
    return replace(lowered, plan=plan, room=room)


def _buffers(problem: Problem, lowered: Lowered) -> Iterator[Buffer]:
    yield from problem.graph.buffers.values()
    yield from lowered.temporaries


def _too_many(problem: Problem, lowered: Lowered) -> dict[DeviceIndex, int]:
    """The devices that do not hold all buffers of the run's own beside the others."""
    assert lowered.plan is not None, "only plans have buffers of their own"
    sizes = {b.key: b.nbytes for b in _buffers(problem, lowered)}
    nodes = lowered.graph.nodes
    found: dict[DeviceIndex, int] = {}
    for index, device in problem.machine.numbered():
        tasks = (nodes[a.node] for a in lowered.plan.assignments if a.device == index)
        used = {key for t in tasks if not isinstance(t, HostTask) for key in stores(t) if key in sizes}
        if device.memory != HOST and sum(sizes[key] for key in used) > device.global_memory:
            found[index] = device.global_memory
    return found


def _check(lowered: Lowered, room: Room, machine: Machine) -> None:
    """Every step fits alone: then all of them do, one after another."""
    assert lowered.plan is not None
    for a in lowered.plan.assignments:
        task = lowered.graph.nodes[a.node]
        if a.device in room.limits and not isinstance(task, HostTask):
            sizes = [room.sizes[key] for key in stores(task)]
            device = machine.devices[a.device]
            if sum(sizes) > room.limits[a.device] or max(sizes, default=0) > device.max_allocation:
                raise too_large(task, lowered.step(a.node).node, sum(sizes), device)
