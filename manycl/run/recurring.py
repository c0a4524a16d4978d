"""Graphs that come again, enqueued anew: recognised by their signature, and played as prepared ones are.

A loop that makes its arrays where it needs them enqueues the same graph each time, on other buffers. Its first runs are
planned, each knowing better how long kernels take; then the plan that ran fastest is kept, and what it was compiled to
is played on the new buffers. Where arrays are when it begins is part of what is recognised.

What came after a graph the last time is expected to come after it again. Once it has a plan that is kept, it is given
to the device that does most of it command by command, before anybody knows that it is this graph
(:mod:`manycl.run.flight`): of both ways, the one that has taken less time is kept. Where something else comes, that is
right as well, only not planned. With one device nothing is planned; where there are GPUs, what nobody knows is given to
one at first, and planned when it has come again.
"""

from __future__ import annotations

import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from math import inf
from operator import is_
from statistics import median_low

from manycl.errors import PolicyError
from manycl.graph import bounds
from manycl.graph.dependences import Batch
from manycl.graph.graph import BufferKey, DeviceTask, Graph
from manycl.graph.horizon import HORIZON
from manycl.graph.signature import Signature, deciding_scalars, signature
from manycl.machine import DeviceIndex
from manycl.plan import policies
from manycl.plan.plan import ON_HOST, Plan
from manycl.plan.policy import find, is_static, learns
from manycl.plan.problem import queue_counts
from manycl.run.looking import Interest
from manycl.run.pace import AHEAD
from manycl.run.result import Result
from manycl.run.script import Script
from manycl.run.session import LastTime, Session
from manycl.run.trials import PLANNED_RUNS, SECOND_THOUGHTS, Trials
from manycl.run.unplanned import Given, UnplannedRun

KEPT, NODES = 64, 1 << 16
"""Graphs that are kept, and nodes of all of them."""
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
NEW = 4
"""Graphs in a row that were new and took less than WORTH: then the next that is new is not planned either."""
ONLY = DeviceIndex(0)
"""The device, where there is one."""
RETRIED, RARELY = 32, 4096
"""After so many runs of one way the other one is tried again, then after twice as many each time, at most this: what
was seen of it may have been a disturbance, and devices and links may change."""


class Recurring:
    """The graphs of a queue that have run, by what they are and where their buffers were."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: OrderedDict[Hashable, _Known] = OrderedDict()
        self._nodes = 0
        self._changes = session.changes
        self._static: dict[str, bool] = {}
        self._last: _Known | None = None
        self._expected: _Known | None = None
        self._quick = 0  # graphs in a row that were new and took little
        self._foreseen: tuple[DeviceIndex | None] | None = None  # what was expected ahead of time
        self._ran: float | None = None  # seconds of the last run, planning apart, if it was planned anew

    def run(
        self, batch: Batch, policy: str, queues: Mapping[str, int] | None, options: Mapping[str, str] | None
    ) -> Result:
        """Run what was enqueued by the policy of that name; raises what ``Session.run`` raises."""
        session = self._session
        self._forget_others()
        self._expected = None
        found = signature(batch) if len(batch.nodes) <= NODES and self._is_static(policy) else None
        if found is None:
            return session.run(batch.graph(), policy, queues=queues, options=options)
        directory, keys = session.directory, found.keys
        places = tuple([directory.parts.get(key) or directory.valid.get(key, 0) for key in keys])
        known = self._expected = self._find(batch, found, places, policy, queues, options)
        if known.graph is None:
            graph = known.graph = batch.graph()
            known.signature = found  # of the buffers that the graph names
        else:
            graph = batch.as_in(known.graph, dict(zip(known.signature.keys, keys, strict=True)))
            if found.scalars != known.signature.scalars:
                bounds.check(graph)
            result = known.again(session, graph, found)
            if result is not None:
                self._ran = None
                return result
        repeated, rival = known.asking()
        result = session.run(graph, policy, queues=queues, options=options, repeated=repeated, rival=rival)
        known.answered(result, keys)
        is_postponed = result.plan is not None and result.plan.details.get("postponed")  # it is planned again
        self._ran = inf if is_postponed else result.seconds
        self._note(known, result.seconds)
        return result

    def took(self, seconds: float) -> None:
        """What ``run`` has done took so long, from the first call that enqueued it on."""
        known = self._expected
        if known is not None:
            known.took(seconds, self._ran)
            self._look(known, seconds, lambda: known.graph)
        self._follow(known)

    def expect(self) -> DeviceIndex | None:
        """The device that is given what comes next as it is enqueued; None where that is planned when a result is asked
        for."""
        away = self._session.away
        if self.is_alone:
            return None if ONLY in away else ONLY
        found = self._expect()
        return None if found in away else found

    def _expect(self) -> DeviceIndex | None:
        self._forget_others()
        if self._foreseen is not None:
            (found,), self._foreseen = self._foreseen, None
            return found
        self._expected = self._last.then() if self._last is not None and self._last.then is not None else None
        if self._expected is None:
            return self._guess
        return self._expected.way(self._guess) if self._expected.nodes < HORIZON else None  # parts are compared as such

    def goes_on(self, device: DeviceIndex) -> bool:
        """Whether a device that was given what came last is given what comes next as well."""
        if device in self._session.away:
            return False
        if self.is_alone:
            return True
        found = self.expect()
        if found == device:
            return True
        self._foreseen = (found,)
        return False

    def rests(self, device: DeviceIndex) -> bool:
        """Whether a device may be given what comes next without anybody looking at each run: there is nothing to
        choose, or what came last comes again and again, and a plan gains nothing."""
        return self.is_alone or (self._last is not None and self._last.rests(device))

    @property
    def _guess(self) -> DeviceIndex | None:
        """The device that is given what nobody knows: the first GPU. Where there is none, devices are parts of one
        processor, and a plan costs little beside what each of them does, unless that is little each time."""
        machine, lanes = self._session.machine, self._session.backend.lanes
        found = next((d for d in machine.indices if lanes[d].watched), None)
        if found is None and self._quick >= NEW and machine.devices:
            return max(machine.indices, key=lambda d: machine.devices[d].flops)
        return found

    @property
    def is_alone(self) -> bool:
        """Whether there is one device."""
        return len(self._session.machine.devices) == 1

    def flew(
        self,
        run: UnplannedRun,
        seconds: float,
        policy: str,
        queues: Mapping[str, int] | None,
        options: Mapping[str, str] | None,
    ) -> None:
        """A device was given all that was enqueued, which took so long from the first command on."""
        if self.is_alone:
            return  # no plan is better
        known = self._expected
        if known is None or not known.is_like(run.given):
            found = signature(run.batch) if len(run.given) <= NODES else None
            if found is not None:
                places = tuple([run.found[key] for key in found.keys])
                known = self._find(run.batch, found, places, policy, queues, options)
        if known is not None:
            self._note(known, seconds)
            known.flew(run, seconds)
            self._look(known, seconds, lambda: run.batch)
        self._follow(known)

    def _note(self, known: _Known, seconds: float) -> None:
        """A graph that may be new has taken so long."""
        if known.is_new:
            self._quick = self._quick + 1 if seconds < WORTH else 0

    def _look(self, known: _Known, seconds: float, graph: Callable[[], Batch | Graph | None]) -> None:
        """Take note of what a graph takes, and of what has been found out beside it."""
        session = self._session
        if known.nodes > NODES or not known.thinks:
            return
        session.looking.ran(known.interest, seconds, len(session.machine.devices), graph)
        if known.interest.is_done and not known.is_looked_at:
            known.look_again()

    def stayed(self) -> None:
        """Some of what was enqueued could not be given to the device that was expected to get all."""
        if self._expected is not None:
            self._expected.stays = True
        self._follow(None)

    def _follow(self, known: _Known | None) -> None:
        if self._last is not None:
            self._last.then = weakref.ref(known) if known is not None else None
        self._last = known

    def _forget_others(self) -> None:
        """What is known of other devices than there are now is forgotten."""
        if self._changes != self._session.changes:
            self._known.clear()
            self._last = self._expected = self._foreseen = None
            self._nodes, self._changes = 0, self._session.changes

    def _find(
        self,
        batch: Batch,
        found: Signature,
        places: tuple[object, ...],
        policy: str,
        queues: Mapping[str, int] | None,
        options: Mapping[str, str] | None,
    ) -> _Known:
        machine = self._session.machine
        settings = tuple((queues or {}).items()), tuple((options or {}).items())
        alone = queue_counts(machine, queues or {}) == (1,)
        # with one device that computes in the host's memory, nothing is decided by the scalars
        scalars = () if alone and machine.memories == 1 else deciding_scalars(batch)
        key = (policy, *settings, places, found.structure, scalars, self._session.away)
        known = self._known.get(key)
        if known is None:
            return self._keep(key, _Known(len(batch.nodes), found, () if alone else THOUGHTS))
        self._known.move_to_end(key)
        return known

    def _is_static(self, policy: str) -> bool:
        """Whether a policy plans before the run; a user's own may have reasons to be asked each time."""
        found = self._static.get(policy)
        if found is None:
            made = find(policy)
            is_own = type(made).__module__.startswith(f"{policies.__name__}.")
            found = self._static[policy] = is_own and is_static(made) and not learns(made)
        return found

    def _keep(self, key: Hashable, known: _Known) -> _Known:
        self._known[key] = known
        self._nodes += known.nodes
        while len(self._known) > KEPT or self._nodes > NODES:
            _, oldest = self._known.popitem(last=False)
            self._nodes -= oldest.nodes
        return known


class _Known:
    """One of them. ``thoughts``: as of trials; nothing is tried where there is nothing to choose."""

    def __init__(self, nodes: int, of: Signature, thoughts: Sequence[int]) -> None:
        self.nodes = nodes
        self.graph: Graph | None = None  # its edges, once they were needed
        self.signature = of
        self.then: weakref.ref[_Known] | None = None  # what came next
        self.stays = False  # whether no device can be given all of it
        self._device: DeviceIndex | None = None  # that can be given it
        self._given: list[DeviceTask] = []  # in its last flight
        self._flights = self._planned = self._runs = 0
        self._plan = inf  # seconds of the fastest plan's run, planning apart
        # seconds of the last runs without a plan, and of what is kept
        self._flown, self._played = deque[float](maxlen=RECENT), deque[float](maxlen=RECENT)
        self._thoughts = thoughts
        self._trials = Trials(thoughts=thoughts)
        self._until_other = self._patience = RETRIED  # runs of one way before the other one is tried
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
        self._trials = Trials(thoughts=self._thoughts)
        self._forget()

    def _forget(self) -> None:
        self._script: Script | None = None
        self._keys: tuple[BufferKey, ...] = ()
        self._last = LastTime()

    def took(self, seconds: float, ran: float | None) -> None:
        """It was planned, and the run alone took so long (``ran``; infinite: it will be planned again), or what is kept
        was played (None)."""
        self._runs += 1
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

    def flew(self, run: UnplannedRun, seconds: float) -> None:
        """It was given to a device without a plan."""
        self._runs += 1
        self._flights += 1
        self._flown.append(seconds)
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
            self._trials = Trials(plan, thoughts=())
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
            self._trials = Trials(thoughts=self._thoughts)
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
        if script is not None and script.is_plain and result.seconds <= AHEAD:
            self._script, self._keys = script, keys
