"""Emission of steps as commands: which device does what, which bytes are moved, and what all of that waits for. Pure.

What a launch reads is moved as early as possible: the host's data when the run begins, a device's results when they are
made. Commands are in an order in which they could run one after another. The engine gives them to their queues in this
order, each as soon as all reports that it waits for have come. So of two commands in a queue, the one that was emitted
first goes first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

from manycl.errors import PolicyError
from manycl.graph.graph import BufferKey, DeviceTask, HostTask, Launch, ResultTask
from manycl.machine import HOST, HOST_BIT, DeviceIndex, Route
from manycl.model.transfer import LARGE, SMALL
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.run.commands.backend import Copy, HostCall, Lane, Run, TransferQueue
from manycl.run.commands.checkpoint_commands import Keeper
from manycl.run.commands.command_graph import CommandGraph, linked
from manycl.run.commands.flow_control import FlowControl, ahead_of
from manycl.run.commands.transfers import Copies, Dependences, EndedTransfers, Subject, WriteBack
from manycl.run.data.coherence import places
from manycl.run.lowering.steps import Chunks

LOOK_AHEAD = 16
"""The number of nodes of a queue, from one that waits on, whose data on the host are uploaded before their turn; our
own choice."""
Order = Mapping[BufferKey, int]
"""The positions of pieces in an order of transfers."""
AS_NODES_HAVE_IT: Order = {}


class Emitter(Copies):
    """The emitter of a run's steps, one after another, and of all transfers that they need."""

    def __init__(self, subject: Subject, queues: tuple[int, ...]) -> None:
        super().__init__(subject)
        self._overwritten = subject.overwritten
        self._queues = queues
        # by where a buffer is valid, where a node of the run wrote it, and where it is to go
        self._ways: dict[tuple[int, int, int], Route] = {}
        # plans have transfers in queues of their own, however small
        problem, is_beside = subject.problem, subject.problem.as_planned or subject.lowered.is_cut
        self._small = math.inf if problem.in_kernel_queues else 0 if is_beside else SMALL
        self._ahead = 0
        self._newest: dict[Lane, int] = {}  # by kernel queue, its last node
        self._going: dict[int, Lane] = {}
        self._lines: dict[Lane, list[int]] = {}  # by queue, its nodes in their order
        self._turn: dict[Lane, int] = {}  # by queue, how many of them are emitted
        self._pace: dict[Lane, FlowControl[int]] = {}
        self._keeper = Keeper(self, subject)
        self._write_back, self._sent = WriteBack(subject.problem, subject.lowered), (0, 0)

    # what comes before all else

    def give(self, lane: Lane, nodes: Collection[int]) -> None:
        """Note on which queue nodes will run."""
        self._going.update(dict.fromkeys(nodes, lane))
        self._lines.setdefault(lane, []).extend(nodes)

    def begin(self) -> None:
        """Emit the large transfers, and those that are due before one of them, so that all links are at work while the
        rest is enqueued."""
        lines = [(lane, line, self._until_large(line)) for lane, line in self._lines.items() if lane[0] != ON_HOST]
        for turn in range(LOOK_AHEAD):  # all links begin
            for lane, line, until in lines:
                if turn < until:
                    self._look_ahead(line[turn], lane, self._small)
        self._ahead = len(self.commands)
        self._keeper.begin(self._lines)

    def _until_large(self, line: Iterable[int]) -> int:
        """Return how many of the next nodes of a queue there are up to the last one that touches a large buffer."""
        nodes, buffers, until = self._graph.nodes, self._graph.buffers, 0
        for turn, node in enumerate(islice(line, LOOK_AHEAD)):
            task = nodes[node]
            if any(buffers[key].nbytes >= LARGE for key in (*task.reads, *task.writes)):
                until = turn + 1
        return until

    def _look_ahead(self, node: int, lane: Lane, least: float = 0) -> None:
        """Upload what a node needs and the host has had from the start, of buffers of at least ``least`` bytes, if no
        node before it changes them."""
        device, _ = lane
        memory, task = self._memory[device], self._graph.nodes[node]
        assert not isinstance(task, HostTask)
        # a buffer that it changes has its final contents once all its predecessors are emitted
        comes_next = all(self._lane[p] is not None for p in self._graph.predecessors[node])
        keys = dict.fromkeys((*task.reads, *task.writes)) if comes_next else task.reads
        for key in keys:
            mask = self._mask(key)
            if not mask & HOST_BIT or mask >> memory & 1 or self._graph.buffers[key].nbytes < least:
                continue
            if key in self._writers or HOST in self._made.get(key, {}) or not self._is_final(node, key):
                continue
            if key in task.reads or not (key in task.overwrites or self._overwritten(node, key)):
                source = self._approach(key, memory, TransferQueue.EARLY)
                if source != memory:
                    self._upload(key, lane, False, self._comes_by(key, lane, False), source)

    def _is_final(self, node: int, key: BufferKey) -> bool:
        """Return whether all writers of a buffer before the node, which reads it, are emitted."""
        nodes, lane = self._graph.nodes, self._lane
        return all(lane[p] is not None or key not in nodes[p].writes for p in self._graph.predecessors[node])

    # steps

    def add(self, step: Assignment, watched: bool = False) -> None:
        """Emit a step, the transfers of its data, and the transfers of its results. ``watched``: its end is reported in
        any case. Raises PolicyError for a step that cannot be next."""
        node, device = step.node, step.device
        task = self._graph.nodes[node]
        for p in self._graph.predecessors[node]:
            if self._lane[p] is None:
                raise PolicyError(f"the plan is not valid: node {node} ({task.name}) stands before node {p}")
        if device == ON_HOST:
            if not isinstance(task, HostTask):
                raise PolicyError(f"node {node} ({task.name}) is a launch, but was assigned to the host")
            self._call(node, task)
        else:
            if isinstance(task, HostTask):
                raise PolicyError(f"node {node} ({task.name}) is a host function, but was assigned to a device")
            self._run(step, task, watched)

    def take(
        self, token: int, device: DeviceIndex, queue: int, chunks: tuple[int, ...], task: Launch, launch: Chunks
    ) -> Collection[int]:
        """Emit the command of a packet of chunks: one launch with the first chunk's token, whose end is reported.
        Return the nodes that it depends on."""
        raise NotImplementedError

    def _run(self, step: Assignment, task: DeviceTask, watched: bool) -> None:
        node, lane = step.node, (step.device, step.queue)
        nodes, before = (node,), self._graph.predecessors[node]
        if self.far and not self._is_held(lane) and not self._is_due(before, lane):  # here the queue begins to wait
            turn = self._turn.get(lane, 0)
            for following in self._lines[lane][turn : turn + LOOK_AHEAD]:
                self._look_ahead(following, lane)
        self._emit(step, self._find(nodes, before, lane), watched)
        self._change(nodes, lane, node)

    def _find(
        self, nodes: Collection[int], before: Collection[int], lane: Lane, order: Order = AS_NODES_HAVE_IT
    ) -> Dependences:
        """Bring what nodes need that run next as one command of a queue, and come ``before`` the nodes of these tokens.
        Return what the command comes after. ``order``: in which pieces are brought."""
        waits, missing = Dependences(lane[0]), self._missing(nodes, self._memory[lane[0]])
        if missing:
            is_due = not self._is_held(lane) and self._is_due(before, lane)
            for key in sorted(missing, key=order.__getitem__) if order else missing:
                self._bring(key, lane, is_due, waits)
        if self._unawaited:
            tasks = self._graph.nodes
            self._comes_behind_unawaited([key for n in nodes for key in tasks[n].writes], waits)
        return waits

    def _change(self, nodes: Collection[int], lane: Lane, token: int, order: Order = AS_NODES_HAVE_IT) -> None:
        """Note what nodes write that run as one command (``token``) of a queue, and pass it on. ``order``: in which
        pieces are sent home."""
        tasks, together, memory = self._graph.nodes, self._together, self._memory[lane[0]]
        masks, made, writers, bit = self.masks, self._made, self._writers, 1 << memory
        for node in nodes:
            for key in tasks[node].writes:
                if key in together:
                    self._write(key, memory, node, token)
                else:
                    masks[key], made[key], writers[key] = bit, {memory: token}, [token]
        if self.far:
            self._turn[lane] = self._turn.get(lane, 0) + len(nodes)
            if any(map(self._graph.successors.__getitem__, nodes)):
                self._hand_over(nodes, lane[0])
            if memory != HOST and not self._write_back.is_off:
                early = self._write_back.keys(nodes)
                self._send_home(sorted(early, key=order.__getitem__) if order else early)
            if self._keeper.is_on:
                self._keeper.wrote(nodes, lane)

    def _missing(self, nodes: Iterable[int], memory: int) -> Collection[BufferKey]:
        """Return the buffers that nodes need and that are not in a memory, or become so by a command of the run."""
        bit, tasks = 1 << memory, self._graph.nodes
        found: dict[BufferKey, None] = {}
        masks, valid, needs = self.masks, self._valid, self._needs
        made = self._made if self.far else ()  # in one memory nothing comes by a transfer
        for node in nodes:
            task = tasks[node]
            assert not isinstance(task, HostTask)
            reads, overwrites = task.reads, task.overwrites
            for key in reads:
                mask = masks.get(key)
                if mask is None:
                    mask = needs[key] = valid.get(key, 0)
                if mask and (not mask & bit or key in made):
                    found[key] = None
            for key in task.writes:
                if key in reads or key in overwrites:
                    continue
                known = masks.get(key)
                mask = valid.get(key, 0) if known is None else known
                if mask and not mask & bit and self._overwritten(node, key):
                    continue
                if known is None:
                    needs[key] = mask
                if mask and (not mask & bit or key in made):
                    found[key] = None
        return found

    def _emit(self, step: Assignment, on: Dependences, watched: bool, behind: Iterable[int] = ()) -> None:
        """Emit a launch that finds its data. ``behind``: commands that must have been given before."""
        node, device, lane, after, heard = step.node, step.device, (step.device, step.queue), on.after, on.heard
        for p in self._graph.predecessors[node]:
            at = self._lane[p]
            assert at is not None
            if at[0] != device:
                if p not in on.told:
                    heard.add(p)
            elif at != lane:
                after.append(p)
        index, seconds = len(self.commands), step.end - step.start
        notify = watched
        if seconds > 0.0:
            notify |= self._paced(lane, node, seconds, heard)
        waits = self._in_queue(index, lane, after, heard, behind)
        undo = self._keeper.undo((node,), device)
        self.commands.append(Run(node, device, step.queue, waits, notify, undo=undo))
        self._at[node] = index
        self._lane[node] = lane
        self._newest[lane] = node

    def _write(self, key: BufferKey, at: int, node: int, maker: int | None = None) -> None:
        """Note that a buffer is valid only in one place, where a node has written it. ``maker``: the token of the
        command, if it is another one."""
        by = node if maker is None else maker
        if key in self._together:
            writers = self._writers.setdefault(key, [])
            if writers and writers[-1] in self._graph.predecessors[node]:  # else both write at the same time
                writers.clear()
            if not writers:
                self._arrived = {of: t for of, t in self._arrived.items() if of[0] != key}
            if by not in writers:
                writers.append(by)
            if (token := self._transfer_to(key, at)) is not None:
                self._arrived[key, at] = token  # later writers of it still wait for this
        else:
            self._writers[key] = [by]
        self._made[key] = {at: by}
        self.masks[key] = 1 << at

    def _call(self, node: int, task: HostTask) -> None:
        lane, waits = (ON_HOST, 0), Dependences(ON_HOST)
        heard = waits.heard
        for key in dict.fromkeys((*task.reads, *task.writes)):
            if key in task.reads or key not in task.overwrites:
                mask = self._mask(key)
                if mask and not mask & HOST_BIT:
                    self._approach(key, HOST, TransferQueue.EARLY)
            token = self._transfer_to(key, HOST)
            if token is not None:  # (nodes that make it there are predecessors)
                heard.add(token)
        # each predecessor is reported itself: a function must not be called on the results of a kernel that failed
        heard.update(self._graph.predecessors[node])
        self._comes_behind_unawaited(task.writes, waits)
        index = len(self.commands)
        self._in_queue(index, lane, (), heard)  # side effects of functions keep their order
        self.commands.append(HostCall(node))
        self._at[node] = index
        self._lane[node] = lane
        for key in task.writes:
            self._write(key, HOST, node)
        self._called(node, task)

    def _called(self, node: int, task: HostTask) -> None:
        """Pass on what a host function has changed to the nodes that read it."""
        if self.far:
            self._keeper.wrote_here(task.writes)
            self._hand_over((node,), ON_HOST)

    def _paced(self, lane: Lane, node: int, seconds: float, heard: set[int]) -> bool:
        """Make a node wait that would be too far ahead in its queue, as an enqueued command cannot be taken back.
        Return whether the node's own end must be reported."""
        pace = self._pace.get(lane)
        if pace is None:
            pace = self._pace[lane] = FlowControl(ahead_of(self._problem))
        due = pace.due()
        if due is not None:
            heard.add(due)
        return pace.give(node, seconds)

    # transfers

    def _bring(self, key: BufferKey, lane: Lane, is_due: bool, waits: Dependences) -> None:
        """Make a buffer valid in the memory of the device of a queue's next node."""
        memory = self._memory[lane[0]]
        if not self._mask(key) >> memory & 1:
            source = self._approach(key, memory, TransferQueue.DOWNLOAD)
            if source != memory:  # it is due when what it waits for has come
                self._upload(key, lane, is_due or source in self._made.get(key, {}), source=source)
        self._comes_after(key, memory, waits)

    def _is_due(self, before: Iterable[int], lane: Lane) -> bool:
        """Return whether what depends on some nodes can be enqueued at the start, for all other devices."""
        for p in before:
            at = self._lane[p]
            if at is None or at[0] != lane[0]:
                return False
        return True

    def _is_held(self, lane: Lane) -> bool:
        """Return whether the last command of a queue is held back."""
        last = self._last.get(lane)
        return last is not None and last in self.held

    def _approach(self, key: BufferKey, target: int, queue: int) -> int:
        """Move a buffer to the memory before ``target`` on its route, or to a host's ``target``. Return that memory."""
        routes, mask, made = self._routes, self._mask(key), self._made.get(key, {})
        maker = next((memory for memory, token in made.items() if token < len(self._lane)), HOST)
        way = self._ways.get((mask, maker, target))
        if way is None:
            sources = sorted(places(mask), key=lambda memory: (memory != maker, memory))
            way = self._ways[mask, maker, target] = routes.between(routes.nearest(sources, target), target)
        for source, to in way:
            if to >= routes.hosts:
                return source
            self._pass_on(key, queue, source, to)
        return target

    def _upload(self, key: BufferKey, lane: Lane, is_due: bool, queue: int | None = None, source: int = HOST) -> None:
        """Move a buffer from the host (or ``source``), once it is valid there, to a device, for the next node of a
        queue or a later one."""
        device, _ = lane
        queue = self._comes_by(key, lane, is_due) if queue is None else queue
        behind: set[int] = set()
        turn = self._turn.get(lane, 0) - LOOK_AHEAD
        if isinstance(queue, TransferQueue) and turn >= 0 and not is_due:
            behind.add(self._at[self._lines[lane][turn]])
        self._bring_up(key, self._memory[device], device, queue, behind, source=source)

    def _pass_on(self, key: BufferKey, queue: int, source: int, target: int) -> None:
        """Move a buffer from a memory, once it is valid there, to a host's memory."""
        made = self._made.get(key, {}).get(source)
        if made is None or source < self._routes.hosts:
            device = self._routes.sender(source, target)
        else:
            device = self._lane_of(made)[0]
        writers = self._writers.get(key, [])
        if made is not None and len(writers) == 1 and self._graph.buffers[key].nbytes < self._small:
            writer = self._lane_of(writers[0])
            if writer[0] == device and self._newest.get(writer) == writers[0] and made not in self._droppable:
                queue = writer[1]
        self._bring_down(key, source, device, queue, target=target)

    def _comes_by(self, key: BufferKey, lane: Lane, is_due: bool) -> int:
        """Return the queue for the upload of a buffer for a launch in a queue: transfers that take long and are not due
        have a queue of their own, where they hold up nothing."""
        device, queue = lane
        is_small = self._graph.buffers[key].nbytes < self._small
        rides = self._problem.in_kernel_queues or self._queues[device] == 1 or (is_due and key in self._writers)
        if is_small and rides:
            return queue
        return TransferQueue.UPLOAD if is_due or is_small else TransferQueue.PREFETCH

    def _hand_over(self, nodes: Iterable[int], device: DeviceIndex) -> None:
        """Move what nodes on other memories read from where some nodes have made it, at once and on to those memories,
        whatever else these nodes wait for."""
        memory, tasks = HOST if device == ON_HOST else self._memory[device], self._graph.nodes
        for node, s in [(n, s) for n in nodes for s in self._graph.successors[n]]:
            lane = (ON_HOST, 0) if isinstance(tasks[s], ResultTask) else self._going.get(s)
            if lane is None:
                continue  # its device is not decided
            target = HOST if lane[0] == ON_HOST else self._memory[lane[0]]
            if target == memory:
                continue
            reads = tasks[s].reads
            for key in tasks[node].writes:
                if key not in reads or key in self._together or not self._is_final(s, key):
                    continue
                source = self._approach(key, target, TransferQueue.EARLY)
                if source != target:
                    is_due = self._lines[lane][self._turn.get(lane, 0)] == s
                    by = self._comes_by(key, lane, is_due)
                    if isinstance(by, TransferQueue):  # else in its turn
                        self._upload(key, lane, is_due, by, source)

    def _send_home(self, keys: Iterable[BufferKey]) -> None:
        """Move what a part of a launch has written to the host as soon as it has ended."""
        for key in keys:
            if not self.masks[key] & HOST_BIT:
                self._approach(key, HOST, TransferQueue.EARLY)
                self._sent = self._sent[0] + 1, self._sent[1] + self._graph.buffers[key].nbytes

    # the whole

    @property
    def begun(self) -> Mapping[DeviceIndex, frozenset[BufferKey]]:
        """The stores that were there when the run began, by device whose memory is short."""
        return {}

    def finish(self) -> None:
        """Emit what is left after all steps."""
        self._keeper.finish()

    def keep(self, key: BufferKey, memory: int, device: DeviceIndex, queue: int, ends: EndedTransfers) -> int:
        """Move a buffer of a device to the host as well, after what writes it. Return the token."""
        return self._bring_down(key, memory, device, queue, ends=ends)

    def _saves(self, key: BufferKey) -> bool:
        return self._keeper.saves(key, self._needs.get(key, 0))

    def leaves(self) -> Mapping[BufferKey, int]:
        """Return the masks of where buffers are valid afterwards."""
        return self.masks

    def watch(self, token: int, since: int = 0) -> None:
        """Make sure that the end of a command is reported, if it is not before index ``since``. (For an earlier one,
        the report of its queue's last command stands.)"""
        at = self._at[token]
        command = self.commands[at]
        if at >= since and isinstance(command, (Run, Copy)) and not command.notify:
            self.commands[at] = command._replace(notify=True)

    def command_graph(self, plan: Plan) -> CommandGraph:
        always = [c.token for c in self.commands if isinstance(c, HostCall) or (isinstance(c, Copy) and c.is_download)]
        told = {self.told_by(token) for token in always}
        last = [self.commands[index] for index in self._last.values()]  # of each queue
        always += [c.token for c in last if isinstance(c, Run) and c.token not in told]
        waits, frees, heard = linked(self.enqueued, self.heard)
        hears: dict[int, Sequence[int]] = {**dict.fromkeys(always, ()), **heard}
        commands = self.commands
        for token in hears:
            self.watch(token)
        for command in commands:
            if isinstance(command, (Run, Copy)) and command.notify:
                hears.setdefault(command.token, ())
        return CommandGraph(
            problem=self._problem,
            plan=plan,
            lowered=self._lowered,
            queues=self._queues,
            commands=tuple(commands),
            ahead=self._ahead,
            waits=waits,
            frees=frees,
            hears=hears,
            needs=self._needs,
            leaves=self.leaves(),
            held=self.begun,
            sent=self._sent,
        )
