"""Replanning of the rest of a run that was stopped: what goes on, what is planned anew, and whether that pays. Pure.

A run that is stopped on its way has nodes that have run, nodes of which a part has run, and nodes that have not begun.
The second kind is run to its end as it was planned, as far as its devices are there, and by other devices where not.
The third is a graph of its own, which the run's policy plans for the devices that there are by then. All is counted in
predicted seconds of work, so that no clock decides anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from math import inf

from manycl.graph.graph import BufferArg, BufferKey, Graph, HostTask, Piece
from manycl.machine import DeviceIndex
from manycl.model.estimates import Slowed
from manycl.plan.movable import SHORTEST
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.rescheduling import Rescheduler
from manycl.plan.tuning import PLANNING
from manycl.run.commands.backend import HostCall, Run, nodes_of
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.commands.transfers import Subject
from manycl.run.engine.playback import Playback
from manycl.run.lowering.steps import Lowered
from manycl.run.recovery.history import CommandHistory
from manycl.run.recovery.lineage import Lineage, Unrecoverable
from manycl.run.stealing.player import MovingPlayer
from manycl.run.stealing.share_scheduler import ShareScheduler
from manycl.utilities.changed import changed

UNCHANGED: Mapping[DeviceIndex, float] = {}


def not_begun(lowered: Lowered, begun: Iterable[int]) -> tuple[int, ...]:
    """Return the nodes of which no step has begun, and on which nothing depends that has to run before them. ``begun``:
    steps that have run, or may have begun. Nodes that share buffers of the run's own begin together."""
    of_node: dict[int, list[int]] = {}
    sharing: dict[BufferKey, set[int]] = {key: set() for key in lowered.own}
    for token, task in enumerate(lowered.graph.nodes):
        of_node.setdefault(lowered.step(token).node, []).append(token)
        for key in sharing.keys() & {*task.reads, *task.writes}:
            sharing[key].add(lowered.step(token).node)
    pending = list(dict.fromkeys(lowered.step(token).node for token in begun))
    found = set(pending)
    while pending:
        for token in of_node[pending.pop()]:
            task = lowered.graph.nodes[token]
            before = {lowered.step(p).node for p in lowered.graph.predecessors[token]}
            before = before.union(*[sharing.get(key, ()) for key in (*task.reads, *task.writes)]) - found
            found |= before
            pending += before
    return tuple(n for n in sorted(of_node) if n not in found)


def without(predecessors: Sequence[Sequence[int]], skipped: Set[int]) -> list[frozenset[int]]:
    """Return, by node, the others that it comes after directly, or only by way of nodes that are ``skipped``."""
    found: list[frozenset[int]] = []
    for before in predecessors:
        by_way = (found[p] for p in before if p in skipped)
        found.append(frozenset(p for p in before if p not in skipped).union(*by_way))
    return found


def graph_of(graph: Graph, nodes: Sequence[int]) -> Graph:
    """Return some nodes of a graph as a graph of their own, in their order, on the same buffers. Dependences by way of
    other nodes are kept."""
    number = {n: i for i, n in enumerate(nodes)}
    before = without(graph.predecessors, set(range(len(graph))).difference(nodes))
    tasks = tuple(graph.nodes[n] for n in nodes)
    keys = {key for task in tasks for key in (*task.reads, *task.writes)}
    keys.update(a.key for task in tasks for a in task.args if isinstance(a, BufferArg))
    components = (tuple(number[n] for n in c if n in number) for c in graph.components)
    return Graph(
        nodes=tasks,
        buffers={key: buffer for key, buffer in graph.buffers.items() if key in keys},
        predecessors=tuple(tuple(sorted(number[p] for p in before[n])) for n in nodes),
        components=tuple(c for c in components if c),
        name=graph.name,
        parts=graph.parts & keys,
        origins=tuple(nodes),
        own=graph.own & keys,
    )


class Outlook:
    """Predictions of the rest of a run on a machine without the devices ``away``. ``slower``: how many times as long as
    predicted devices take, where that has changed."""

    def __init__(
        self, subject: Subject, away: Collection[DeviceIndex], slower: Mapping[DeviceIndex, float] = UNCHANGED
    ) -> None:
        problem, self._lowered, self._away, self._slower = subject.problem, subject.lowered, away, slower
        self._problem = replace(problem, estimates=Slowed(problem.estimates, slower)) if slower else problem
        self._there = [d for d in self._problem.machine.indices if d not in away]
        self._where = Rescheduler(self._problem, self._lowered.extent, self._lowered.graph)

    def gain(self, playback: Playback) -> float:
        """Return what is gained, for a fixed plan and devices that come or become slower, by stopping the run, waiting
        for what is in flight and planning the rest anew, if all devices then share it, or by moving its steps as they
        are, where devices are slower: a part of the time until the plan's end; 0: nothing."""
        count, seconds = len(self._problem.machine.devices), self._where.seconds
        given, left = [0.0] * count, dict[int, Run | HostCall]()
        for command, is_complete in playback.given:
            if isinstance(command, Run) and not is_complete:
                given[command.device] += sum(seconds(step, command.device) for step in nodes_of(command))
        for command in playback.to_come:
            if isinstance(command, (Run, HostCall)):
                left.update((step, command) for step in nodes_of(command))
        alone = {step: (c.device, seconds(step, c.device)) for step, c in left.items() if isinstance(c, Run)}
        ends, total = list(given), sum(t for _, t in alone.values())
        for device, t in alone.values():
            ends[device] += t
        if total <= SHORTEST:
            return 0.0
        nodes = set(not_begun(self._lowered, set(range(len(self._lowered.graph))).difference(left)))
        mine = {step for step in alone if self._lowered.step(step).node in nodes}
        was, busy = {step: d for step, (d, _) in alone.items()}, [max(given)] * count
        # commands in flight are waited for: no device is given anything before
        until = self._where.until([step for step in was if step not in mine], was, busy, self._away)
        anew = until + self.planning(nodes) + self.shared(mine) if self.can_all_run(nodes) else inf
        moved = self._where.until(was, was, busy, self._away) if self._slower else inf
        return max(0.0, 1.0 - min(anew, moved) / max(ends))

    def is_worth(self, nodes: Collection[int]) -> bool:
        """Return whether nodes that have not begun take so long that a plan of their own pays, in a stopped run."""
        steps = [s for s in range(len(self._lowered.graph)) if self._lowered.step(s).node in nodes]
        return self.can_all_run(nodes) and self.shared(steps) > max(SHORTEST, 2.0 * self.planning(nodes))

    def planning(self, nodes: Collection[int]) -> float:
        """Return the seconds that planning takes."""
        return PLANNING.planned_cell * len(nodes) * len(self._there)

    def shared(self, steps: Iterable[int]) -> float:
        """Return the seconds of steps that all devices share."""
        return sum(self._shared(step) for step in steps)

    def _shared(self, step: int) -> float:
        if isinstance(self._lowered.graph.nodes[step], HostTask):
            return 0.0
        times = [self._where.seconds(step, d) for d in self._there]
        rate = sum(1.0 / t if t > 0.0 else inf for t in times if t < inf)
        return 1.0 / rate if rate else inf

    def can_all_run(self, nodes: Iterable[int]) -> bool:
        """Return whether there is a device for each of some nodes."""
        return all(_has_device(self._problem, n, self._there) for n in nodes)


def _has_device(problem: Problem, node: int, there: Sequence[DeviceIndex]) -> bool:
    if isinstance(problem.graph.nodes[node], HostTask):
        return True
    return any(d in there and problem.can_run(node, d) and problem.fits(node, d) for d in problem.preferred(node))


def is_whole(rest: Lineage, history: CommandHistory) -> bool:
    """Return whether all contents that there were are somewhere, also those that are to be overwritten."""
    known = {key for step in rest.done for key in history.graph.nodes[step].writes} | history.is_defined
    return all(rest.valid[key] for key in known.intersection(rest.valid))


def rescheduled(
    subject: Subject,
    playback: Playback,
    rest: Lineage,
    away: frozenset[DeviceIndex],
    lost: Collection[DeviceIndex],
    slower: Mapping[DeviceIndex, float],
    later: Set[int] = frozenset(),
) -> tuple[Subject, MovingPlayer]:
    """Return the playback of what is left, rescheduled without the devices that are ``away``, and without the steps
    left for ``later``. ``slower``: how many times as long as predicted devices take, where that has changed. (The
    directory is as of ``rest``.) Raises Unrecoverable."""
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
    followed = playback.plan(playback.command_graph.plan.policy)
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
    """Return a plan in place of a dynamic policy's further decisions: what it decided, others where they end first."""
    problem, lowered = subject.problem, subject.lowered
    decided = {a.node: a for a in playback.issued}
    left = [n for n in range(len(lowered.graph.nodes)) if n not in decided]
    was = {n: preferred[0] for n in left if (preferred := problem.preferred(lowered.step(n).node))}
    nothing = [0.0] * len(problem.machine.devices)
    was |= Rescheduler(problem, lowered.extent, lowered.graph).chosen(was, was, nothing, away)
    decided |= {n: Assignment(n, was.get(n, ON_HOST), 0, 0.0, 0.0) for n in left}
    return Plan(tuple(decided[n] for n in sorted(decided)), "", tuple(d.name for d in problem.machine.devices), 0.0)


def buffer_names(keys: Collection[BufferKey], subject: Subject | CommandGraph) -> str:
    """Return, for messages, the names of the buffers of keys, which may be those of pieces."""
    pieces, buffers = subject.lowered.graph.buffers, subject.problem.graph.buffers
    found = dict.fromkeys(b.whole if isinstance(b := pieces[key], Piece) else key for key in keys)
    return ", ".join(
        (buffers[key].name or f"buffer {key}") if key in buffers else "what kernels put together" for key in found
    )
