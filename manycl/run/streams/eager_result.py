"""The result of a batch that was run eagerly: a graph, a plan and a trace, made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from time import perf_counter
from typing import TypeVar

from manycl.drivers.driver import Event
from manycl.errors import ManyclError
from manycl.graph.dependences import Batch
from manycl.graph.graph import BufferKey, DeviceTask, Graph, Launch
from manycl.graph.launch import with_arguments
from manycl.machine import HOST, DeviceIndex
from manycl.model.history.learning import enough
from manycl.plan.plan import Plan, alone
from manycl.plan.problem import Problem
from manycl.run.commands.backend import Command, Copy, Done, Failed, Run, TransferQueue
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.commands.transfers import Subject
from manycl.run.data.coherence import Directory
from manycl.run.engine.asking_policies import UNPLANNED
from manycl.run.engine.divisions import MEASURED
from manycl.run.engine.engine import resumed
from manycl.run.engine.playback import Playback
from manycl.run.engine.result import Result
from manycl.run.executor.record import RunRecord
from manycl.run.lowering.lower import lower
from manycl.run.lowering.steps import Lowered
from manycl.run.recovery.device_events import EventMonitor
from manycl.run.session.problem_builder import problem_of
from manycl.run.streams.stream_state import Given, Residency

Value = TypeVar("Value")
_BUFFER = attrgetter("buffer")


def launched(given: Sequence[Given], device: DeviceIndex) -> list[tuple[int, DeviceIndex, int, Event]]:
    """Return commands in one queue of a device in the form that records have."""
    return [(i, device, 0, event) for i, (_, _, event) in enumerate(given)]


class EagerResult:
    """A batch of an eager stream that is over. ``after``: for its commands, those that they wait for. ``found``: masks
    of the memories where its buffers were valid before. ``error``: its failure, of command ``failed`` and after."""

    def __init__(self, stream: Residency, after: Mapping[int, tuple[int, ...]]) -> None:
        batch = stream.batch
        self._devices, self._data = stream.devices, stream.data
        self.batch = batch
        self._after = after
        self._buffers = dict(zip(stream.arrays, map(_BUFFER, stream.arrays.values()), strict=True))
        self._whole = stream.record
        self._moved = (0, 0)  # the range of its transfers in the stream
        self.given: Sequence[Given] = stream.given[batch.first :] if batch.first else stream.given
        self.found = batch.found
        self.device = stream.device
        self.seconds = 0.0
        self.error: ManyclError | None = None
        self._rest: Result | None = None  # the result where other devices have gone on with it
        self.failed = 0
        self.known: Callable[[], object] | None = None  # a weak reference to its graph, where that is cached

    def close(self) -> None:
        """Note that all of it has ended."""
        batch = self.batch
        self.seconds = perf_counter() - batch.began
        self.given = tuple(self.given)
        self._moved = batch.moved, len(self._whole.transfers)

    @cached_property
    def enqueued(self) -> Batch:
        """The commands that were enqueued."""
        nodes, known, first = list[DeviceTask](), dict[object, DeviceTask](), self.batch.first
        for task, args, _ in self.given:
            node = task
            if args is not None and isinstance(task, Launch):  # most come again and again
                key = id(task), *args
                node = known.get(key) or known.setdefault(key, with_arguments(task, tuple(args)))
            nodes.append(node)
        after = {i - first: tuple([n - first for n in found if n >= first]) for i, found in self._after.items()}
        after = {i: found for i, found in after.items() if 0 <= i < len(nodes) and found}
        return Batch(tuple(nodes), self._buffers, after)

    @cached_property
    def graph(self) -> Graph:
        return self.enqueued.graph()

    @cached_property
    def record(self) -> RunRecord:
        """The record of when its commands ran."""
        batch = self.batch
        record = self._whole.batch(batch.began, (batch.first, len(self.given)), self._moved)
        record.kernels = launched(self.given, self.device)
        return record

    def samples(self) -> tuple[Graph, Iterable[tuple[int, DeviceIndex, float]]]:
        """Return what models learn from, in the form of :meth:`Result.samples`."""
        nodes = self.enqueued.nodes
        return Graph(nodes, self._buffers, ((),) * len(nodes)), self.record.durations(enough(nodes))

    def resume(self, failed: Failed, watch: EventMonitor | None) -> None:
        """Note that a command has failed. Where its device is lost, other devices do what is left, as in any run; else
        ``error`` tells the story, and buffers that may be half written are unknown from now on. ``watch``: None where
        no other device may go on."""
        devices, executor, record = self._devices, self._devices.backend, self.record
        is_lost = watch is not None and len(devices.machine.devices) > 1 and bool(executor.lost(self.device))
        run = executor.underway(self.graph, (), self.batch.began)
        run.record, run.events = record, {n: event for n, (_, _, event) in enumerate(self.given)}
        record.failure = failed
        executor.adopt(run)

        def go_on(playback: Playback) -> Result:
            playback.start(0.0)
            playback.handle()
            if failed.token and not is_lost:  # commands before it in the queue are complete
                playback.handle(Done(failed.token - 1, failed.time, failed.run))
            playback.fail(failed)
            command_graph = playback.command_graph
            subject = Subject(command_graph.problem, command_graph.lowered, playback.directory.valid)
            return resumed(subject, playback, executor, command_graph.plan.policy, watch if is_lost else None)

        try:
            self._rest = self._played(self._data.directory, go_on)
        except ManyclError as error:
            self.failed, self.error = failed.token, error

    @property
    def went_on(self) -> bool:
        """True if its device is lost, and other devices have done what was left."""
        return self._rest is not None

    @cached_property
    def result(self) -> Result:
        """The result in the form of a run of a plan."""
        if self._rest is not None:
            return self._rest

        def ended(playback: Playback) -> Result:
            playback.end()
            return self._result(playback)

        return self._played(self.before(), ended)

    def before(self) -> Directory:
        """Return a directory in which its buffers are valid where they were before."""
        with self._devices.lock:
            directory = self._data.directory.copy()
        for key, found in self.found.items():
            directory.forget(key)
            if isinstance(found, tuple):
                directory.valid_regions[key] = found
            elif found:
                directory.valid[key] = found
        return directory

    def _played(self, directory: Directory, ended: Callable[[Playback], Value]) -> Value:
        """Return what ``ended`` returns for the playback of the batch's command graph."""
        self.record.graph = self.graph
        plan = alone(self.graph, self.device, self._devices.machine)
        plan.details[UNPLANNED] = True
        problem = problem_of(self._devices, self._data, self.graph)
        lowered = lower(problem, plan, directory)
        directory.open(lowered.cut, lowered.lies)
        try:
            return ended(Playback(self._as_given(problem, plan, lowered, directory.valid), directory))
        finally:
            directory.close(lowered.cut, lowered.joined, lowered.own)

    def _as_given(self, problem: Problem, plan: Plan, lowered: Lowered, valid: Mapping[BufferKey, int]) -> CommandGraph:
        """Return the command graph of the uploads and commands as they were given. ``valid``: masks of the memories
        where buffers were valid before."""
        graph, device = lowered.graph, self.device
        memory = problem.machine.devices[device].memory
        bit = 1 << memory
        brought: dict[int, list[BufferKey]] = {}  # pieces of what came for each node
        for moved in self.record.transfers:
            if moved.target != HOST:
                brought.setdefault(moved.token, []).extend(lowered.cut.get(moved.keys[0], moved.keys))
        needs, leaves = dict[BufferKey, int](), dict[BufferKey, int]()
        commands, token, last = list[Command](), len(graph.nodes), len(graph.nodes) - 1
        for node, task in enumerate(graph.nodes):
            after: list[int] = []
            for key in brought.get(node, ()):
                mask = needs.setdefault(key, valid.get(key, 0))
                if mask and not mask & bit and key not in leaves:
                    commands.append(Copy(token, key, device, TransferQueue.UPLOAD, (), False, HOST, memory))
                    leaves[key] = mask | bit
                    after.append(token)
                    token += 1
            commands.append(Run(node, device, 0, tuple(after), node == last))
            for key in (*task.reads, *task.writes):
                if key not in leaves and (key in task.reads or key not in task.overwrites):
                    needs.setdefault(key, valid.get(key, 0))
            leaves.update(dict.fromkeys(task.writes, bit))
        queues = tuple([int(d == device) for d in problem.machine.indices])
        count = len(commands)
        return CommandGraph(
            problem, plan, lowered, queues, tuple(commands), count, {}, {}, {last: ()}, needs, leaves, {}
        )

    def _result(self, playback: Playback) -> Result:
        command_graph = playback.command_graph
        return Result(
            self.graph,
            self._devices.machine,
            command_graph.plan.policy,
            self.seconds,
            self.record,
            plan=command_graph.plan,
            lowered=command_graph.lowered,
            playback=playback,
            details={} if self.known is None else {MEASURED: self.known},
        )
