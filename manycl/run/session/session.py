"""A session: opened devices, and the state that lives on them between runs (buffers, where they are valid, programs,
history)."""

from __future__ import annotations

import atexit
import ctypes
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

from manycl import flags
from manycl.drivers.serve.opener import opener
from manycl.drivers.survey import is_forked, refuse_forked
from manycl.errors import DeviceError, ManyclError, PolicyError, RunError
from manycl.graph import bounds
from manycl.graph.graph import BufferKey, Graph
from manycl.graph.versions.host_version import is_calling
from manycl.machine import DeviceIndex, Machine
from manycl.model.history.history import identity, kernel_key
from manycl.plan.merging import Merging
from manycl.plan.plan import Plan
from manycl.plan.policy import Policy
from manycl.plan.problem import Problem, queue_counts
from manycl.region import Region
from manycl.run.data.admission import make_room
from manycl.run.data.buffers import Buffers
from manycl.run.data.coherence import Directory
from manycl.run.data.memory import MemoryUse
from manycl.run.engine.engine import RunFailure, execute
from manycl.run.engine.observers import Observer, debugging
from manycl.run.engine.playback import Playback
from manycl.run.engine.result import Result
from manycl.run.engine.run_history import MergedRecord
from manycl.run.engine.setup import Setup
from manycl.run.executor.building import Builder
from manycl.run.executor.executor import Executor
from manycl.run.graph_cache.lowering_cache import KEPT, LoweringCache
from manycl.run.lowering.overwritten import contents
from manycl.run.lowering.steps import Lowered
from manycl.run.recovery.device_events import DeviceEvents, DevicesInUse
from manycl.run.recovery.drain import await_devices, leaving
from manycl.run.recovery.event_monitor import EventMonitor
from manycl.run.recovery.health import admit, examine
from manycl.run.recovery.reservation_listener import left, watch
from manycl.run.session.models import Models
from manycl.run.session.problem_builder import asked, problem_of
from manycl.utilities.interrupts import Uninterrupted, interruptible, is_failing
from manycl.utilities.logs import logger

if TYPE_CHECKING:
    from manycl.run.streams.eager_result import EagerResult
    from manycl.run.streams.eager_stream import EagerStream

NOBODY: frozenset[DeviceIndex] = frozenset()

Profile = bool | Literal["learning"] | None
"""The times at which the devices' clocks time commands: always, never, or as long as a run's times are learned from
("learning"). None: "learning" where timing makes commands slower, as on GPUs, else always."""


Devices = tuple[object, ...]
"""What tells whether the devices that a session may use are still the same (``Session.devices``)."""

log = logger(__name__)
_open: weakref.WeakSet[Session] = weakref.WeakSet()


class Session:
    """A session on ``devices``: a value as ``--devices`` takes it (None: MANYCL_DEVICES, else all). Use it as a context
    manager, or ``close`` it.

    ``profile=False`` leaves the devices' clocks off: traces then hold no kernels and estimates stay first guesses, but
    NVIDIA's driver enqueues a kernel in 9.6 us instead of 15.9 (benchmarks/drivers.py). ``"learning"``: the clocks are
    on, except for repetitions of a graph whose plan is settled, from which nothing is learned. None: "learning" where
    there are GPUs.

    ``remember``: begin with what earlier sessions measured, and store this session's measurements when it is closed
    (None: unless MANYCL_MODELS is 0).

    ``serve``: use the devices of ``manycl serve``, opened by its processes (None: if MANYCL_SERVE is 1).

    ``merging``: when results of launches' parts are written to the host's memory (None: MANYCL_MERGING, else chosen
    automatically).

    A session is not for several threads at once: a lock lets one run in at a time.
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
        self._opened = self._all  # without those that are left out
        self.excluded: dict[str, str] = {}
        """Devices that have failed for good, by name, and why they are left out."""
        self.device_events = DeviceEvents((d.name for d in self._all.devices), left)
        """The events of devices that leave and come."""
        self.models = Models(remember)
        self.machine = self.models.on(self._opened)
        self.sharing = self.models.sharing(self.machine)
        self._profile: Profile = profile
        self.backend = Executor(self.machine, self.opened, profile is not False)
        for learning in (False, True):  # make the queues of both kinds now, if both will be wanted
            self.use_clocks(learning)
        self.directory = Directory(self.backend.memory.name)
        self.buffers = Buffers(self)
        # results to learn from later: reading thousands of times takes longer than the runs
        self.steps = LoweringCache(self.backend.memory, self.buffers.discard)
        """The steps of plans that have run."""
        self.unneeded: deque[tuple[Graph, frozenset[BufferKey]]] = deque(maxlen=KEPT)
        self._builder = Builder(self.backend.programs)
        self._used = DevicesInUse(self.device_events)  # by the run under way
        self.lock = threading.RLock()
        self.changes = 0
        """The number of times that the session's devices have changed."""
        self.closed = False
        """True once the devices have been released."""
        self.stream: EagerStream | None = None
        """The eager stream whose commands have not been waited for, if there is one."""
        _open.add(self)
        self.device_events.listen(self.backend.wake)
        self.device_events.listen(leaving(self))
        # a session that is dropped without being closed ends its threads
        for release in (self.backend.release, self.models.looking.close):
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
            return  # the devices are another process's
        with self.lock:
            if not self.closed:
                with suppress(Exception):  # the error is raised by the queue that is used next
                    self.end_stream()
                self.closed = True
                log.debug("closing %s", ", ".join(d.name for d in self._all.devices))
                self._builder.close()
                self.models.looking.close()
                with suppress(Exception):  # learning from a failed run is not worth another error
                    self.learn()
                is_over = self.backend.close()
                self.models.save()
                for key in (*self.directory.valid, *self.directory.parts) if is_over else ():
                    self.backend.memory.release(key)
                if is_over:
                    self.backend.memory.trim()

    def admit(self, name: str) -> None:
        """Use a device again that was left out. Raises DeviceError if it still does not work."""
        self.check_open()
        with self.lock, Uninterrupted():
            self.end_stream()
            self.backend.settle()
            admit(self, name)

    def memory(self) -> Mapping[str, MemoryUse]:
        """Return the bytes in use, and the bytes kept for arrays and results to come, of the host and of each device
        with memory of its own. Memory dropped since the last run counts as in use."""
        self.check_open()
        with self.lock:
            return self.backend.memory.use()

    def trim(self) -> None:
        """Free the memory that arrays and results have left behind and that is kept for later ones."""
        self.check_open()
        with self.lock, Uninterrupted():
            self.end_stream()
            self.buffers.collect()
            self.backend.memory.trim()
            self.backend.undo.trim()
            self.backend.kept.trim()

    def restrict(self, names: Collection[str]) -> Machine:
        """Use only these of the opened devices from now on, and return the machine. Lowered plans are forgotten."""
        self._opened = self._all.only(names)
        self.machine = self.models.on(self._opened)
        self.sharing = self.models.sharing(self.machine)
        self.changes += 1
        self.steps.clear()
        self._builder = Builder(self.backend.programs)
        return self.machine

    # runs

    def problem(
        self, graph: Graph, queues: Mapping[str, int] | None = None, options: Mapping[str, str] | None = None
    ) -> Problem:
        """Return the problem of a policy for this graph in the session's present state. ``queues`` by device name or
        kind."""
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
        """Plan and run a graph. Raises what the engine raises, and LaunchError for a launch that certainly leaves its
        buffers. ``policy``: a name, a policy object or a plan. ``repeated``, ``rival``: as in
        :class:`manycl.plan.problem.Problem`; ``learning``: whether its kernels' times are learned from."""
        self.check_open()
        bounds.check(graph)
        with self.lock, Uninterrupted():
            result = None
            while result is None:  # until it has begun on devices that work
                self._get_ready(learning)
                await_devices(self)
                watch = self.watch()
                problem, chosen, name = asked(self, graph, policy, queues, options, repeated, rival)
                play = partial(
                    execute,
                    problem,
                    chosen,
                    self.backend,
                    self.directory,
                    name=name,
                    setup=Setup(self._lower, self._prepare, partial(self._left, problem), self.mortal),
                    observers=(*debugging(self.debug), *observers),
                    watch=watch,
                )
                result = self._attempt(graph, play)
            log.info("planned and ran: %r", result)
            return result

    def watch(self) -> EventMonitor:
        """Return the monitor of devices that leave and come during a run that begins now."""
        return EventMonitor(self.device_events, self.machine, self._used)

    def repeat(
        self, graph: Graph, devices: Devices, learning: bool, play: Callable[[], Result | None]
    ) -> Result | None:
        """Run a graph again by ``play``. Return None where the session's ``devices`` have changed, or where nothing was
        played. Raises what ``run`` raises."""
        self.check_open()
        with self.lock, Uninterrupted():
            self._get_ready(learning)
            if devices != self.devices:
                return None
            result = self._attempt(graph, play)
            log.debug("ran as before: %r", result)
            return result

    def _get_ready(self, learning: bool) -> None:
        """Leave nothing of earlier runs under way, and set the clocks."""
        self.end_stream()
        self.buffers.collect()
        self.use_clocks(learning)

    def _attempt(self, graph: Graph, play: Callable[[], Result | None]) -> Result | None:
        """Run a graph by ``play``, with all that surrounds a run. Return None where nothing was played, or where a
        device was found to be lost before anything had begun, and is left out now."""
        written = self._written(graph)
        try:
            result = play()
        except ManyclError as error:
            if not self._may_begin_again(error):
                raise
            return None
        finally:
            self._used.become(())
            self.backend.memory.tidy()
        if result is not None:
            self._over(result, written)
        return result

    def _may_begin_again(self, error: ManyclError) -> bool:
        """Return, after a failure, whether nothing of the run had begun, and it was for a device that is left out
        now."""
        before = self.changes
        examine(self)
        return self.changes != before and bool(self.machine.devices) and not isinstance(error, RunFailure)

    @property
    def devices(self) -> Devices:
        """The devices that may be used, to be compared with those of another time."""
        events = self.device_events
        return self.changes, events.away, events.demanded

    @property
    def away(self) -> frozenset[DeviceIndex]:
        """The devices that have left and are not to be used."""
        left = self.device_events.away
        return frozenset(i for i, d in self.machine.numbered() if d.name in left) if left else NOBODY

    @property
    def demanded(self) -> frozenset[DeviceIndex]:
        """The devices that other processes have had in the meantime, and whose launches cannot end early."""
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
        """Return the bytes that a run of a graph writes for certain, for buffers whose contents are unknown. Raises
        ResultError where the run may read unknown contents."""
        lost = self.directory.lost(graph.buffers)
        found = contents(graph, lost) if lost else {}
        for key, (needed, _) in found.items():
            self.directory.check(key, needed)
        return {key: written for key, (_, written) in found.items()}

    def _over(self, result: Result, written: Mapping[BufferKey, Region]) -> None:
        """Note that a run has ended, and has written some bytes of buffers whose contents were unknown."""
        for key, region in written.items():
            self.directory.heal(key, region, self.backend.memory.nbytes(key))
        if result.lost:
            examine(self)
        elif not isinstance(result.record, MergedRecord) and not _is_in_packets(result):  # other times are disturbed
            self.learn_from(result)

    def time_all(self) -> None:
        """Time all commands by the devices' clocks from the next run on, as with ``profile=True``."""
        self._profile = True
        with self.lock:
            if self.stream is not None and not self.stream.has_batch:
                self.end_stream()

    def use_clocks(self, learning: bool) -> None:
        """Set whether commands are timed from now on; ``learning``: whether their times are learned from."""
        self.backend.use(self._wants_times(learning))

    def is_timed(self, learning: bool) -> bool:
        """Return whether the present setting of the clocks is the one for ``learning``."""
        return self.backend.profile == self._wants_times(learning)

    def _wants_times(self, learning: bool) -> bool:
        wanted = self._profile
        if wanted is None:
            wanted = "learning" if any(lanes.watched for lanes in self.backend.lanes) else True
        return learning if wanted == "learning" else wanted

    def _left(self, problem: Problem, graph: Graph) -> Problem:
        """Return the problem of what is left of a problem's graph."""
        return problem_of(self, graph, problem.queues, problem.options)

    @property
    def mortal(self) -> frozenset[DeviceIndex]:
        """The devices whose processes may end without this one; none if there is no other device to continue on."""
        lanes = self.backend.lanes
        return frozenset(d for d in self.machine.indices if lanes[d].driver.may_be_lost) if len(lanes) > 1 else NOBODY

    def _lower(self, problem: Problem, plan: Plan | None, directory: Directory) -> Lowered:
        """Return the steps of a plan. Raises PolicyError where ranges are to run in versions that their devices cannot
        run, which no later plan uses, and what lowering raises."""
        lowered = self.steps.lower(problem, plan, directory)
        with interruptible:
            unable = list(self._builder.unable(problem.graph, lowered))
        for version, device, fault in unable:
            name = self.machine.devices[device].name
            self.models.history.unable.add((kernel_key(version), identity(self.machine.devices[device])))
            raise PolicyError(f"a version of a kernel, {version.kernel.name}, cannot run on {name}: {fault}")
        return lowered

    def _prepare(self, lowered: Lowered, playback: Playback) -> None:
        """Make room for what the run needs, and build its programs and kernels for the devices."""
        make_room(self, lowered, playback)
        with interruptible:
            self._builder.build(lowered, playback.queues)
        self.use(playback.queues)

    def use(self, queues: Sequence[int]) -> None:
        """Note how many queues of each device a run uses."""
        self._used.become([d.name for d, count in zip(self.machine.devices, queues, strict=True) if count])

    def learn(self) -> None:
        """Add the measurements of runs since the last call to the models, and those of links to the machine."""
        if self.models.learn(self.machine):
            self.machine = self.models.on(self._opened)

    def learn_from(self, run: Result | EagerResult) -> None:
        """Have the models learn from a run. While a device takes longer than its measurements, nothing is learned."""
        if not self.device_events.slow:
            self.models.learn_from(run)

    def end_stream(self) -> None:
        """Wait for the commands of the eager stream; errors are raised by the queue that they belong to."""
        if self.stream is not None:
            self.stream.end()

    def check_open(self) -> None:
        """Raise DeviceError if the session is closed; and what :meth:`refuse_host_functions` raises."""
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
    """Return whether launches ran in packets, beside each other: their times tell little of whole launches."""
    playback = result.playback
    return playback is not None and bool(playback.script.problem.demanded) and bool(playback.script.lowered.chunks)


@atexit.register
def _close_all() -> None:
    for session in list(_open):
        if is_failing():  # objects that the devices still use are never freed
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))
        else:
            session.close()
