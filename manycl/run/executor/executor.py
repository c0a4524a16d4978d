"""The back end of real devices: an executor over drivers of any kinds, with several in-order queues a device. The
engine's thread enqueues everything, and polls the events of devices with cores of their own (``RunState.inbox``). Each
queue of a CPU has a thread that blocks in the driver's ``wait`` for the commands that have to be reported; all other
order is kept by the queues and by the events that commands wait for."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Collection, Mapping, Sequence, Set
from operator import attrgetter
from typing import Any

from manycl import flags
from manycl.drivers import last_words
from manycl.drivers.choice import OpenDevice
from manycl.drivers.driver import Driver, DriverError, End, Event
from manycl.errors import ManyclError, RunError
from manycl.graph.graph import BufferArg, BufferKey, CopyTask, DeviceTask, FillTask, Graph, HostTask, Launch, Version
from manycl.graph.versions.sequence import is_sequence
from manycl.machine import NATIVE, DeviceIndex, Machine
from manycl.region import Region
from manycl.run.commands.backend import (
    UPLOADS,
    Command,
    Copy,
    EndsEarly,
    Evict,
    HostCall,
    Report,
    Run,
    Shorten,
    TransferQueue,
    continues,
)
from manycl.run.data.memory import Memory
from manycl.run.executor.host_calls import HostCalls
from manycl.run.executor.lanes import Lanes
from manycl.run.executor.programs import KernelObject, Programs
from manycl.run.executor.record import NO_KIND, RunRecord
from manycl.run.executor.run_state import RunState
from manycl.run.executor.sequences import Sequences
from manycl.run.executor.sub_buffers import placed
from manycl.run.executor.transfers import Moved, TransferLanes, move, within
from manycl.run.executor.waits import InterruptMessage, responsive
from manycl.run.recovery.undo_log import KeptCopies, UndoLog
from manycl.utilities.interrupts import interruptible
from manycl.utilities.kept import PLANS
from manycl.utilities.prompt import be_prompt, thread

_MEMORY = attrgetter("memory")


class Executor:
    """A back end that runs commands on real devices. One run at a time; the session's memory and programs outlive it. A
    run that is interrupted is waited for, and left only when Ctrl-C is pressed again: then the next one (or ``settle``)
    waits for it before it touches anything."""

    def __init__(self, machine: Machine, opened: Sequence[OpenDevice], profile: bool = True) -> None:
        be_prompt()  # the first run need not ask for it
        self.machine = machine
        self.profile = profile
        self.lanes = [Lanes(o.open(), profile) for o in opened]
        self.memory = Memory(machine, self.drivers, flags.debug() >= 5 or flags.checks_bounds())
        for device in machine.devices if flags.checks_bounds() else ():
            if device.platform != NATIVE:
                print(f"manycl: {device.name} looks only at red zones: it compiles nothing natively", file=sys.stderr)
        self.programs = Programs(machine, self.drivers)
        self.sequences = Sequences(self.memory, self.programs)
        self.undo = UndoLog(self.memory)
        self.kept = KeptCopies(self.memory)
        self.runs = 0
        """The number of runs that have begun."""
        self._run: RunState | None = None  # the last run
        self._is_over = True  # the last run has left nothing under way
        self._moves: TransferLanes | None = None
        self.host_calls = HostCalls(self.memory)
        # cached rows to transfer, by graph: several graphs may run in turns
        self._joined: deque[tuple[weakref.ref[Graph], dict[tuple[BufferKey, ...], Moved]]] = deque(maxlen=PLANS)

    @property
    def drivers(self) -> list[Driver]:
        return [lanes.driver for lanes in self.lanes]

    def use(self, profile: bool) -> None:
        """Set whether commands are timed by the devices' clocks, from the next run on."""
        if profile != self.profile:
            self.settle()
            self.profile = profile
            for lanes in self.lanes:
                lanes.use(profile)

    def rearrange(self, machine: Machine, kept: Sequence[Lanes]) -> None:
        """Change to other devices, between runs; ``kept``: their lanes, some of which may have been here before."""
        before = [next((i for i, old in enumerate(self.lanes) if old is lanes), None) for lanes in kept]
        for lanes in self.lanes:
            if lanes not in kept:
                lanes.release()
        self.machine, self.lanes = machine, list(kept)
        for lanes in self.lanes:
            lanes.use(self.profile)
        self.memory.rearrange(machine, self.drivers, before)
        self.programs.rearrange(machine, self.drivers, before)

    # methods of Backend

    def begin(self, graph: Graph, queues: Sequence[int], goes_on: bool = False) -> int:
        timed: list[DeviceIndex] = []
        self.settle()
        run = self.start(graph, timed)  # first, as a device that is lost may refuse its queues
        for i, (lanes, count) in enumerate(zip(self.lanes, queues, strict=True)):
            lanes.need_queues(count)
            if count or (lanes.own and not lanes.is_lost):
                timed.append(DeviceIndex(i))
        responsive.enter(self)
        joined = next((found for known, found in self._joined if known() is graph), None)
        if joined is None:
            joined = {}
            self._joined.append((weakref.ref(graph), joined))
        self._moves = TransferLanes(run, self.memory, self.kept, joined)
        return run.number

    def start(self, graph: Graph, timed: Collection[DeviceIndex]) -> RunState:
        """Begin a run on some devices; the one before is over."""
        self._run = run = self.underway(graph, timed)
        self._is_over = False
        if last_words.note is not None:
            last_words.begin()
        return run

    def underway(self, graph: Graph, timed: Collection[DeviceIndex], began: float | None = None) -> RunState:
        """Return the state of a new run, which the caller cares for until it is ``adopted``. ``began``: None: now."""
        if not thread.is_prompt:
            be_prompt()
        self.runs += 1
        run = RunState(self.runs, graph, self.machine, self.lanes, self.profile, began)
        run.record.timed = timed
        return run

    def adopt(self, run: RunState) -> None:
        """Make a run the one that is waited for and ended."""
        self._run, self._is_over = run, False

    @property
    def is_idle(self) -> bool:
        """True while no run is under way, and nothing is left of one."""
        return self._is_over

    def now(self) -> float:
        assert self._run is not None, "nothing has begun"
        return self._run.now()

    @property
    def run(self) -> RunState:
        """The last run."""
        assert self._run is not None, "nothing has begun"
        return self._run

    def perform(self, commands: Sequence[Command]) -> None:
        run = self.run
        touched, uploads = dict[tuple[int, int], int](), dict[tuple[int, int], int]()
        joining: list[Any] = []  # commands that become one transfer with a later one
        built, kind = len(run.record.first), NO_KIND
        kinds: list[tuple[int, int, float]] = []  # where commands of another kind begin, and when
        for index, command in enumerate(commands):
            if run.stopping:
                break  # earlier commands may never have been enqueued; the failure is on its way
            if isinstance(command, Evict):
                self.memory.set_aside(command.store, command.device)
                continue
            if isinstance(command, HostCall) or command.notify:
                run.awaited += 1
            try:
                if type(command) is Run:
                    if command.device != kind:
                        kinds.append((index, kind := command.device, run.now()))
                    self._enter(run, command)
                    touched[command.device, command.queue] = command.token
                elif type(command) is Copy:
                    if ~command.device != kind:
                        kinds.append((index, kind := ~command.device, run.now()))
                    joining.append(command)
                    if index + 1 < len(commands) and continues(run.graph, command, commands[index + 1]):
                        continue
                    together, joining = joining, []
                    assert self._moves is not None, "the run has begun"
                    self._moves.transfer(together)
                    if not isinstance(command.queue, TransferQueue):
                        touched[command.device, command.queue] = command.token
                    elif command.queue in UPLOADS:
                        uploads[command.device, command.queue] = command.token
                else:
                    assert isinstance(command, HostCall)
                    kinds.append((index, kind := NO_KIND, run.now()))
                    self.host_calls.call(run, command.token, alone=index + 1 == len(commands) and run.awaited == 1)
            except ManyclError as error:
                run.fail(command.token, error)
        self._flush(run, uploads, touched)
        if not run.stopping and len(run.record.first) == built:  # building kernels is no enqueuing
            run.record.kinds.append([*kinds, (len(commands), NO_KIND, run.now())])

    def _flush(
        self, run: RunState, uploads: Mapping[tuple[int, int], int], touched: Mapping[tuple[int, int], int]
    ) -> None:
        """Send queues' commands to their devices; each queue comes with the token of a command of it."""
        token = -1
        try:
            for (device, queue), token in uploads.items():  # before the queues that wait for them  # noqa: B007
                self.lanes[device].flush(self.lanes[device].of(queue))
            for (device, queue), token in touched.items():  # noqa: B007
                self.lanes[device].flush(self.lanes[device].queues[queue])
        except DriverError as error:
            run.fail(token, error)

    def shorten(self, command: Shorten) -> EndsEarly | None:
        run, driver = self.run, self.lanes[command.device].shortening
        event = run.events.get(command.token)
        found = None if event is None or driver is None else driver.shorten(event)
        if found is None:
            return None
        run.record.together[command.token] = command.launch(found[0])
        return EndsEarly(*found)

    def wait(self, until: float | None = None) -> list[Report]:
        run = self.run
        reports = run.inbox.wait(until)
        run.awaited -= len(reports)
        if last_words.note is not None:
            for report in reports:
                last_words.complete(report.token)
        return reports

    def took(self, token: int, device: DeviceIndex) -> float | None:
        return self.run.took(token, device) if self.profile else None

    def wake(self) -> None:
        run = self._run
        if run is not None:
            run.inbox.wake()

    def ends(self, failed: Set[int]) -> tuple[Set[int], Set[int]]:
        ended, begun = self.run.ends(failed)
        return ended, begun - {token for token, copy in self.run.undone(begun) if self.undo.put_back(copy)}

    def restore(self, graph: Graph, copies: Mapping[BufferKey, int]) -> None:
        self.kept.restore(graph, copies)

    def lost(self, device: DeviceIndex) -> str:
        reason = self.lanes[device].probe()
        self.lanes[device].is_lost = bool(reason)
        return reason

    def has_crashed(self, device: DeviceIndex) -> bool:
        return self.lanes[device].driver.has_crashed

    def is_cut_off(self, device: DeviceIndex) -> bool:
        return self.run.is_cut_off(device)

    def finish(self) -> RunRecord:
        run = self.run
        with interruptible:
            self._settle_threads()
            if not all(lanes.is_settled() for lanes in self.lanes):
                self._settle_devices()
        return self.ended(run)

    def abort(self) -> RunRecord:
        run = self.run
        run.stopping = True
        if run.is_left:
            return run.record
        with InterruptMessage(lambda: f"stopping; waiting for {run.listed()}; Ctrl-C leaves it running"):
            self._wait_for(run)
        return self.ended(run)

    def settle(self) -> None:
        """Wait until nothing of an interrupted run is under way; Ctrl-C ends the waiting."""
        if self._is_over:
            return
        run = self.run
        words = "still waiting for {}, which an interrupted run has left; press Ctrl-C to stop waiting"
        with InterruptMessage(lambda: words.format(run.listed())):
            self._wait_for(run)
        self.ended(run)

    def _wait_for(self, run: RunState) -> None:
        """Wait until no command of a run is under way."""
        try:
            with interruptible:
                self._settle_threads()
                self._settle_devices()
        except BaseException:
            run.is_left = True
            responsive.leave(self)
            raise

    def ended(self, run: RunState) -> RunRecord:
        """Note that nothing of a run is left under way; return its record."""
        if self._moves is not None:
            responsive.leave(self)
            self._moves = None  # the lanes refer to the run
        self._is_over = True
        run.record.find_failure()
        return run.record

    def move(
        self, key: BufferKey, parts: Sequence[tuple[int, Region]], result: End | None = None, *, sends: bool = False
    ) -> None:
        """Copy parts of a buffer as :func:`manycl.run.executor.transfers.move` does, outside a run."""
        if not self._is_over:
            self.settle()
        move(self.machine, self.memory, self.lanes, key, parts, result, sends=sends)

    def close(self) -> bool:
        """Stop the threads and wait for the devices, but not for an interrupted run. Return whether memory may be
        freed. The back end cannot be used afterwards."""
        if self._is_over:
            self.host_calls.close()
            for lanes in self.lanes:
                lanes.close()
            return True
        _left.append(self)
        self.release()
        return False

    def release(self) -> None:
        """Let the threads end when they have no jobs left, without waiting for them."""
        self.host_calls.release()
        for lanes in self.lanes:
            lanes.release()

    # commands

    def _enter(self, run: RunState, command: Run) -> None:
        lanes = self.lanes[command.device]
        if command.undo:
            run.undo(command.token, self.undo.copied(run.graph, command, lanes, run.events_of(command.after)))
        task = run.graph.nodes[command.token] if command.task is None else command.task
        assert not isinstance(task, HostTask)
        if command.task is not None:
            run.record.together[command.token] = command.task
        event = self.give(run, task, command)
        if command.notify:
            run.watch(command.device, command.queue, [command.token], event)

    def give(self, run: RunState, task: DeviceTask, command: Run, uploads: Sequence[Event] = ()) -> Event:
        """Enqueue a task for a command's node, behind some uploads; return its event. Raises DriverError, and RunError
        where there is no room."""
        if not isinstance(task, Launch):
            return self._give_within(run, task, command, uploads)
        launch, lanes = task, self.lanes[command.device]
        node, device, queue, after, *_ = command
        chosen: Launch | Version = launch
        if launch.versions:
            chosen = run.record.versions[node] = self.programs.version(launch, device)
            if is_sequence(chosen):
                if self.sequences.have_room(chosen, lanes, queue):
                    return self._give_sequence(run, launch, chosen, command, uploads)
                chosen = run.record.versions[node] = launch.versions[0]
        asked = run.now()  # taken before its program is built, unless it is built already
        kernel = self._with_arguments(launch, chosen, device)
        if last_words.note is not None:
            last_words.given(node, lanes.device.name, queue, f"kernel {launch.name}, NDRange {chosen.global_size}")
        kind = chosen.local_size or chosen.global_size, launch.global_offset is None
        if kind not in kernel.launched:
            kernel.launched.add(kind)
            run.record.first[node] = asked
        how = lanes.queues[queue], kernel.kernel, chosen.global_size, chosen.local_size, launch.global_offset
        waits = [*(run.events_of(after) if after else ()), *uploads] or None
        if command.parts is not None and lanes.shortening is not None and chosen is launch:
            event = lanes.shortening.launch_in_parts(*how, waits, command.parts, command.beside)
        else:
            event = lanes.launch(*how, waits)
        lanes.latest[queue] = event
        run.events[node] = event
        run.record.kernels.append((node, device, queue, event))
        if self.memory.guarded:
            self._look_around(launch, device, event)
        return event

    def _give_sequence(
        self, run: RunState, launch: Launch, chosen: Version, command: Run, uploads: Sequence[Event]
    ) -> Event:
        lanes = self.lanes[command.device]
        if last_words.note is not None:
            last_words.given(command.token, lanes.device.name, command.queue, f"kernels {chosen.kernel.name}")
        waits = [*run.events_of(command.after), *uploads] or None
        event = self.sequences.give(run, launch, chosen, command, waits, lanes)
        if self.memory.guarded:
            self._look_around(launch, command.device, event)
        return event

    def _with_arguments(self, launch: Launch, chosen: Launch | Version, device: DeviceIndex) -> KernelObject:
        """Return the kernel of a launch, or of a version of it, with its arguments set."""
        kernel = self.programs.kernel(chosen.program, chosen.kernel.name, device)
        buffers = self.memory.buffers(device)
        held = kernel.held
        for index, arg in enumerate(launch.args):
            if type(arg) is BufferArg:
                if arg.nbytes is not None:
                    return self._with_views(launch, chosen, device)
                buffer = buffers.get(arg.key)
                if buffer is None:
                    buffer = self.memory.on_device(arg.key, device)
                if held[index] is not buffer:
                    kernel.put(index, buffer)
            elif held[index] != arg:
                kernel.put(index, arg)
        return kernel

    def _with_views(self, launch: Launch, chosen: Launch | Version, device: DeviceIndex) -> KernelObject:
        """Return the kernel with its arguments set where some arguments are views."""
        name = chosen.kernel.name
        program, args = placed(chosen.program, name, launch.args, self.machine.devices[device])
        kernel = self.programs.kernel(program, name, device)
        kernel.put_all([self.memory.argument(arg, device) for arg in args])
        return kernel

    def _give_within(self, run: RunState, task: CopyTask | FillTask, command: Run, uploads: Sequence[Event]) -> Event:
        """Enqueue a copy or fill; return its event, which is one, as it is of one row."""
        node, device, queue, after = command[:4]
        lanes = self.lanes[device]
        if last_words.note is not None:
            last_words.given(node, lanes.device.name, queue, f"{task.function} {task.name}")
        event = within(lanes.driver, self.memory, task, device)(lanes.queues[queue], [*run.events_of(after), *uploads])
        run.events[node] = lanes.latest[queue] = event
        run.record.kernels.append((node, device, queue, event))
        return event

    def _look_around(self, launch: Launch, device: DeviceIndex, event: Event) -> None:
        """Wait for a kernel, which runs alone, and raise RunError if it has written outside of a buffer."""
        lanes = self.lanes[device]
        for queue in lanes.queues:
            lanes.flush(queue)
        lanes.driver.wait(event)
        given = {a.key: i for i, a in enumerate(launch.args) if isinstance(a, BufferArg)}
        found = sorted(self.memory.trespassed(device), key=lambda f: given.get(f[0], len(launch.args)))
        if not found:
            return
        key, (first, count) = found[0]
        index = given.get(key)
        name = launch.kernel.arguments[index].name if index is not None else ""
        which = f"argument {index} ({name}), " if index is not None else "a buffer that it was not given, "
        raise RunError(
            f"it wrote outside of {which}{self.memory.name(key)} of {self.memory.nbytes(key)} bytes: {count} bytes, the"
            f" first at byte {first}"
        )

    def _settle_threads(self) -> None:
        """Wait until no thread of this back end works."""
        workers = [worker for lanes in self.lanes for worker in lanes.workers.values()]
        # waiting for one after another would cost a switch of threads each
        for mark in [worker.mark() for worker in (*workers, *self.host_calls.workers)]:
            mark.wait()

    def _settle_devices(self) -> None:
        """Wait until no queue holds a command; threads wait, since nothing interrupts a driver's own wait."""
        for mark in [lanes.finish() for lanes in self.lanes]:
            mark.wait()


_left: list[Executor] = []
"""Back ends that were closed while devices were busy; their memory and queues are not freed."""
