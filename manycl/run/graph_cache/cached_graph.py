"""What is known of a graph that comes again: what it took by a plan and without one, and which way it goes next."""

from __future__ import annotations

import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Sequence
from math import inf
from operator import is_
from statistics import median_low

from manycl.errors import PolicyError
from manycl.graph.graph import BufferKey, DeviceTask, Graph
from manycl.graph.signature import Signature
from manycl.machine import DeviceIndex, Machine
from manycl.plan.plan import ON_HOST, Plan
from manycl.plan.preemptible import is_long
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.commands.flow_control import at_once
from manycl.run.engine.result import Result
from manycl.run.graph_cache.autotuner import PLANNED_RUNS, SECOND_THOUGHTS, Autotuner
from manycl.run.graph_cache.background_analysis import Interest
from manycl.run.session.session import LastTime, Session
from manycl.run.streams.eager_result import EagerResult, Given

THOUGHTS = (*SECOND_THOUGHTS, *(4**n for n in range(3, 10)))
"""After so many runs of a plan the policy is asked once more: ever more rarely, as devices and links may change."""
FLIGHTS = 2
"""Runs without a plan that are compared with those of plans, at first."""
RECENT = 5
"""The last runs of each way, of which the median tells what it takes."""
SETTLED = 16
"""Runs without a plan after which not each is looked at any more, if none takes long."""
WORTH = 1e-3
"""Seconds: what takes less without a plan takes no less with one."""
LONG = 1e-2
"""Seconds: one run without a plan that takes as long tells enough."""
HOPELESS = 2
"""Planned runs after which no more are tried if all took twice as long as without a plan."""
VARIED, MOST_SEEN = 8, 1024
"""Graphs of a kind that differ by their scalars: how many are known each by itself when they come first; of how many it
is known that they came."""
RETRIED, RARELY = 32, 4096
"""After so many runs of one way the other one is tried again, then after twice as many each time, at most this: what
was seen of it may have been a disturbance, and devices and links may change."""


class CachedGraph:
    """One of them. ``thoughts``: as of trials; nothing is tried where there is nothing to choose."""

    def __init__(self, nodes: int, of: Signature, thoughts: Sequence[int]) -> None:
        self.nodes = nodes
        self.graph: Graph | None = None  # its edges, once they were needed
        self.signature = of
        self.then: weakref.ref[CachedGraph] | None = None  # what came next
        self.stays = False  # whether no device can be given all of it
        self._device: DeviceIndex | None = None  # that can be given it
        self._given: list[DeviceTask] = []  # in its last flight
        self._flights = self._planned = self._runs = 0
        self._plan = inf  # seconds of the fastest plan's run, planning apart
        # seconds of the last runs without a plan, and of what is kept
        self._flown, self._played = deque[float](maxlen=RECENT), deque[float](maxlen=RECENT)
        self._thoughts = thoughts
        self._trials = Autotuner(thoughts=thoughts)
        self._until_other = self._patience = RETRIED  # runs of one way before the other one is tried
        self._latest = 0.0  # seconds of the last run
        self._answer: Plan | None = None  # the policy's last
        self._was_other = False  # whether the last run was one of another plan than is kept
        self.interest = Interest()
        self.is_looked_at = False
        self._forget()

    @property
    def is_new(self) -> bool:
        """Whether it has not run before."""
        return not self._runs

    @property
    def is_long(self) -> bool:
        """Whether its last run took so long that planning it is little beside that."""
        return self._latest >= LONG

    def is_awaited(self, machine: Machine) -> bool:
        """Whether its last run took so long that others, who ask for one of the devices, would have to wait."""
        return any(is_long(device, self._latest) for device in machine.devices)

    @property
    def thinks(self) -> bool:
        """Whether there is anything to choose."""
        return bool(self._thoughts)

    def asking(self) -> tuple[int, bool]:
        """``repeated`` and ``rival`` of the problem that the policy is asked."""
        return (self._trials.planned + 1, self._trials.rival) if self.is_looked_at else (0, False)

    def look_again(self) -> None:
        """More is known now of what may be planned, which is tried."""
        self.is_looked_at = True
        self._planned, self._plan = 0, inf
        self._played.clear()
        self._trials = Autotuner(thoughts=self._thoughts)
        self._forget()

    def _forget(self) -> None:
        self._script: CommandGraph | None = None
        self._keys: tuple[BufferKey, ...] = ()
        self._last = LastTime()

    def took(self, seconds: float, ran: float | None) -> None:
        """It was planned, and the run alone took so long (``ran``; infinite: it will be planned again), or what is kept
        was played (None)."""
        self._runs += 1
        self._latest = seconds
        if ran is not None:
            self._planned += 1
            self._plan = min(self._plan, seconds, ran)
        elif not self._was_other:
            self._played.append(seconds)
        if self._device is None and self._answer is not None and self._planned >= PLANNED_RUNS:
            used = Counter(a.device for a in self._answer.assignments if a.device != ON_HOST)
            self._device = used.most_common(1)[0][0] if used else None

    def rests(self, device: DeviceIndex) -> bool:
        """Whether it comes again and again, and nothing takes less than giving it to that device."""
        if self._flights < SETTLED or self._device != device or self.stays or self.then is None:
            return False
        if not self._flown:  # it is about to be found out anew what they take
            return False
        return self.then() is self and median_low(self._flown) < WORTH

    def flew(self, run: EagerResult, seconds: float) -> None:
        """It was given to a device without a plan."""
        self._runs += 1
        self._flights += 1
        self._flown.append(seconds)
        self._latest = seconds
        self._device, self._given = run.device, [task for task, _, _ in run.given]

    def is_like(self, given: Sequence[Given]) -> bool:
        """Whether commands are those of its last flight, on whatever buffers."""
        return len(given) == len(self._given) and all(map(is_, self._given, [task for task, _, _ in given]))

    def way(self, guess: DeviceIndex | None) -> DeviceIndex | None:
        """The device that it is to be given to, or None where it is to be planned; ``guess``: the device where nobody
        knows a better one."""
        device = self._device if self._device is not None else guess
        if device is None or self.stays:
            return None
        flight = median_low(self._flown) if self._flown else inf
        if self._flights < FLIGHTS and not LONG <= flight < inf:
            return device
        plan = median_low(self._played) if self._played else self._plan
        is_hopeless = self._planned >= HOPELESS and plan > 2.0 * flight
        is_tried = self._planned >= PLANNED_RUNS or is_hopeless or flight < WORTH
        flies = is_tried and flight <= plan
        is_settled = flies and flight < WORTH  # a plan gains nothing
        if is_tried and not is_settled and self._flights >= FLIGHTS and self._planned:
            self._until_other -= 1
            if self._until_other < 0:
                self._patience = min(2 * self._patience, RARELY)
                self._until_other = self._patience
                flies = not flies
                (self._flown if flies else self._played).clear()  # what it takes now counts
        return device if flies else None

    def answered(self, result: Result, keys: tuple[BufferKey, ...]) -> None:
        """The policy was asked, and that was the run."""
        plan = self._answer = result.settled
        if self._thoughts:
            self._trials.answered(result.seconds, plan)
        else:
            self._trials = Autotuner(plan, thoughts=())
        if self._trials.plan is not None and self._trials.plan is plan:
            self._remember(result, keys)

    def again(self, session: Session, graph: Graph, of: Signature) -> Result | None:
        """Run what is kept; None where the policy is to be asked."""
        plan, keys = self._trials.plan, of.keys
        if plan is None:
            return None
        self._was_other = self._trials.is_comparing
        result = None
        if self._script is not None and self._script.plan is plan:
            script = self._script.on(graph, dict(zip(self._keys, keys, strict=True)))
            result = session.on_others(script, self._last, keys, of.scalars)
        if result is None:
            result = self._follow(session, graph, keys, plan)
        if result is None:
            self._trials = Autotuner(thoughts=self._thoughts)
        else:
            self._trials.repeated(result.seconds)
        return result

    def _follow(self, session: Session, graph: Graph, keys: tuple[BufferKey, ...], plan: Plan) -> Result | None:
        try:
            result = session.run(graph, plan)
        except PolicyError:  # it cannot be followed any more
            return None
        self._remember(result, keys)
        return result

    def _remember(self, result: Result, keys: tuple[BufferKey, ...]) -> None:
        """What a plan was compiled to. What is done again is enqueued at once: of long runs that would be more than
        Ctrl-C may have to wait for."""
        self._forget()
        script = result.script
        if script is not None and script.is_plain and result.seconds <= at_once(script.problem):
            self._script, self._keys = script, keys


class Varied(CachedGraph):
    """Graphs that differ by their scalars, which decide what is touched, as a loop's counter does. The first ones are
    known each by itself; then those that have not been seen before are known together: planned anew each time, or
    given to a device without a plan, whichever takes less."""

    def __init__(self, nodes: int, of: Signature, thoughts: Sequence[int]) -> None:
        super().__init__(nodes, of, thoughts)
        self._seen: OrderedDict[Hashable, None] = OrderedDict()

    def is_first(self, scalars: Hashable) -> bool:
        """Whether a graph with these is to be known with the others, as it was not seen before."""
        if scalars in self._seen:
            return False
        self._seen[scalars] = None
        if len(self._seen) > MOST_SEEN:
            self._seen.popitem(last=False)
        return len(self._seen) > VARIED

    def took(self, seconds: float, ran: float | None) -> None:
        """Planning counts, too, as it is done each time."""
        super().took(seconds, ran)
        self._played.append(seconds)

    def answered(self, result: Result, keys: tuple[BufferKey, ...]) -> None:
        self._answer = result.settled
