"""Resume of a run that was stopped on its way: with other devices, from what has ended. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import replace

from manycl.graph.graph import BufferKey, Graph, Piece
from manycl.machine import DeviceIndex
from manycl.model.estimates import Slowed
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.rescheduling import Rescheduler
from manycl.run.commands.transfers import Subject
from manycl.run.engine.playback import Playback
from manycl.run.recovery.lineage import Lineage, Unrecoverable
from manycl.run.recovery.replanning import without
from manycl.run.stealing.player import MovingPlayer
from manycl.run.stealing.share_scheduler import ShareScheduler
from manycl.utilities.changed import changed


def going_on(
    subject: Subject,
    playback: Playback,
    rest: Lineage,
    away: frozenset[DeviceIndex],
    lost: Collection[DeviceIndex],
    slower: Mapping[DeviceIndex, float],
    later: Set[int] = frozenset(),
) -> tuple[Subject, MovingPlayer]:
    """Return the playback of what is left, without the devices that are ``away``, and without the steps left for
    ``later``. ``slower``: how many times as long as predicted devices take, where that has changed. (The directory is
    as of ``rest``.) Raises Unrecoverable."""
    directory = playback.directory
    lowered, problem = subject.lowered, replace(subject.problem, away=away)
    lowered = changed(lowered, graph=in_order(lowered.graph, rest.done))
    if lowered.plan is None:
        lowered = changed(lowered, plan=_planned(subject, playback, away))
    assert lowered.plan is not None
    subject = subject._replace(lowered=lowered, problem=problem, valid=directory.valid)
    known = replace(problem, estimates=Slowed(problem.estimates, slower)) if slower else problem
    following = ShareScheduler(known, lowered, directory.valid, rest.done | later)
    for device in (*sorted(lost), *sorted({*away} - {*lost})):  # (devices that leave may run steps of lost ones)
        following.leave(device, is_stopped=True)
    if slower:
        following.even_out()
    if stuck := following.needs(lost):
        task = lowered.graph.nodes[stuck[0]]
        raise Unrecoverable(task.writes, f"no other device can run {task.name}")
    following.queues = tuple(0 if d in lost else n for d, n in enumerate(following.queues))
    followed = playback.plan(playback.script.plan.policy)
    nowhere = frozenset(key for key, mask in rest.valid.items() if not mask)
    moving = MovingPlayer(subject, followed, following, directory, rest.done, playback.ran, nowhere, later)
    moving.full = playback.full
    return subject, moving


def in_order(graph: Graph, done: Set[int]) -> Graph:
    """Return a graph in which steps that are ``done`` delay no step, though their predecessors may run again: a step
    depends directly on what it depended on only by way of done steps, as graphs have no more edges than needed."""
    direct = without(graph.predecessors, done)
    found = tuple(
        before if step in done or direct[step].issubset(before) else tuple(sorted(direct[step].union(before)))
        for step, before in enumerate(graph.predecessors)
    )
    return graph if found == graph.predecessors else replace(graph, predecessors=found)


def _planned(subject: Subject, playback: Playback, away: Collection[DeviceIndex]) -> Plan:
    """Return a plan in place of a dynamic policy's further decisions: what it has decided, and each other node where it
    ends first."""
    problem, lowered = subject.problem, subject.lowered
    decided = {a.node: a for a in playback.issued}
    left = [n for n in range(len(lowered.graph.nodes)) if n not in decided]
    was = {n: preferred[0] for n in left if (preferred := problem.preferred(lowered.step(n).node))}
    nothing = [0.0] * len(problem.machine.devices)
    was |= Rescheduler(problem, lowered.extent, lowered.graph).chosen(was, was, nothing, away)
    decided |= {n: Assignment(n, was.get(n, ON_HOST), 0, 0.0, 0.0) for n in left}
    return Plan(tuple(decided[n] for n in sorted(decided)), "", tuple(d.name for d in problem.machine.devices), 0.0)


def named(keys: Collection[BufferKey], subject: Subject) -> str:
    """Return, for messages, the names of the buffers of keys, which may be those of pieces."""
    pieces, buffers = subject.lowered.graph.buffers, subject.problem.graph.buffers
    found = dict.fromkeys(b.whole if isinstance(b := pieces[key], Piece) else key for key in keys)
    return ", ".join(
        (buffers[key].name or f"buffer {key}") if key in buffers else "what kernels put together" for key in found
    )
