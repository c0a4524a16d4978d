"""A session: opened devices, their models, and the data that lives on them between runs. It runs graphs."""

from __future__ import annotations

import atexit
import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from copy import copy
from functools import partial
from math import inf
from typing import cast

from manycl import flags
from manycl.drivers.choice import Opened, opener
from manycl.drivers.survey import is_forked
from manycl.errors import ManyclError, PolicyError
from manycl.graph import bounds
from manycl.graph.graph import Buffer, BufferKey, Graph, Launch
from manycl.machine import Machine, queue_counts
from manycl.model.history.history import identity, kernel_key
from manycl.plan.merging import Merging
from manycl.plan.plan import Plan
from manycl.plan.policy import Policy
from manycl.plan.problem import Problem
from manycl.plan.search.alternatives import following
from manycl.region import Region
from manycl.run.data.admission import make_room
from manycl.run.data.coherence import Directory
from manycl.run.data.memory import MemoryUse
from manycl.run.engine.engine import RunFailure, execute
from manycl.run.engine.observers import Observer, debugging
from manycl.run.engine.playback import Playback
from manycl.run.engine.result import Result
from manycl.run.engine.run_history import MergedRecord
from manycl.run.engine.setup import Setup
from manycl.run.engine.trial import FIRST, Trial
from manycl.run.lowering.overwritten import contents
from manycl.run.lowering.steps import Lowered
from manycl.run.recovery.device_events import DeviceEvents, EventMonitor
from manycl.run.recovery.drain import await_devices, leaving
from manycl.run.recovery.health import admit, examine
from manycl.run.recovery.reservation_listener import left, watch
from manycl.run.recovery.rollback import Rollback, is_repeatable
from manycl.run.session.device_set import DeviceSet, Profile
from manycl.run.session.models import Models
from manycl.run.session.problem_builder import RunRequest, asked, estimates_of, problem_of
from manycl.run.session.session_data import SessionData
from manycl.utilities.interrupts import Uninterrupted, interruptible, is_failing
from manycl.utilities.logs import logger
from manycl.utilities.unforeseen import told

log = logger(__name__)
_open: weakref.WeakSet[Session] = weakref.WeakSet()


class Session:
    """A session on ``devices``: a value as ``--devices`` takes it (None: MANYCL_DEVICES, else all), or
    devices that are found already. Use it as a context manager, or ``close`` it.

    ``profile=False`` leaves the devices' clocks off: traces then hold no kernels and estimates stay first guesses, but
    NVIDIA's driver enqueues a kernel in 9.6 us instead of 15.9 (benchmarks/devices.py drivers). ``"learning"``: the
    clocks are on, except for repetitions of a graph whose plan is settled, from which nothing is learned. None:
    "learning" where there are GPUs.

    ``remember``: begin with what earlier sessions measured, and store this session's measurements when it is closed
    (None: unless MANYCL_MODELS is 0).

    ``serve``: use the devices of ``manycl serve``, opened by its processes (None: if MANYCL_SERVE is 1).

    ``merging``: when results of launches' parts are written to the host's memory (None: MANYCL_MERGING, else chosen
    automatically).

    ``as_planned``: static plans run as they are, without further cuts (:class:`manycl.plan.problem.Problem`).

    ``checkpoint``: after how many runs contents are copied in case that a device is lost, so that the runs since are
    done again then (:mod:`manycl.run.recovery.rollback`; 0: never).

    A session is not for several threads at once: a lock lets one run in at a time.
    """

    def __init__(
        self,
        devices: str | Sequence[str] | Opened | None = None,
        *,
        profile: Profile = None,
        remember: bool | None = None,
        serve: bool | None = None,
        merging: Merging | None = None,
        as_planned: bool = False,
        checkpoint: int | None = None,
    ) -> None:
        flags.check()
        checkpoint = checkpoint or 0
        self.debug = flags.debug()
        self.observers = debugging(self.debug)
        if not isinstance(devices, Opened):
            devices = opener(serve)(devices if devices is not None else flags.devices())
        everything, opened = devices
        events = DeviceEvents((d.name for d in everything.devices), left)
        self.models = Models(remember)
        self.devices = DeviceSet(everything, opened, events, self.models, profile)
        self.data = SessionData(self.devices, merging or cast("Merging", flags.merging()), as_planned, checkpoint)
        self.backend = self.devices.backend
        self.directory, self.buffers = self.data.directory, self.data.buffers
        self.devices.rolls_back = checkpoint > 0
        if checkpoint > 0:
            self.buffers.rollback = Rollback(checkpoint, self.devices, self.directory, self.run)
        self.check_open = self.devices.check_open
        self._lowered_for = self.devices.changes
        self._checked: Callable[[], Graph | None] = lambda: None  # the last graph, which is within bounds
        _open.add(self)
        events.listen(self.backend.wake)
        events.listen(leaving(self.buffers))
        # a session that is dropped without being closed keeps what it has learned, and ends its threads
        weakref.finalize(self, _dropped, self.devices).atexit = False
        if len(everything.devices) > 1:
            self.models.background.load()
        log.info("opened %s", ", ".join(f"{d.name} ({d.model})" for d in everything.devices))
        watch(self.devices)

    @property
    def machine(self) -> Machine:
        """The machine of the devices that are used."""
        return self.devices.machine

    @property
    def closed(self) -> bool:
        """True once the devices have been released."""
        return self.devices.closed

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"devices: {', '.join(d.name for d in self.machine.devices) or 'none'}"
        left = f", left out: {', '.join(self.devices.excluded)}" if self.devices.excluded else ""
        return f"<manycl.Session, {state}{left}>"

    def close(self) -> None:
        """Release the devices. Arrays of the session cannot be used afterwards."""
        if is_forked():
            return  # the devices are another process's
        devices = self.devices
        devices.measuring.over.set()
        with devices.lock:
            if not devices.closed:
                with suppress(Exception):  # the error is raised by the queue that is used next
                    devices.end_stream()
                devices.closed = True
                if self.backend.is_idle:  # behind an interrupted run nothing is waited for
                    devices.measuring.close()
                log.debug("closing %s", ", ".join(d.name for d in devices.everything.devices))
                devices.builder.close()
                self.models.background.close()
                self.models.save(self.machine)
                is_over = self.backend.close()
                for key in (*self.directory.valid, *self.directory.valid_regions) if is_over else ():
                    self.backend.memory.release(key)
                if is_over:
                    self.backend.memory.trim()

    def admit(self, name: str) -> None:
        """Use a device again that was left out. Raises DeviceError if it still does not work."""
        self.check_open()
        with self.devices.lock, Uninterrupted():
            self.devices.end_stream()
            self.backend.settle()
            admit(self.devices, self.directory, name)

    def memory(self) -> Mapping[str, MemoryUse]:
        """Return the bytes in use, and the bytes kept for arrays and results to come, of the host and of each device
        with memory of its own. Memory dropped since the last run counts as in use."""
        self.check_open()
        with self.devices.lock:
            return self.backend.memory.use()

    def trim(self) -> None:
        """Free the memory that arrays and results have left behind and that is kept for later ones."""
        self.check_open()
        with self.devices.lock, Uninterrupted():
            self.devices.end_stream()
            self.buffers.collect()
            self.backend.memory.trim()
            self.backend.undo.trim()
            self.backend.kept.trim()

    # runs

    def problem(
        self, graph: Graph, queues: Mapping[str, int] | None = None, options: Mapping[str, str] | None = None
    ) -> Problem:
        """Return the problem of a policy for this graph in the session's present state. ``queues`` by device."""
        self.devices.learn()
        return problem_of(self.devices, self.data, graph, queue_counts(self.machine, queues or {}), options)

    def guessed(self, graph: Graph, enough: float = inf) -> float:
        """Return roughly the seconds of a graph's nodes, each on the device that is fastest for it, one after another;
        of its first nodes, if these take ``enough``."""
        found, seconds = estimates_of(self.devices, graph).uncounted(), 0.0
        for node in range(len(graph)):
            seconds += min([found.launch(node, d) for d in self.machine.indices], default=0.0)
            if seconds >= enough:
                break
        return seconds

    def guessed_first(self, launch: Launch) -> float:
        """Return roughly the seconds of a launch on the fastest device, on buffers of the session."""
        try:
            sizes = self.backend.memory.nbytes
            buffers = {key: Buffer(key, sizes(key)) for key in {*launch.reads, *launch.writes}}
            return self.guessed(Graph((launch,), buffers, ((),)))
        except Exception as error:
            told(error, "guessing the time of a launch")
            return inf

    def run(
        self,
        graph: Graph,
        policy: str | Policy | Plan | None = None,
        *,
        queues: Mapping[str, int] | None = None,
        options: Mapping[str, str] | None = None,
        observers: Sequence[Observer] = (),
        repeated: int = 0,
        trial: Trial = FIRST,
        learning: bool = True,
    ) -> Result:
        """Plan and run a graph. Raises what the engine raises, and LaunchError for a launch that certainly leaves its
        buffers. ``policy``: a name, a policy object or a plan. ``repeated``: as in
        :class:`manycl.plan.problem.Problem`; ``trial``: what the run is compared with, so that what is left of it
        follows another plan where that is faster; ``learning``: whether its kernels' times are learned from."""
        self.check_open()
        if self._checked() is not graph:
            bounds.check(graph)
            self._checked = weakref.ref(graph)
        with self.devices.lock, Uninterrupted():
            result = None
            while result is None:  # until it has begun on devices that work
                self._get_ready(graph, learning)
                devices = self.devices
                if devices.events.away or not devices.machine.devices:
                    await_devices(devices)
                watch = EventMonitor(devices.events, devices.machine, devices.used)
                wanted = RunRequest(policy, queues, options, repeated, trial.rival)
                problem, chosen, name = asked(devices, self.data, graph, wanted)
                play = partial(
                    execute,
                    problem,
                    chosen,
                    self.backend,
                    self.directory,
                    name=name,
                    setup=Setup(self._lower, self._prepare, partial(self._left, problem), devices.mortal, trial),
                    observers=(*self.observers, *observers),
                    watch=watch,
                )
                result = self._attempt(graph, play)
            log.info("planned and ran: %r", result)
            return result

    def plan_ahead(
        self,
        graph: Graph,
        wanted: RunRequest,
        directory: Directory,
        given: Set[BufferKey],
        then: Callable[[Plan | None], None],
    ) -> None:
        """Plan a graph in the background, for buffers that are valid where ``directory`` says, which nobody else
        changes any more, but those ``given`` get their contents from the host before each run. ``then`` gets the plan
        (None: there is none, or none can have gained enough), in another thread."""
        data = copy(self.data)
        data.directory = directory
        for key in given:
            directory.define(key)
        with self.devices.lock:
            problem, chosen, _ = asked(self.devices, data, graph, wanted)
        prepare = partial(_prepare_ahead, self.devices, data, problem, given)
        self.models.background.plan(problem, chosen, prepare, then, wanted.gained)

    def repeat(self, graph: Graph, version: int, learning: bool, play: Callable[[], Result | None]) -> Result | None:
        """Run a graph again by ``play``. Return None where the devices' events have another ``version``, or where
        nothing was played. Raises what ``run`` raises."""
        self.check_open()
        with self.devices.lock, Uninterrupted():
            self._get_ready(graph, learning)
            if version != self.devices.events.version:
                return None
            result = self._attempt(graph, play)
            log.debug("ran as before: %r", result)
            return result

    def _get_ready(self, graph: Graph, learning: bool) -> None:
        """Leave nothing of earlier runs under way, and set the clocks."""
        if self.devices.stream is not None:
            self.devices.end_stream()
        if self.buffers.rollback is not None:
            self.buffers.rollback.begin(graph)
        self.buffers.collect()
        self.devices.use_clocks(learning)

    def _attempt(self, graph: Graph, play: Callable[[], Result | None]) -> Result | None:
        """Run a graph by ``play``, with all that surrounds a run. Return None where nothing was played, or where a
        device was found to be lost before anything had begun, and is left out now."""
        for key in [key for key in self.directory.unchanged if key in graph.last_writers]:
            del self.directory.unchanged[key]
        lost = [key for key in graph.buffers if key in self.directory.lost] if self.directory.lost else []
        written = self._written(graph, lost) if lost else {}
        rollback = self.buffers.rollback
        try:
            result = play()
        except ManyclError as error:
            if not self._may_begin_again(graph, error):
                raise
            return None
        except BaseException:
            if rollback is not None:
                rollback.failed(graph)
            raise
        finally:
            self.devices.used.become(())
            self.backend.memory.tidy()
        if result is None:
            return None
        for key, region in written.items():
            self.directory.heal(key, region, self.backend.memory.nbytes(key))
        if result.lost:
            examine(self.devices, self.directory)
        if rollback is not None:
            rollback.ran(graph)
            if result.lost:
                rollback.recover()
        if result.lost:
            return result
        playback = result.playback
        # launches in packets run beside each other: their times tell little of whole launches
        is_in_packets = (
            playback is not None and playback.command_graph.problem.demanded and playback.command_graph.lowered.chunks
        )
        if not is_in_packets and not isinstance(result.record, MergedRecord):  # other times are disturbed
            self.devices.learn_from(result)
        return result

    def _may_begin_again(self, graph: Graph, error: ManyclError) -> bool:
        """Return, after a failure, whether a device is left out now and nothing of the run had begun, or all is as
        before it."""
        before, rollback, has_begun = self.devices.changes, self.buffers.rollback, isinstance(error, RunFailure)
        examine(self.devices, self.directory)
        is_lost = self.devices.changes != before and bool(self.machine.devices)
        if rollback is None:
            return is_lost and not has_begun
        if is_lost and (not has_begun or is_repeatable(graph)) and rollback.recover(graph):
            return True
        rollback.failed(graph)
        return False

    def _written(self, graph: Graph, lost: Sequence[BufferKey]) -> dict[BufferKey, Region]:
        """Return the bytes that a run of a graph writes for certain, for buffers whose contents are unknown. Raises
        ResultError where the run may read unknown contents."""
        found = contents(graph, lost)
        for key, (needed, _) in found.items():
            self.directory.check(key, needed)
        return {key: written for key, (_, written) in found.items()}

    def _left(self, problem: Problem, graph: Graph) -> Problem:
        """Return the problem of what is left of a problem's graph."""
        return problem_of(self.devices, self.data, graph, problem.queues, problem.options)

    def _lower(self, problem: Problem, plan: Plan | None, directory: Directory) -> Lowered:
        """Return the steps of a plan. Raises PolicyError where ranges are to run in versions that their devices cannot
        run, which no later plan uses, and what lowering raises."""
        if self._lowered_for != self.devices.changes:  # steps are for the devices that there were
            self._lowered_for = self.devices.changes
            self.data.steps.clear()
        lowered = self.data.steps.lower(problem, plan, directory)
        with interruptible:
            unable = list(self.devices.builder.unable(problem.graph, lowered))
        for version, device, fault in unable:
            name = self.machine.devices[device].name
            self.models.history.unable.add((kernel_key(version), identity(self.machine.devices[device])))
            raise PolicyError(f"a version of a kernel, {version.kernel.name}, cannot run on {name}: {fault}")
        return lowered

    def _prepare(self, lowered: Lowered, playback: Playback) -> None:
        """Make room for what the run needs, and build its programs and kernels for the devices."""
        make_room(self.devices, self.data, lowered, playback)
        with interruptible:
            self.devices.builder.build(lowered, playback.queues)
        self.devices.use(playback.queues)


def _prepare_ahead(devices: DeviceSet, data: SessionData, problem: Problem, given: Set[BufferKey], plan: Plan) -> None:
    """Make the steps of a plan that is yet to run, and build their kernels, so that its first run need not. Raises what
    lowering and building raise."""
    lowered = data.steps.lower_ahead(following(problem, plan), plan, data.directory, given)
    if lowered is not None and lowered.plan is not None:
        for a in lowered.plan.assignments:
            task = lowered.graph.nodes[a.node]
            if isinstance(task, Launch) and not task.versions:
                devices.build(task, [a.device])


def _dropped(devices: DeviceSet) -> None:
    devices.measuring.over.set()
    devices.models.background.close()
    if not (devices.closed or is_forked()):
        devices.models.save(devices.machine)
    devices.backend.release()


@atexit.register
def _close_all() -> None:
    for session in list(_open):
        if is_failing():  # objects that the devices still use are never freed
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))
        else:
            session.close()
