"""A command buffer: the drivers' calls of a command graph without transfers, recorded once and made again. A prepared
graph is left with such a command graph when all data are where they are used.

Playing it costs little more than the drivers' own calls (NVIDIA 4.6 us, PoCL 2 us per launch).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.drivers import last_words
from manycl.drivers.driver import DriverError, Event, Queue
from manycl.graph.graph import (
    Argument,
    BufferArg,
    BufferKey,
    CopyTask,
    FillTask,
    Graph,
    HostTask,
    Launch,
    Version,
)
from manycl.graph.versions.sequence import is_sequence
from manycl.machine import DeviceIndex
from manycl.model.trips import trip_count
from manycl.run.commands.backend import Failed, Run
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.executor.record import RunRecord
from manycl.run.executor.sub_buffers import placed
from manycl.run.executor.transfers import within
from manycl.run.executor.waits import Awaited, wait_for_all
from manycl.utilities.changed import changed

if TYPE_CHECKING:
    from manycl.run.executor.executor import Executor


_KERNEL, _ARGS = 2, 3  # indices of the object that sets arguments, and of these, in an entry


@dataclass(frozen=True)
class CommandBuffer:
    """The recorded calls of a command graph, for its buffers or for others: ``bound`` before it is played.

    ``entries``: the driver's ``launch`` (or a function that enqueues a copy or fill), the kernel and the object that
    sets its arguments, the arguments that earlier entries leave with other values, queue, sizes, offset, and the
    entries it waits for. ``places``: (node, device, queue) of each entry; ``ends``: the last entry of each queue
    (device and number). ``versions``: the version that runs, for nodes with several versions of their kernel.
    ``bounded``: its kernels end after the same work each time with the same scalars; ``steady``: with any scalars.
    """

    entries: tuple[tuple[Any, ...], ...]
    places: tuple[tuple[int, DeviceIndex, int], ...]
    ends: Mapping[tuple[DeviceIndex, int], int]
    versions: dict[int, Version]
    bounded: bool
    steady: bool

    def bound(self, executor: Executor, graph: Graph, keys: Mapping[BufferKey, BufferKey]) -> CommandBuffer:
        """Return a copy for a graph of this shape, with that graph's scalars, on buffers ``keys[b]`` instead of b. It
        holds as long as the memory's version stays the same."""
        memory, entries = executor.memory, []
        left: dict[tuple[int, int], object] = {}  # the last values of kernels' scalars
        for entry, (node, device, _) in zip(self.entries, self.places, strict=True):
            task = graph.nodes[node]
            if isinstance(task, CopyTask | FillTask):
                enqueue = _as_launch(within(executor.lanes[device].driver, memory, task, device))
                entries.append((enqueue, *entry[1:]))
                continue
            held, given, kernel, args = memory.buffers(device), task.args, id(entry[_KERNEL]), []
            for i, arg in entry[_ARGS]:
                if type(arg) is BufferArg:
                    of = arg.of(keys.get(arg.key, arg.key))
                    found = held.get(of.key) if arg.nbytes is None else None
                    args.append((i, found if found is not None else memory.argument(of, device)))
                    continue
                value = given[i] if i < len(given) else arg  # (hidden ones are not the graph's)
                if left.get((kernel, i)) != value:
                    left[kernel, i] = value
                    args.append((i, value))
            entries.append((*entry[:_ARGS], args, *entry[_ARGS + 1 :]))
        return changed(self, entries=tuple(entries))


def recorded(executor: Executor, script: CommandGraph) -> CommandBuffer | None:
    """Record a command graph's commands, in the queues that the executor uses now. None if they are not launches,
    copies within a device and fills only, or some have undo copies. The record holds as long as the queues stay the
    same. Makes the queues that are missing."""
    if script.waits or executor.memory.guarded:
        return None
    if not all(isinstance(c, Run) and not c.undo for c in script.commands):
        return None
    for lanes, count in zip(executor.lanes, script.queues, strict=True):
        lanes.need_queues(count)  # earlier runs may have used timed queues
    entries: list[tuple[Any, ...]] = []
    places: list[tuple[int, DeviceIndex, int]] = []
    index: dict[int, int] = {}
    left: dict[int, Sequence[Argument]] = {}  # the last arguments of kernels
    versions: dict[int, Version] = {}
    ran: list[tuple[ProgramFacts, KernelFacts]] = []
    for command in script.commands:
        assert isinstance(command, Run)
        node, device, queue, after = command[:4]
        launch, lanes = script.lowered.graph.nodes[node], executor.lanes[device]
        assert not isinstance(launch, HostTask)
        index[node] = len(entries)
        places.append((node, device, queue))
        before_it = tuple(index[t] for t in after)
        if not isinstance(launch, Launch):
            entries.append((None, None, None, (), lanes.queues[queue], (), None, None, before_it))
            continue
        chosen: Launch | Version = launch
        if launch.versions:
            chosen = versions[node] = executor.programs.version(launch, device)
            if is_sequence(chosen):
                return None
        if (chosen.program, chosen.kernel) not in ran:
            ran.append((chosen.program, chosen.kernel))
        name = chosen.kernel.name
        program, args = placed(chosen.program, name, launch.args, executor.machine.devices[device])
        kernel = executor.programs.kernel(program, name, device)
        before, left[id(kernel)] = left.get(id(kernel)), args
        # other graphs on which the calls are made have the same buffers in the same places, but other scalars
        set_here = [(i, a) for i, a in enumerate(args) if before is None or type(a) is bytes or a != before[i]]
        entries.append(
            (
                lanes.launch,
                kernel.kernel,
                kernel,
                tuple(set_here),
                lanes.queues[queue],
                chosen.global_size,
                chosen.local_size,
                launch.global_offset,
                before_it,
            )
        )
    trips = [trip_count(program, kernel) for program, kernel in ran]
    bounded = all(count.bounded for count in trips)
    steady = bounded and not any(count.scalars for count in trips)
    ends = {(d, q): i for i, (_, d, q) in enumerate(places)}
    return CommandBuffer(tuple(entries), tuple(places), ends, versions, bounded, steady)


def _as_launch(enqueue: Callable[[Queue, Sequence[Event]], Event]) -> Callable[..., Event]:
    """Return a copy or fill as a function that is called like the driver's ``launch``."""
    return lambda queue, _kernel, _global, _local, _offset, after: enqueue(queue, after or ())


def play(executor: Executor, script: CommandGraph, buffer: CommandBuffer, at_once: bool) -> tuple[float, RunRecord]:
    """Enqueue everything and wait; return the seconds and the record (with its failure, if a launch failed).
    ``at_once``: the run is known to end so soon that Ctrl-C may wait for it."""
    used, devices = buffer.ends, {d for d, _ in buffer.ends}
    executor.settle()
    graph = script.lowered.graph
    run = executor.start(graph, devices)
    result = run.record
    result.versions = buffer.versions
    if last_words.keeping():
        for node, device, queue in buffer.places:
            lane = f"{executor.machine.devices[device].name} queue {queue}"
            last_words.given(node, lane, f"kernel {graph.nodes[node].name}")
    events: list[Event] = []
    append = events.append
    try:
        for launch, kernel, of, args, queue, global_size, local_size, offset, after in buffer.entries:
            for index, value in args:
                of.set(index, value)
                of.held[index] = value
            append(
                launch(queue, kernel, global_size, local_size, offset, [events[i] for i in after] if after else None)
            )
        for device, number in used:
            executor.lanes[device].flush(executor.lanes[device].queues[number])
        result.kernels = _kernels(buffer, events)
        ends = [
            Awaited(device, number, buffer.places[last][0], events[last]) for (device, number), last in used.items()
        ]
        failure = wait_for_all(run, ends, at_once)
    except DriverError as error:
        node = buffer.places[min(len(events), len(buffer.places) - 1)][0]
        failure = Failed(node, run.now(), str(error), run.number)
    except BaseException:
        result.kernels = _kernels(buffer, events)
        executor.abort()
        raise
    seconds = run.now()
    if failure is None:
        executor.ended(run)
    else:  # no command is left running
        result.kernels, result.failure = _kernels(buffer, events), failure
        run.events.update((node, event) for node, _, _, event in result.kernels)
        executor.abort()
    return seconds, result


def _kernels(buffer: CommandBuffer, events: Sequence[Event]) -> list[tuple[int, DeviceIndex, int, Event]]:
    return [(node, d, q, event) for (node, d, q), event in zip(buffer.places, events, strict=False)]
