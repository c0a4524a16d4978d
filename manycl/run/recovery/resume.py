"""Resume of a run that was stopped on its way: with other devices, from what has ended. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from manycl.graph.graph import BufferKey, Graph, Piece
from manycl.machine import HOST, DeviceIndex
from manycl.model.estimates import Slowed
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.run.commands.backend import Command, Copy, Download, Evict, HostCall, Upload
from manycl.run.commands.transfers import Subject
from manycl.run.data.coherence import Directory
from manycl.run.engine.playback import Playback
from manycl.run.recovery.lineage import HeldVersions, Lineage, Overwrites, Unrecoverable, rest_of
from manycl.run.recovery.rescheduling import Reassignment
from manycl.run.stealing.player import MovingPlayer
from manycl.run.stealing.share_scheduler import ShareScheduler
from manycl.utilities.changed import changed

AS_FORESEEN: Mapping[DeviceIndex, float] = {}


class Stopped(NamedTuple):
    """The state of commands when a run was stopped. ``ended``: the tokens of commands that have ended without error,
    for lost devices as far as that is known (None: all that were given); ``begun``: of those that may have begun;
    ``unsound``: of those whose results do not count; ``lost``: the devices that are lost with what their memories
    held."""

    ended: Set[int] | None = None
    begun: Set[int] = frozenset()
    unsound: Set[int] = frozenset()
    lost: Collection[DeviceIndex] = ()


def left_of(
    subject: Subject, playback: Playback, stopped: Stopped, repeatable: Callable[[int], bool], overwrites: Overwrites
) -> Lineage:
    """Return what is left of a run. The other arguments are those of HeldVersions.rest. Raises Unrecoverable."""
    ended, begun, unsound, lost = stopped
    machine = subject.problem.machine
    memories = [d.memory for d in machine.devices]

    def memory(device: int) -> int:
        return HOST if device == ON_HOST else memories[device]

    def is_complete(command: Command, is_known: bool) -> bool:
        if ended is None or isinstance(command, Evict):
            return True
        if command.token in unsound:
            return False
        is_away = not isinstance(command, HostCall) and command.device in lost
        return command.token in ended or (is_away and is_known)

    gone = {memories[d] for d in lost} - {HOST}
    gone = {m for m in gone if all(i in lost for i, d in machine.numbered() if d.memory == m)}
    history = HeldVersions(subject.lowered, memory, playback.found, playback.done)
    given = playback.given
    if ended is not None:
        begun = begun | _beginning([command for command, _ in given], begun)
        given = [g for g in given if g[1] or isinstance(g[0], Evict) or g[0].token in begun]
    commands = ((command, is_complete(command, is_known)) for command, is_known in given)
    return rest_of(history, commands, gone, repeatable, overwrites)


def _beginning(given: Sequence[Command], begun: Set[int]) -> set[int]:
    """Return the tokens of transfers that may be a part of one that has begun, as they come right before it."""
    found: set[int] = set()
    behind: tuple[object, ...] = ()  # the kind of the command that comes next, if it may have begun
    for command in reversed(given):
        mine: tuple[object, ...] = ()
        if isinstance(command, (Upload, Download, Copy)):
            mine = type(command), command.device
            if command.token in begun or mine == behind:
                found.add(command.token)
            else:
                mine = ()
        behind = mine
    return found


def note(rest: Lineage, directory: Directory) -> None:
    """Record in the directory where the pieces of a stopped run are."""
    for key, mask in rest.valid.items():
        if mask:
            directory.valid[key] = mask
        else:
            directory.valid.pop(key, None)


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
    ``later``. ``slower``: how many times as long as predicted devices take, where that has changed. (``note`` was
    called.) Raises Unrecoverable."""
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
