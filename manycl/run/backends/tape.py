"""A run as a list of enqueue calls, played again and again: what is left of a prepared graph when all is decided.

A tape can be made of a run that needed nothing but launches, all enqueued at the start. Playing it costs little more
than the driver's own calls (NVIDIA 4.6 us, PoCL 2 us per launch).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.graph.graph import BufferArg, Graph, Launch, Version
from manycl.interrupts import interruptible
from manycl.model.trips import trip_count
from manycl.run.backend import Command, Failed, Run
from manycl.run.backends import last_words
from manycl.run.backends.programs import KernelObject
from manycl.run.backends.record import OpenCLRecord
from manycl.run.backends.responsive import responsive
from manycl.run.backends.underway import Underway
from manycl.run.steps import Lowered

if TYPE_CHECKING:
    from manycl.run.backends.opencl import OpenCLBackend

_enqueue = cl.enqueue_nd_range_kernel


@dataclass(frozen=True)
class Tape:
    """``entries``: kernel, the arguments that earlier entries do not leave as they must be, queue, sizes, offset, and
    the entries it waits for. ``places``: (node, device, queue) of each. ``needs``: (buffer, memory bit) that must be
    valid, or undefined, before. ``leaves``: where written buffers are valid afterwards. ``version``: of the memory
    whose buffer objects it holds. ``versions``: which one runs, of nodes that have several versions of their kernel.
    ``profile``: whether its queues are those whose commands are timed. ``bounded``: whether its kernels end after the
    same work each time. Nodes and buffers are the steps and pieces of
    ``lowered``, which was made of ``graph``.
    """

    graph: Graph
    lowered: Lowered
    entries: tuple[tuple[Any, ...], ...]
    places: tuple[tuple[int, int, int], ...]
    needs: tuple[tuple[int, int], ...]
    leaves: dict[int, int]
    version: int
    versions: dict[int, Version]
    profile: bool
    bounded: bool


def record(backend: OpenCLBackend, graph: Graph, lowered: Lowered, commands: Sequence[Command]) -> Tape | None:
    """The tape of a run's commands, in the queues that the back end uses now, or None if it cannot be one."""
    if not all(isinstance(c, Run) and not backend.drivers[c.device].throttled for c in commands):
        return None
    entries: list[tuple[Any, ...]] = []
    places: list[tuple[int, int, int]] = []
    index: dict[int, int] = {}
    needs: set[tuple[int, int]] = set()
    leaves: dict[int, int] = {}
    held: dict[int, tuple[KernelObject, list[Any]]] = {}
    versions: dict[int, Version] = {}
    ran: list[tuple[ProgramFacts, KernelFacts]] = []
    for command in commands:
        assert isinstance(command, Run)
        node, device, queue, after, _ = command
        launch = lowered.graph.nodes[node]
        assert isinstance(launch, Launch)
        bit = 1 << backend.machine.devices[device].memory
        needs.update((key, bit) for key in (*launch.reads, *launch.writes) if key not in leaves)
        for key in launch.writes:
            leaves[key] = bit
        index[node] = len(entries)
        chosen: Launch | Version = launch
        if launch.versions:
            chosen = versions[node] = backend.programs.version(launch, device)
        if (chosen.program, chosen.kernel) not in ran:
            ran.append((chosen.program, chosen.kernel))
        kernel = backend.programs.kernel(chosen.program, chosen.kernel.name, device)
        wanted = [backend.memory.on_device(a.key, device) if isinstance(a, BufferArg) else a for a in launch.args]
        before = held.get(id(kernel), (kernel, [None] * len(wanted)))[1]
        held[id(kernel)] = (kernel, wanted)
        entries.append(
            (
                kernel.cl,
                kernel.set,
                tuple((i, w) for i, (w, b) in enumerate(zip(wanted, before, strict=True)) if not _same(w, b)),
                backend.drivers[device].queues[queue],
                chosen.global_size,
                chosen.local_size,
                launch.global_offset,
                tuple(index[t] for t in after),
            )
        )
        places.append((node, device, queue))
    return Tape(
        graph,
        lowered,
        tuple(entries),
        tuple(places),
        tuple(sorted(needs)),
        leaves,
        backend.memory.version,
        versions,
        backend.profile,
        all(trip_count(program, kernel).bounded for program, kernel in ran),
    )


def _same(value: Any, held: Any) -> bool:
    return value is held if isinstance(value, cl.Buffer) or isinstance(held, cl.Buffer) else value == held


def _note(backend: OpenCLBackend, tape: Tape) -> None:
    for node, device, queue in tape.places:
        name = tape.lowered.graph.nodes[node].name
        last_words.given(node, f"{backend.machine.devices[device].name} queue {queue}", f"kernel {name}")


def play(backend: OpenCLBackend, tape: Tape, at_once: bool) -> tuple[float, OpenCLRecord]:
    """Enqueue everything and wait: seconds, and the record (with its failure, if a launch failed). ``at_once``: it is
    known to end so soon that Ctrl-C may wait for it; by a thread, which lets Ctrl-C in, its end is known 30 us later
    (two cores, PoCL)."""
    used = {(d, q): i for i, (_, d, q) in enumerate(tape.places)}
    devices = {d for d, _ in used}
    backend.use(tape.profile)
    backend.settle()
    offsets = [driver.offset() if i in devices else None for i, driver in enumerate(backend.drivers)]
    run = backend.start(tape.lowered.graph, offsets)
    result = run.record
    result.versions = tape.versions
    if last_words.keeping():
        _note(backend, tape)
    events: list[cl.Event] = []
    append = events.append
    try:
        for kernel, set_arg, args, queue, global_size, local_size, offset, after in tape.entries:
            for index, value in args:
                set_arg(index, value)
            append(
                _enqueue(
                    queue,
                    kernel,
                    global_size,
                    local_size,
                    offset,
                    [events[i] for i in after] if after else None,
                )
            )
        for device, number in used:
            backend.drivers[device].queues[number].flush()
        result.kernels = _kernels(tape, events)
        if at_once and not any(backend.drivers[d].watched for d in devices):
            failure = _blocked(run, tape, [(last, events[last]) for last in used.values()])
        else:
            responsive.enter(backend)
            for (device, number), last in used.items():
                run.watch(device, number, [tape.places[last][0]], events[last])
            failure = _wait(run, len(used))
    except cl.Error as error:
        node = tape.places[min(len(events), len(tape.places) - 1)][0]
        failure = Failed(node, run.now(), str(error), run.number)
    except BaseException:
        result.kernels = _kernels(tape, events)
        backend.abort()
        raise
    seconds = run.now()
    if failure is None:
        backend.ended(run)
    else:  # nothing is left running
        result.kernels, result.failure = _kernels(tape, events), failure
        backend.abort()
    return seconds, result


def _kernels(tape: Tape, events: Sequence[cl.Event]) -> list[tuple[int, int, int, cl.Event]]:
    return [(node, d, q, event) for (node, d, q), event in zip(tape.places, events, strict=False)]


def _blocked(run: Underway, tape: Tape, ends: Sequence[tuple[int, cl.Event]]) -> Failed | None:
    """Until all entries are complete; the first that was found to have failed."""
    failure: Failed | None = None
    for entry, event in ends:
        try:
            event.wait()
        except cl.Error as error:
            failure = failure or Failed(tape.places[entry][0], run.now(), str(error), run.number)
    return failure


def _wait(run: Underway, count: int) -> Failed | None:
    """Until so many commands are known to be complete, or one has failed."""
    while count > 0:
        with interruptible:
            reports = run.inbox.wait()
        for report in reports:
            if isinstance(report, Failed):
                return report
        count -= len(reports)
    return None
