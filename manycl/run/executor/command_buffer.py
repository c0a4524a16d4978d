"""A command buffer: a command graph without transfers as the recorded commands of its devices
(:class:`manycl.drivers.driver.CommandRecorder`), which are played again. A prepared graph is left with such a command
graph when all data are where they are used. Playing it costs little more than the drivers' own calls: NVIDIA 4.6 us,
PoCL 2 us per launch; native devices 0.6 us a tiny kernel, its run included (measured on two cores)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.drivers import last_words
from manycl.drivers.driver import (
    Allocation,
    CommandRecorder,
    DriverError,
    Event,
    RecordedCommand,
    RecordedCopy,
    RecordedFill,
    RecordedLaunch,
)
from manycl.drivers.recorded_calls import RecordedCalls
from manycl.graph.graph import BufferArg, BufferKey, CopyTask, DeviceTask, Graph, HostTask, Launch, LocalArg, Version
from manycl.graph.versions.sequence import is_sequence
from manycl.machine import DeviceIndex
from manycl.model.trips import trip_count
from manycl.run.commands.backend import Failed, Run
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.executor.programs import KernelObject
from manycl.run.executor.record import RunRecord
from manycl.run.executor.run_state import Awaited, wait_for_all
from manycl.run.executor.sub_buffers import placed

if TYPE_CHECKING:
    from manycl.run.executor.executor import Executor


_Slot = BufferArg | LocalArg | bytes | tuple[int, int]
"""What a slot of a binding table is set to: a value, or a scalar of the graph (a node and the argument of it)."""


_DEVICE = attrgetter("device")


class DeviceCommands(NamedTuple):
    """The recorded commands of one device. ``slots``: of the binding table; ``nodes`` and ``queues`` (numbers): of each
    command; ``ends``: by queue, its last command. ``recorded`` and ``bound``: what ``recorder`` has made of them."""

    device: DeviceIndex
    slots: Sequence[_Slot]
    nodes: Sequence[int]
    queues: Sequence[int]
    ends: Mapping[int, int]
    recorder: CommandRecorder
    recorded: Any
    bound: Any = None


class CommandBuffer(NamedTuple):
    """The recorded commands of a command graph, for its buffers or for others: ``bound`` before it is played.
    ``kernels``: the kernels whose arguments it sets; ``versions``: the version that runs, for nodes with several
    versions of their kernel. ``bounded``: its kernels end after the same work each time with the same scalars;
    ``steady``: with any scalars."""

    devices: Sequence[DeviceCommands]
    kernels: Sequence[KernelObject]
    versions: dict[int, Version]
    bounded: bool
    steady: bool

    def bound(self, executor: Executor, graph: Graph, keys: Mapping[BufferKey, BufferKey]) -> CommandBuffer:
        """Return a copy for a graph of this shape, with that graph's scalars, on buffers ``keys[b]`` instead of b. It
        holds as long as the memory's version stays the same."""
        found = []
        for of in self.devices:
            values = _values(executor, of.device, of.slots, graph, keys)
            found.append(of._replace(bound=of.recorder.bind(of.recorded, values)))
        return self._replace(devices=found)


def _values(
    executor: Executor, device: DeviceIndex, slots: Sequence[_Slot], graph: Graph, keys: Mapping[BufferKey, BufferKey]
) -> list[Allocation | bytes | LocalArg]:
    """Return the binding table of a device, for a graph's scalars and on buffers ``keys[b]`` instead of b."""
    memory, values = executor.memory, list[Allocation | bytes | LocalArg]()
    nodes, held = graph.nodes, memory.buffers(device)
    for slot in slots:
        if type(slot) is BufferArg:
            key = keys.get(slot.key, slot.key)
            found = held.get(key) if slot.nbytes is None else None
            values.append(memory.argument(slot.of(key), device) if found is None else found)
        elif type(slot) is tuple:
            values.append(nodes[slot[0]].args[slot[1]])
        else:
            values.append(slot)
    return values


class _DeviceRecorder:
    """The commands of one device while they are collected."""

    def __init__(self, executor: Executor, device: DeviceIndex) -> None:
        self._executor, self._device, self._lanes = executor, device, executor.lanes[device]
        self._slots: dict[_Slot, int] = {}
        self._commands: list[RecordedCommand] = []
        self._queues: list[int] = []
        self._index: dict[int, int] = {}  # of commands by node

    def _slot(self, slot: _Slot) -> int:
        return self._slots.setdefault(slot, len(self._slots))

    def add(self, command: Run, task: DeviceTask, chosen: Launch | Version) -> KernelObject | None:
        """Add a command; return the kernel that it launches, if it is a launch of the ``chosen`` version."""
        node, queue = command.token, self._lanes.queues[command.queue]
        kernel, after = None, tuple([self._index[t] for t in command.after])
        made: RecordedCommand
        if isinstance(task, Launch):
            name, device = chosen.kernel.name, self._device
            program, args = placed(chosen.program, name, task.args, self._executor.machine.devices[device])
            kernel = self._executor.programs.kernel(program, name, device)
            # other graphs that are played have other scalars in the same places; hidden ones are not the graph's
            slots = [(node, i) if type(a) is bytes and i < len(task.args) else a for i, a in enumerate(args)]
            sizes = chosen.global_size, chosen.local_size, task.global_offset
            made = RecordedLaunch(queue, after, kernel.kernel, tuple(map(self._slot, slots)), *sizes)
        else:
            target, *sources = [self._slot(BufferArg(a.key)) for a in task.args]
            if isinstance(task, CopyTask):
                made = RecordedCopy(
                    queue, after, target, sources[0], task.target_offset, task.source_offset, task.nbytes
                )
            else:
                made = RecordedFill(queue, after, target, task.pattern, task.target_offset, task.nbytes)
        self._index[node] = len(self._commands)
        self._commands.append(made)
        self._queues.append(command.queue)
        return kernel

    def complete(self, graph: Graph) -> DeviceCommands:
        """Record what was added, with the scalars and on the buffers of the graph."""
        slots, nodes = list(self._slots), list(self._index)
        values, driver = _values(self._executor, self._device, slots, graph, {}), self._lanes.driver
        recorder: CommandRecorder = driver if isinstance(driver, CommandRecorder) else RecordedCalls(driver)
        recorded = recorder.record(self._commands, values)
        if recorded is None:
            recorder = RecordedCalls(driver)
            recorded = recorder.record(self._commands, values)
        ends = {queue: i for i, queue in enumerate(self._queues)}
        return DeviceCommands(self._device, slots, nodes, self._queues, ends, recorder, recorded)


def recorded(executor: Executor, command_graph: CommandGraph) -> CommandBuffer | None:
    """Record a command graph's commands, in the queues that the executor uses now. None if they are not launches,
    copies within a device and fills only, some have undo copies, or some wait for those of other devices. The record
    holds as long as the queues stay the same. Makes the queues that are missing."""
    if command_graph.waits or executor.memory.guarded:
        return None
    if not all(isinstance(c, Run) and not c.undo for c in command_graph.commands):
        return None
    device_of = {c.token: c.device for c in command_graph.commands if isinstance(c, Run)}
    if any(device_of[t] != c.device for c in command_graph.commands if isinstance(c, Run) for t in c.after):
        return None
    for lanes, count in zip(executor.lanes, command_graph.queues, strict=True):
        lanes.need_queues(count)  # earlier runs may have used timed queues
    recorders: dict[DeviceIndex, _DeviceRecorder] = {}
    kernels: dict[int, tuple[DeviceIndex, KernelObject]] = {}
    versions: dict[int, Version] = {}
    ran: list[tuple[ProgramFacts, KernelFacts]] = []
    graph = command_graph.lowered.graph
    for command in command_graph.commands:
        assert isinstance(command, Run)
        node, device = command.token, command.device
        task = graph.nodes[node]
        assert not isinstance(task, HostTask)
        chosen: Any = task
        if isinstance(task, Launch):
            if task.versions:
                chosen = versions[node] = executor.programs.version(task, device)
                if is_sequence(chosen):
                    return None
            if (chosen.program, chosen.kernel) not in ran:
                ran.append((chosen.program, chosen.kernel))
        if device not in recorders:
            recorders[device] = _DeviceRecorder(executor, device)
        kernel = recorders[device].add(command, task, chosen)
        if kernel is not None:
            kernels[id(kernel)] = device, kernel
    trips = [trip_count(program, kernel) for program, kernel in ran]
    bounded = all(count.bounded for count in trips)
    steady = bounded and not any(count.scalars for count in trips)
    for _, kernel in kernels.values():
        kernel.forget()
    devices = [of.complete(graph) for of in recorders.values()]
    called = {of.device for of in devices if isinstance(of.recorder, RecordedCalls)}
    set_by_calls = [kernel for device, kernel in kernels.values() if device in called]
    return CommandBuffer(devices, set_by_calls, versions, bounded, steady)


def play(
    executor: Executor, command_graph: CommandGraph, buffer: CommandBuffer, at_once: bool
) -> tuple[float, RunRecord]:
    """Enqueue everything, as nothing is under way, and wait; return the seconds and the record (with its failure, if a
    launch failed). ``at_once``: the run is known to end so soon that Ctrl-C may wait for it."""
    given: list[tuple[DeviceCommands, list[Event]]] = []
    ends: list[Awaited] = []
    graph = command_graph.lowered.graph
    run = executor.start(graph, [*map(_DEVICE, buffer.devices)])
    result = run.record
    result.versions = buffer.versions
    if last_words.note is not None:
        for node, device, queue in chain(*[zip(of.nodes, repeat(of.device), of.queues) for of in buffer.devices]):
            last_words.given(node, executor.machine.devices[device].name, queue, f"kernel {graph.nodes[node].name}")
    for kernel in buffer.kernels:
        kernel.forget()
    try:
        for of in buffer.devices:
            events: list[Event] = []
            given.append((of, events))
            of.recorder.play(of.bound, events)
            lanes = executor.lanes[of.device]
            for number, last in of.ends.items():
                lanes.flush(lanes.queues[number])
                ends.append(Awaited(of.device, number, of.nodes[last], events[last]))
        result.kernels = _kernels(given)
        failure = wait_for_all(run, ends, at_once)
    except DriverError as error:
        failure = Failed(of.nodes[min(len(events), len(of.nodes) - 1)], run.now(), str(error), run.number)
    except BaseException:
        result.kernels = _kernels(given)
        executor.abort()
        raise
    seconds = perf_counter() - run.began
    if failure is None:
        executor.ended(run)
    else:  # no command is left running
        result.kernels, result.failure = _kernels(given), failure
        run.events.update((node, event) for node, _, _, event in result.kernels)
        executor.abort()
    return seconds, result


def _kernels(given: Sequence[tuple[DeviceCommands, list[Event]]]) -> list[tuple[int, DeviceIndex, int, Event]]:
    """Return node, device, queue and event of what was enqueued, which may be a part."""
    found: list[tuple[int, DeviceIndex, int, Event]] = []
    for of, events in given:
        found += zip(of.nodes, repeat(of.device), of.queues, events, strict=False)
    return found
