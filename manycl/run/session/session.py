"""A session: opened devices, and what lives on them between runs (buffers, where they are valid, programs, history)."""

from __future__ import annotations

import atexit
import ctypes
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Literal, cast

from manycl import flags
from manycl.drivers.serve.opener import opener
from manycl.drivers.survey import is_forked, refuse_forked
from manycl.errors import DeviceError, ManyclError, PolicyError, RunError
from manycl.graph import bounds
from manycl.graph.graph import BufferKey, Graph
from manycl.graph.versions.host_version import is_calling
from manycl.machine import DeviceIndex, Machine
from manycl.model.estimate import History
from manycl.model.history.history import identity, kernel_key
from manycl.model.history.learning import learn
from manycl.model.history.measured import on_machine, sharing
from manycl.model.history.observed import ObservedLinks
from manycl.model.history.store import Store
from manycl.plan.merging import Merging
from manycl.plan.plan import Plan
from manycl.plan.policy import Policy
from manycl.plan.problem import Looks, Problem, queue_counts
from manycl.region import Region
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.data.admission import make_room
from manycl.run.data.buffers import Buffers
from manycl.run.data.coherence import Directory
from manycl.run.data.memory import MemoryUse
from manycl.run.engine.engine import RunFailure, again, execute
from manycl.run.engine.merged_record import MergedRecord
from manycl.run.engine.observers import Observer, debugging
from manycl.run.engine.playback import Playback
from manycl.run.engine.result import Result
from manycl.run.engine.setup import PLAIN, Setup
from manycl.run.executor.building import Builder
from manycl.run.executor.command_buffer import CommandBuffer, recorded
from manycl.run.executor.executor import Executor
from manycl.run.executor.record import RunRecord
from manycl.run.graph_cache.background_analysis import BackgroundAnalysis
from manycl.run.graph_cache.imbalance import note_shares
from manycl.run.graph_cache.lowering_cache import KEPT, LoweringCache
from manycl.run.graph_cache.played import played
from manycl.run.lowering.overwritten import contents
from manycl.run.lowering.steps import Lowered, State, state_of
from manycl.run.recovery.device_events import DeviceEvents, DevicesInUse
from manycl.run.recovery.drain import await_devices, leaving
from manycl.run.recovery.event_monitor import EventMonitor
from manycl.run.recovery.health import admit, examine
from manycl.run.recovery.reservation_listener import left, watch
from manycl.run.session.problem_builder import asked, problem_of
from manycl.utilities.interrupts import Uninterrupted, interruptible, is_failing
from manycl.utilities.logs import logger
from manycl.utilities.unforeseen import told

if TYPE_CHECKING:
    from manycl.run.streams.eager_result import EagerResult
    from manycl.run.streams.eager_stream import EagerStream

NOBODY: frozenset[DeviceIndex] = frozenset()
UNLEARNED = 4  # results kept until the next planning; older ones are dropped unread

Profile = bool | Literal["learning"] | None
"""Whether commands are timed by the devices' clocks: always, never, or as long as somebody learns from it (None: that
where it makes commands slower, as on GPUs, and else always)."""


@dataclass(slots=True)
class LastTime:
    """What is known of a script that has been played: the version of the memory that its buffers are in, seconds that
    it took, and the shortest way to enqueue it, if there is one, with commands that are timed or not (``profile``;
    None: nobody has asked). ``keys``: of the buffers that this was found for, where others take their places;
    ``scalars``: what they were then."""

    memory: int | None = None
    seconds: float = inf
    profile: bool | None = None
    short: CommandBuffer | None = None
    keys: tuple[BufferKey, ...] = ()
    scalars: tuple[bytes, ...] = ()


log = logger(__name__)
_open: weakref.WeakSet[Session] = weakref.WeakSet()


class Session:
    """``devices``: what ``--devices`` takes (None: MANYCL_DEVICES, else all). Use as a context manager, or ``close``.

    ``profile=False`` leaves the devices' clocks off: traces then hold no kernels and estimates stay first guesses, but
    NVIDIA's driver enqueues a kernel in 9.6 us instead of 15.9 (benchmarks/drivers.py). ``"learning"``: they are on but
    for the repetitions of a graph whose plan is kept, of which nobody learns anything. None: so where there are GPUs.

    ``remember``: begin with what earlier sessions measured, and keep what this one measures when it is closed (None:
    unless MANYCL_MODELS is 0).

    ``serve``: the devices are those of ``manycl serve``, opened by its processes (None: if MANYCL_SERVE is 1).

    ``merging``: when what parts of launches write goes to the host's memory (None: MANYCL_MERGING, else by itself).

    Not for several threads at once: a lock lets one run in at a time.
    """

    def __init__(
        self,
        devices: str | Sequence[str] | None = None,
        *,
        profile: Profile = None,
        remember: bool | None = None,
        serve: bool | None = None,
        merging: Merging | None = None,
    ) -> None:
        flags.check()
        self.merging: Merging = merging or cast("Merging", flags.merging())
        self.debug = flags.debug()
        self._all, self.opened = opener(serve)(devices if devices is not None else flags.devices())
        self._opened = self._all  # less what is left out
        self.excluded: dict[str, str] = {}
        """Devices that have failed for good, by name, and why they are left out."""
        self.device_events = DeviceEvents((d.name for d in self._all.devices), left)
        """What is said of devices that leave and come."""
        self.store = Store() if (flags.learning() if remember is None else remember) else None
        self._measurements = self.store.measurements() if self.store is not None else {}
        self.links = ObservedLinks()
        self.machine = on_machine(self._opened, self._measurements)
        self.sharing = sharing(self.machine, self._measurements)
        self._profile: Profile = profile
        self.backend = Executor(self.machine, self.opened, profile is not False)
        for learning in (False, True):  # queues of both kinds are made now, if both will be wanted
            self.use_clocks(learning)
        self.directory = Directory(self.backend.memory.name)
        self.history = self.store.history() if self.store is not None else History()
        self.buffers = Buffers(self)
        self._last_times: weakref.WeakKeyDictionary[CommandGraph, LastTime] = weakref.WeakKeyDictionary()
        # results that nobody has learned from yet: reading thousands of times out costs more than running again
        self._unlearned: deque[Result | EagerResult] = deque(maxlen=UNLEARNED)
        self._steps = LoweringCache(self.backend.memory, self.buffers.discard)
        self.unneeded: deque[tuple[Graph, frozenset[BufferKey]]] = deque(maxlen=KEPT)
        self.looks = Looks()
        self.looking = BackgroundAnalysis(self.looks)
        self._builder = Builder(self.backend.programs)
        self._used = DevicesInUse(self.device_events)  # by the run
        self.lock = threading.RLock()
        self.changes = 0
        """How often the devices that are there have become others."""
        self.closed = False
        """Whether the devices have been released."""
        self.flight: EagerStream | None = None
        """What a queue has given the devices without a plan, as long as nobody has waited for it."""
        _open.add(self)
        self.device_events.listen(self.backend.wake)
        self.device_events.listen(leaving(self))
        # whoever drops a session without closing it has its threads back
        for release in (self.backend.release, self.looking.close):
            weakref.finalize(self, release).atexit = False
        log.info("opened %s", ", ".join(f"{d.name} ({d.model})" for d in self._all.devices))
        watch(self)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"devices: {', '.join(d.name for d in self.machine.devices) or 'none'}"
        left = f", left out: {', '.join(self.excluded)}" if self.excluded else ""
        return f"<manycl.Session, {state}{left}>"

    def close(self) -> None:
        """Release the devices. Arrays of the session cannot be used afterwards."""
        if is_forked():
            return  # they are another process's
        with self.lock:
            if not self.closed:
                with suppress(Exception):  # it is told to who asks
                    self.land()
                self.closed = True
                log.debug("closing %s", ", ".join(d.name for d in self._all.devices))
                self._builder.close()
                self.looking.close()
                with suppress(Exception):  # what cannot be learned from a failed run is not worth another error
                    self.learn()
                is_over = self.backend.close()
                if self.store is not None:
                    self.store.save(self.history)
                    for subject, values in self.links.values():
                        self.store.measured(subject, values)
                for key in (*self.directory.valid, *self.directory.parts) if is_over else ():
                    self.backend.memory.release(key)
                if is_over:
                    self.backend.memory.trim()

    def admit(self, name: str) -> None:
        """Use a device again that was left out. Raises DeviceError if it still does not work."""
        self.check_open()
        with self.lock, Uninterrupted():
            self.land()
            self.backend.settle()
            admit(self, name)

    def memory(self) -> Mapping[str, MemoryUse]:
        """What is in use, and what is kept for arrays and results to come, in bytes: of the host, and of each device
        with memory of its own. What was dropped since something ran last counts as in use."""
        self.check_open()
        with self.lock:
            return self.backend.memory.use()

    def trim(self) -> None:
        """Give back the memory that arrays and results have left behind and that is kept for others."""
        self.check_open()
        with self.lock, Uninterrupted():
            self.land()
            self.buffers.collect()
            self.backend.memory.trim()
            self.backend.undo.trim()
            self.backend.kept.trim()

    def restrict(self, names: Collection[str]) -> Machine:
        """Only these of the devices that were opened are there from now on; the machine. Plans' steps are forgotten."""
        self._opened = self._all.only(names)
        self.machine = on_machine(self._opened, self.links.added_to(self._measurements))
        self.sharing = sharing(self.machine, self._measurements)
        self.changes += 1
        self._steps.clear()
        self._last_times.clear()
        self._builder = Builder(self.backend.programs)
        return self.machine

    # runs

    def problem(
        self, graph: Graph, queues: Mapping[str, int] | None = None, options: Mapping[str, str] | None = None
    ) -> Problem:
        """What a policy is asked for this graph in the session's present state. ``queues`` by device name or kind."""
        self.learn()
        return problem_of(self, graph, queue_counts(self.machine, queues or {}), options or {})

    def run(
        self,
        graph: Graph,
        policy: str | Policy | Plan | None = None,
        *,
        queues: Mapping[str, int] | None = None,
        options: Mapping[str, str] | None = None,
        observers: Sequence[Observer] = (),
        repeated: int = 0,
        rival: bool = False,
        learning: bool = True,
    ) -> Result:
        """Plan and run a graph; raises what the engine raises, and LaunchError for a
        launch that certainly leaves its buffers. ``policy``: a name, a policy object or a plan.
        ``repeated``, ``rival``: as in :class:`manycl.plan.problem.Problem`;
        ``learning``: whether somebody learns from what its kernels take."""
        self.check_open()
        bounds.check(graph)
        with self.lock, Uninterrupted():
            while True:  # until it has begun on devices that work
                self.land()
                self.buffers.collect()
                self.use_clocks(learning)
                await_devices(self)
                watch = self._watch()
                problem, chosen, name = asked(self, graph, policy, queues, options, repeated, rival)
                written = self._written(graph)
                try:
                    result = execute(
                        problem,
                        chosen,
                        self.backend,
                        self.directory,
                        name=name,
                        setup=Setup(self._lower, self._prepare, partial(self._left, problem), self.mortal),
                        observers=(*debugging(self.debug), *observers),
                        watch=watch,
                    )
                except ManyclError as error:
                    if not self._may_begin_again(error):
                        raise
                    continue
                finally:
                    self._used.become(())
                    self.backend.memory.tidy()
                self._over(result, written)
                log.info("planned and ran: %r", result)
                return result

    def again(self, script: CommandGraph, *, learning: bool = True) -> Result | None:
        """Run what was recorded; None if buffers are not where it needs them (run the graph instead). ``learning``, and
        what it raises: as ``run``."""
        last = self._last_times.get(script)
        if last is None:
            last = self._last_times[script] = LastTime()

        def play() -> Result | None:
            lowered = script.lowered
            if not self._steps.exists(lowered) or lowered.state != self._state(lowered, script.problem.graph):
                return None
            # buffers that nobody has removed since are still there, and where memory is short, others make way
            ready = last.memory == self.backend.memory.version and lowered.room is None
            if not ready:
                last.profile = last.short = None
            elif last.profile != self.backend.profile:
                last.profile = self.backend.profile
                last.short = self._recorded(script)
            if last.short is not None:
                return played(script, self.backend, self.directory, last.short, last.seconds, self._watch())
            return self._played_by_steps(script, PLAIN if ready else Setup(prepare=self._prepare))

        return self._repeated(script, last, learning, play)

    def on_others(
        self, script: CommandGraph, last: LastTime, keys: tuple[BufferKey, ...], scalars: tuple[bytes, ...]
    ) -> Result | None:
        """Play a plain script (``CommandGraph.on``) on the buffers ``keys``, with its graph's ``scalars``; ``last``:
        what is known of it on those of other times. Nobody learns from that. None where memory is short, or buffers are
        not where it needs them; raises what ``run`` raises."""

        def play() -> Result | None:
            if self.machine.memories > 1:
                try:
                    make_room(self, script.lowered, Playback(script, self.directory))
                except RunError:
                    return None
            if last.profile != self.backend.profile:
                last.profile, last.keys = self.backend.profile, keys
                found = self._recorded(script, for_others=True)
                last.short = found.unbound() if found is not None else None
            if last.short is None:
                return self._played_by_steps(script, PLAIN)
            of = dict(zip(last.keys, keys, strict=True))
            bound = last.short.bound(self.backend.memory, script.lowered.graph, of)
            seconds = last.seconds if bound.steady or scalars == last.scalars else inf
            last.scalars = scalars
            return played(script, self.backend, self.directory, bound, seconds, self._watch())

        return self._repeated(script, last, False, play)

    def _recorded(self, script: CommandGraph, for_others: bool = False) -> CommandBuffer | None:
        """The shortest way to enqueue a script, if there is one and nobody debugs. Raises what its commands would."""
        if self.debug:
            return None
        try:
            return recorded(self.backend, script, for_others)
        except ManyclError:
            raise
        except Exception as error:  # it is enqueued command by command
            told(error, "finding the shortest way to enqueue a run")
            return None

    def _watch(self) -> EventMonitor:
        return EventMonitor(self.device_events, self.machine, self._used)

    def _played_by_steps(self, script: CommandGraph, setup: Setup) -> Result | None:
        """A script, command by command."""
        name, watch = script.plan.policy, self._watch()
        observers = debugging(self.debug)
        return again(script, self.backend, self.directory, name=name, setup=setup, observers=observers, watch=watch)

    def _repeated(
        self, script: CommandGraph, last: LastTime, learning: bool, play: Callable[[], Result | None]
    ) -> Result | None:
        """What ``play`` makes of a script of the devices that there are, with all that surrounds a run."""
        self.check_open()
        with self.lock, Uninterrupted():
            self.land()
            self.buffers.collect()
            self.use_clocks(learning)
            if script.plan.devices != tuple([d.name for d in self.machine.devices]):
                return None
            if any(script.queues[d] for d in self.away) or script.problem.demanded != self.demanded:
                return None
            written = self._written(script.problem.graph)
            self._use(script.queues)
            try:
                result = play()
            except ManyclError as error:
                if not self._may_begin_again(error):
                    raise
                result = None
            finally:
                self._used.become(())
                self.backend.memory.tidy()
            if result is not None:
                last.memory, last.seconds = self.backend.memory.version, result.seconds
                self._over(result, written)
                log.debug("ran as before: %r", result)
            return result

    def _may_begin_again(self, error: ManyclError) -> bool:
        """After a failure: whether nothing of the run had begun, and it was for a device that is left out now."""
        before = self.changes
        examine(self)
        return self.changes != before and bool(self.machine.devices) and not isinstance(error, RunFailure)

    @property
    def away(self) -> frozenset[DeviceIndex]:
        """The devices that have left and are not to be used."""
        left = self.device_events.away
        return frozenset(i for i, d in self.machine.numbered() if d.name in left) if left else NOBODY

    @property
    def demanded(self) -> frozenset[DeviceIndex]:
        """The devices that other processes have had in the meantime, and launches of which cannot end early."""
        names = self.device_events.demanded
        return (
            frozenset(i for i, d in self.machine.numbered() if d.name in names and not d.shortens) if names else NOBODY
        )

    @property
    def present(self) -> tuple[str, ...]:
        """The names of the devices that may be used."""
        left = self.device_events.away
        return tuple([d.name for d in self.machine.devices if d.name not in left])

    def _written(self, graph: Graph) -> dict[BufferKey, Region]:
        """Of the buffers whose contents are unknown, the bytes that a run of a graph writes for certain. Raises
        ResultError where it may find some that are unknown."""
        lost = self.directory.lost(graph.buffers)
        found = contents(graph, lost) if lost else {}
        for key, (needed, _) in found.items():
            self.directory.check(key, needed)
        return {key: written for key, (_, written) in found.items()}

    def _over(self, result: Result, written: Mapping[BufferKey, Region]) -> None:
        """A run has come to its end, and has written some bytes of buffers whose contents were unknown."""
        for key, region in written.items():
            self.directory.heal(key, region, self.backend.memory.nbytes(key))
        if result.lost:
            examine(self)
        elif not isinstance(result.record, MergedRecord) and not _is_in_packets(result):  # else it was disturbed
            self.learn_from(result)

    def time_all(self) -> None:
        """All commands are timed by the devices' clocks from the next run on, as with ``profile=True``."""
        self._profile = True
        with self.lock:
            if self.flight is not None and not self.flight.has_leg:
                self.land()

    def use_clocks(self, learning: bool) -> None:
        """Whether commands are timed from now on; ``learning``: whether somebody learns from that."""
        self.backend.use(self._wants_times(learning))

    def is_timed(self, learning: bool) -> bool:
        """Whether commands are timed, or not, as they would be from now on."""
        return self.backend.profile == self._wants_times(learning)

    def _wants_times(self, learning: bool) -> bool:
        wanted = self._profile
        if wanted is None:
            wanted = "learning" if any(lanes.watched for lanes in self.backend.lanes) else True
        return learning if wanted == "learning" else wanted

    def _left(self, problem: Problem, graph: Graph) -> Problem:
        """What a policy is asked for what is left of a problem's graph."""
        return problem_of(self, graph, problem.queues, problem.options)

    @property
    def mortal(self) -> frozenset[DeviceIndex]:
        """The devices whose processes may end without this one; not where there is none that would go on."""
        lanes = self.backend.lanes
        return (
            frozenset(d for d in self.machine.indices if lanes[d].driver.has_own_process) if len(lanes) > 1 else NOBODY
        )

    def _state(self, lowered: Lowered, graph: Graph) -> State:
        return state_of(graph, self.directory) if lowered.state else ()

    def _lower(self, problem: Problem, plan: Plan | None, directory: Directory) -> Lowered:
        """The steps of a plan. Raises PolicyError where ranges are to run in versions that devices cannot run, which
        none is planned for any more, and what lowering raises."""
        lowered = self._steps.lower(problem, plan, directory)
        with interruptible:
            unable = list(self._builder.unable(problem.graph, lowered))
        for version, device, fault in unable:
            name = self.machine.devices[device].name
            self.history.unable.add((kernel_key(version), identity(self.machine.devices[device])))
            raise PolicyError(f"a version of a kernel, {version.kernel.name}, cannot run on {name}: {fault}")
        return lowered

    def _prepare(self, lowered: Lowered, playback: Playback) -> None:
        """There is room for what the run needs, and programs and kernels exist on the devices."""
        make_room(self, lowered, playback)
        with interruptible:
            self._builder.build(lowered, playback.queues)
        self._use(playback.queues)

    def _use(self, queues: Sequence[int]) -> None:
        """A run has so many queues of each device."""
        self._used.become([d.name for d, count in zip(self.machine.devices, queues, strict=True) if count])

    def forget(self) -> None:
        """Plan from now on as if no kernel had been measured, in this session or before; the store keeps what it has.
        What measures how fast policies learn begins so."""
        self._unlearned.clear()
        self.history = History()

    def learn(self) -> None:
        """Feed what has been measured since to the history."""
        while self._unlearned:
            try:
                self._learn_from(self._unlearned.popleft())
            except Exception as error:  # models do without
                told(error, "learning from a run")

    def learn_from(self, run: Result | EagerResult) -> None:
        """Later, when something is planned; runs that nobody has learned from for long are forgotten. Of devices that
        do not take as long as they do, nothing is learned."""
        if not self.device_events.slow:
            self._unlearned.append(run)

    def _learn_from(self, result: Result | EagerResult) -> None:
        record = result.record
        graph, durations = result.samples()
        learn(self.history, graph, self.machine, durations, record.versions if isinstance(record, RunRecord) else {})
        if isinstance(result, Result):
            note_shares(self.history.imbalances, result)
        if isinstance(record, RunRecord) and self.machine.memories > 1:
            for device, to_device, nbytes, seconds in record.moved():
                self.links.observe(self.machine.devices[device], to_device, nbytes, seconds)
            self.links.handed_over(record.handovers())
            self.machine = on_machine(self._opened, self.links.added_to(self._measurements))

    def land(self) -> None:
        """Wait for what a queue has given the devices; what goes wrong with it is told to who asks that queue."""
        if self.flight is not None:
            self.flight.end()

    def check_open(self) -> None:
        """Raise DeviceError if the session is closed; and as :meth:`refuse_host_functions`."""
        if self.closed:
            raise DeviceError("the session is closed", hint="make a new Queue")
        if is_forked() or self.backend.host_calls.is_used or is_calling():
            self.refuse_host_functions()

    def refuse_host_functions(self) -> None:
        """Raise RunError if the caller is a host function of a run that is under way here, and DeviceError in a forked
        process."""
        refuse_forked()
        calls = self.backend.host_calls
        if is_calling() or (calls.is_used and calls.are_current()):
            raise RunError(
                "a host function asked for an array, or for a run, of the devices whose run it is part of",
                hint="give the array to the function as an argument of Queue.call",
            )


def _is_in_packets(result: Result) -> bool:
    """Whether launches ran in packets, beside each other: what these take tells little of whole ones."""
    playback = result.playback
    return playback is not None and bool(playback.script.problem.demanded) and bool(playback.script.lowered.cells)


@atexit.register
def _close_all() -> None:
    for session in list(_open):
        if is_failing():  # what the devices still run, and use, is never freed
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))
        else:
            session.close()
