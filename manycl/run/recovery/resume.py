"""Resume of a run that was stopped on its way: with other devices, from what has ended. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import replace

from manycl.graph.graph import BufferKey, Graph, Piece
from manycl.machine import DeviceIndex
from manycl.model.estimates import Slowed
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.run.commands.transfers import Subject
from manycl.run.data.coherence import Directory
from manycl.run.engine.playback import Playback
from manycl.run.recovery.lineage import Lineage, Unrecoverable
from manycl.run.recovery.rescheduling import Reassignment
from manycl.run.stealing.player import MovingPlayer
from manycl.run.stealing.share_scheduler import ShareScheduler
from manycl.utilities.changed import changed

AS_FORESEEN: Mapping[DeviceIndex, float] = {}


def going_on(
    subject: Subject,
    playback: Playback,
    rest: Lineage,
    directory: Directory,
    away: Collection[DeviceIndex],
    lost: Collection[DeviceIndex],
    later: Set[int] = frozenset(),
    slower: Mapping[DeviceIndex, float] = AS_FORESEEN,
) -> tuple[Subject, MovingPlayer]:
    """Return the playback of what is left, without the devices that are ``away``, and without the steps left for
    ``later``. ``slower``: how many times as long as predicted devices take, where that has changed. The directory
    is as of ``rest``. Raises Unrecoverable."""
    lowered, problem = subject.lowered, replace(subject.problem, away=frozenset(away))
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
    by_way: dict[int, frozenset[int]] = {}  # by step that is done, its predecessors that run
    predecessors = list(graph.predecessors)
    for step, before in enumerate(graph.predecessors):
        further = frozenset[int]().union(*(by_way[p] for p in before if p in done))
        if step in done:
            by_way[step] = further.union(p for p in before if p not in done)
        elif not further.issubset(before):
            predecessors[step] = tuple(sorted(further.union(before)))
    found = tuple(predecessors)
    return graph if found == graph.predecessors else replace(graph, predecessors=found)


def _planned(subject: Subject, playback: Playback, away: Collection[DeviceIndex]) -> Plan:
    """Return a plan in place of a dynamic policy's further decisions: what it has decided, and each other node where it
    ends first."""
    problem, lowered = subject.problem, subject.lowered
    decided = {a.node: a for a in playback.issued}
    nodes = range(len(lowered.graph.nodes))
    where = Reassignment(problem, lowered)
    devices = {n: DeviceIndex(0) for n in nodes}
    launches = [n for n in nodes if n not in decided and problem.preferred(lowered.step(n).node)]
    found = where.chosen(launches, devices, [0.0 for _ in problem.machine.devices], away)
    assignments = []
    for n in nodes:
        device = found.get(n, problem.preferred(lowered.step(n).node)[0]) if n in launches else ON_HOST
        assignments.append(decided.get(n) or Assignment(n, device, 0, 0.0, 0.0))
    return Plan(tuple(assignments), "", tuple(d.name for d in problem.machine.devices), 0.0)


def named(keys: Collection[BufferKey], subject: Subject) -> str:
    """Return, for messages, the names of the buffers of keys, which may be those of pieces."""
    pieces, buffers = subject.lowered.graph.buffers, subject.problem.graph.buffers
    found = dict.fromkeys(b.whole if isinstance(b := pieces[key], Piece) else key for key in keys)
    return ", ".join(
        (buffers[key].name or f"buffer {key}") if key in buffers else "what kernels put together" for key in found
    )
