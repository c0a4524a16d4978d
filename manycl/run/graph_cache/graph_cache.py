"""The graph cache: repeated graphs, enqueued anew, are recognised by their signature and played as prepared ones are.

A loop that makes its arrays where it needs them enqueues the same graph each time, on other buffers. Its first runs are
planned, each knowing better how long kernels take; then the plan that ran fastest is kept, and its command graph is
played on the new buffers. The places of arrays at the beginning are part of what is recognised.

The graph that came after another one the last time is expected again. Once it has a kept plan, its commands are also
given eagerly to the device that does most of it, before it is known that they are this graph
(:mod:`manycl.run.streams.eager_stream`); of both ways the faster one is kept. If other commands come, the results are
right as well, only without a plan. With one device nothing is planned. Where there are GPUs, an unknown graph is first
given to one, and planned when it comes again.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from math import inf
from typing import TYPE_CHECKING

from manycl.graph.copies import Place
from manycl.graph.dependences import Batch
from manycl.graph.graph import BufferKey, DeviceTask, Graph, Launch
from manycl.graph.signature import Signature, signature
from manycl.machine import HOST_BIT, Device, DeviceIndex, queue_counts
from manycl.model.transfer import LARGE
from manycl.plan import policies
from manycl.plan.movable import SHORTEST
from manycl.plan.policy import find, is_static, learns
from manycl.plan.split import AnalysedSplits
from manycl.region import NOTHING
from manycl.run.data.coherence import ValidRegion
from manycl.run.engine.divisions import MEASURED
from manycl.run.engine.result import Result
from manycl.run.graph_cache.background_analysis import Interest
from manycl.run.graph_cache.recurring_graph import RecurringGraph, VariedGraph
from manycl.run.session.session import Session
from manycl.run.streams.eager_result import EagerResult
from manycl.run.streams.eager_rule import Decision, Facts, decide, gains_nothing
from manycl.utilities.kept import ENOUGH, FEW

if TYPE_CHECKING:
    from manycl.run.streams.eager_stream import EagerStream

NODES = 1 << 16
"""The most nodes of all graphs that are cached; our own choice."""


class GraphCache:
    """The graphs of a queue that have run, by their signature and the places of their buffers. ``queues`` and
    ``options``: as of :meth:`Session.run`, of the runs from now on."""

    def __init__(self, session: Session, queues: Mapping[str, int], options: Mapping[str, str]) -> None:
        self._session, self.queues, self.options = session, queues, options
        self._known: OrderedDict[Hashable, RecurringGraph] = OrderedDict()
        self._varied: OrderedDict[Hashable, VariedGraph] = OrderedDict()
        self._nodes = 0
        self._changes = session.devices.changes
        self._static: dict[str, bool] = {}
        self._interest = Interest()  # in launches of policies that decide at run time
        self._last: RecurringGraph | None = None
        self._expected: RecurringGraph | None = None
        self._fresh: tuple[tuple[float, int], ...] = ()  # seconds and nodes of the last graphs that were new
        self._decided: Decision | None = None  # how the last commands run
        self._seen = ""  # the policy of the last decision
        self._events, self._version = session.devices.events, -1  # of the devices that were looked at last
        self._demanded = frozenset[DeviceIndex]()
        self._policy = ""  # of the last graph
        self._there = Facts()[2:9]  # what is known of these
        self._foreseen: Decision | None = None  # what was decided ahead of time
        # seconds of the last planned run, of all reads before, and of giving its buffers their contents
        self._unread: tuple[float, float, float] | None = None
        # the graph of the last eager run, and the seconds of all reads before it had ended
        self._behind: tuple[RecurringGraph, float] | None = None
        self._is_decided = False  # whether it is decided how the commands run that come now

    def results(self, read: Iterable[Place | None]) -> tuple[BufferKey, ...]:
        """Return the buffers that count as results of a graph behind which the host reads some bytes: large ones of
        which it reads all, where that has to be moved."""
        if not self._session.devices.machine.is_spread:
            return ()
        return tuple([place.buffer.key for place in read if place and place.nbytes == place.buffer.nbytes >= LARGE])

    def run(self, batch: Batch, policy: str, read: Sequence[Place | None]) -> Result:
        """Run enqueued commands by the policy of that name. ``read``: what the host reads then; of graphs that were
        read before, what was read after each run counts. Raises what ``Session.run`` raises."""
        self._settle()
        self._note_read()
        session, self._policy, self._is_decided = self._session, policy, False
        if self._version != self._events.version:
            self._look_around()
        self._expected = None
        is_static = self._static.get(policy)
        if is_static is None:
            is_static = self._static[policy] = _is_static(policy)
        found = signature(batch) if is_static and len(batch.nodes) <= NODES else None
        if found is None:
            graph = batch.with_results(self.results(read)).graph()
            result = session.run(graph, policy, queues=self.queues, options=self.options)
            self._analyse(result)
            return result
        keys, parts, valid = found.keys, session.directory.valid_regions, session.directory.valid
        places = map(parts.get, keys, map(valid.get, keys, repeat(0)))
        known = self._expected = self._find(batch, found, places, policy)
        self._uses(known, found.keys)
        if known.may_be_read:
            batch = known.with_results(batch, found, lambda: self.results(read))
        result = known.run_batch(batch, found)
        if not known.runs:
            self._fresh = (*self._fresh, (result.seconds, known.nodes))[-ENOUGH:]
        result.details[MEASURED] = weakref.ref(known)
        return result

    def took(self, seconds: float) -> None:
        """Note the seconds of the last ``run``, from the first call that enqueued a part of it. What sending buffers
        their contents, and reading its results takes is added."""
        giving = self._giving()
        self._unread = seconds + giving, self._session.buffers.reading, giving

    def _settle(self) -> None:
        """Note the last run, whose results have been read by now."""
        if self._unread is not None:
            self._note_last(*self._unread)
        if self._behind is not None:
            (known, before), self._behind = self._behind, None
            known.read_behind(self._session.buffers.reading - before)

    def _giving(self) -> float:
        """Return the seconds that giving buffers callers' contents has taken since this was asked last."""
        buffers = self._session.buffers
        giving, buffers.giving = buffers.giving, 0.0
        return giving

    def _uses(self, known: RecurringGraph, keys: Collection[BufferKey]) -> None:
        """Note which buffers of a graph have got a caller's contents, as it uses them."""
        given = self._session.buffers.given
        known.given = frozenset([key for key in keys if key in given]) if given else frozenset()
        known.copying = sum([given.pop(key) for key in known.given]) if given else 0.0

    def _note_last(self, seconds: float, before: float, giving: float) -> None:
        """Note the last planned run, whose results have been read by now. ``before``: seconds of all earlier reads;
        ``giving``: of giving its buffers their contents."""
        self._unread = None
        reading, known = self._session.buffers.reading - before, self._expected
        seconds += reading
        if known is not None:
            is_new = not known.runs
            known.ran = known.ran and known.ran + giving
            known.took(seconds)
            is_due = not is_new and not known.is_looked_at  # a new one had code and memory to make
            if is_due and (self._demanded or not gains_nothing(seconds)):
                self._look(known, seconds, lambda: known.graph)
        self._follow(known)

    def _note_read(self) -> None:
        """Note what the host has read behind the last run."""
        if self._last is not None and self._last.may_be_read:
            self._last.note_read()
        self._session.buffers.asked.clear()

    def next(self, policy: str, first: DeviceTask | None = None) -> Decision:
        """Return how the next commands run: given to a device as they are enqueued, or planned when a result is asked
        for. ``first``: the first of them (None: it is not there yet)."""
        self._settle()
        (foreseen, self._foreseen), decided, session = (self._foreseen, None), self._decided, self._session
        self._is_decided = True
        if self._seen != policy or self._version != self._events.version:
            self._seen = policy
            self._look_around()
        elif foreseen is not None:
            return foreseen
        elif decided is not None and (decided.lasts or (decided.is_settled and self._is_repeated(decided.within))):
            return decided
        last = self._last if self._policy == policy else None
        known = last.then() if last is not None and last.then is not None else None
        if known is None and last is not None and last.begins_with(first):
            known = last
        self._expected = known
        if known is None:
            facts = Facts(policy, None, *self._there, False, self._fresh)
            if facts.devices > 1 and facts.gpu is None and facts.fastest is not None:
                planned = last if decided is not None and decided.device is None else None
                took = self._took(first, session.machine.devices[facts.fastest], planned)
                facts = facts._replace(first=took)
            self._decided = decide(facts)
        else:
            is_asked = bool(self._demanded) and known.is_looked_at
            is_awaited = is_asked and known.is_awaited(self._session.machine)
            if known.interest.is_done:
                known.examine()
            self._decided = decide(Facts(policy, None, *self._there, is_awaited, self._fresh, known.measured))
            known.obey(self._decided)
        return self._decided

    def _took(self, first: DeviceTask | None, device: Device, planned: RecurringGraph | None) -> float:
        """Return the seconds that a command took on such a device, also in the last graph, if that was ``planned`` and
        its commands were short: a plan of the next one would learn from that as well. Of a new kernel, a guess."""
        models, devices = self._session.models, self._session.devices
        took = models.took(first, device)
        is_short = planned is not None and gains_nothing(planned.usual / planned.nodes, planned.runs == 1)
        if took == inf and is_short and devices.lock.acquire(blocking=False):
            try:
                devices.learn()
            finally:
                devices.lock.release()
            took = models.took(first, device)
        return self._session.guessed_first(first) if took == inf and isinstance(first, Launch) else took

    def first_reads(self, key: BufferKey) -> Sequence[ValidRegion]:
        """Return the regions of a buffer that devices are expected to need first, with the masks of their memories;
        empty: that is not known. How the next commands run is decided now, if the graph is known that comes next."""
        if self._version != self._events.version:
            return ()
        self._settle()
        known = self._last.then() if self._last is not None and self._last.then is not None else None
        if known is not None and not self._is_decided:
            self._foreseen = self.next(self._seen)
        decided = self._decided
        if decided is None or decided.device is None:
            return known.first_reads(key) if known is not None else ()
        is_expected = known is not None or decided.lasts
        memory = self._session.machine.devices[decided.device].memory
        return (ValidRegion(NOTHING, 1 << memory),) if is_expected else ()

    def _is_repeated(self, within: float) -> bool:
        """Return whether the graph that was expected came, and took no longer than that."""
        return self._last is not None and self._last is self._expected and self._last.latest <= within

    def _look_around(self) -> None:
        """Look at the devices, as they have changed: these facts are the same for all graphs."""
        session, devices = self._session, self._session.devices
        machine, lanes = session.machine, session.backend.lanes
        self._version, self._demanded = self._events.version, devices.demanded
        self._decided = self._foreseen = None
        if self._changes != devices.changes:  # all graphs are for other devices
            self._known.clear()
            self._varied.clear()
            self._last = self._expected = None
            self._nodes, self._changes = 0, devices.changes
        gpu = next((d for d in machine.indices if lanes[d].watched), None)
        fastest = max(machine.indices, key=lambda d: machine.devices[d].flops, default=None)
        kinds = bool(self._demanded), bool(devices.mortal), any(d.shortens for d in machine.devices)
        self._there = len(machine.devices), devices.away, gpu, fastest, *kinds

    def goes_on(self, stream: EagerStream, policy: str) -> bool:
        """Return whether the device of an eager stream is also given the next commands."""
        decision = self.next(policy)
        if decision.device == stream.device:
            stream.why = decision
            return True
        self._foreseen = decision if self._expected is not None else None  # else the first command may tell
        return False

    def rests(self, device: DeviceIndex) -> bool:
        """Return whether a device may be given the next commands without an examination of each run."""
        decided = self._decided
        if decided is None or not decided.is_settled or decided.device != device:
            return False
        return self._version == self._events.version

    def ran_eagerly(self, run: EagerResult, seconds: float) -> None:
        """Note an eager run of all that was enqueued, by the policy of the last decision. ``seconds``: its time from
        the first command on."""
        if self._decided is not None and self._decided.lasts:
            return  # no plan is faster
        self._settle()
        self._is_decided = False
        seconds += self._giving()
        self._note_read()
        self._policy, known = self._seen, self._expected
        is_other = known is None or not known.is_like(run.given)
        if is_other or (isinstance(known, VariedGraph) and not gains_nothing(seconds)):
            found = signature(run.enqueued) if len(run.given) <= NODES else None
            if found is not None:
                places = map(run.found.__getitem__, found.keys)
                known = self._find(run.enqueued, found, places, self._seen)
                known.ran_on = found.keys
        if known is not None:
            self._uses(known, run.found)
            if is_new := not known.runs:
                self._fresh = (*self._fresh, (seconds, known.nodes))[-ENOUGH:]
            known.ran_eagerly(run, seconds)
            self._behind = (known, self._session.buffers.reading) if self._session.machine.is_spread else None
            run.known = weakref.ref(known)
            if self._demanded or not gains_nothing(known.usual, is_new):
                self._look(known, seconds, lambda: run.enqueued)
                known.plan_ahead(run)
        self._follow(known)

    def _look(self, known: RecurringGraph, seconds: float, graph: Callable[[], Batch | Graph | None]) -> None:
        """Note the seconds of a graph for its background analysis, and use its results."""
        is_awaited = bool(self._demanded) and known.is_awaited(self._session.machine)
        if known.nodes <= NODES and (known.thinks or is_awaited):
            known.analyse(seconds, graph, is_awaited)

    def was_planned_behind(self) -> None:
        """Note that some commands could not be given to the device that was expected to get all of them."""
        if self._expected is not None:
            self._expected.stays = True
        self._follow(None)

    def _follow(self, known: RecurringGraph | None) -> None:
        if self._last is not None:
            self._last.then = weakref.ref(known) if known is not None else None
        self._last = known

    def _find(
        self, batch: Batch, found: Signature, places: Iterable[int | tuple[ValidRegion, ...]], policy: str
    ) -> RecurringGraph:
        machine = self._session.devices.machine
        alone = len(machine.devices) == 1 and queue_counts(machine, self.queues) == (1,)
        # with one device that computes in the host's memory, scalars decide nothing
        scalars = () if alone and machine.memories == 1 else found.deciding
        # which bytes the parts of a buffer have, their command graphs know
        masks = tuple([place if isinstance(place, int) else [*zip(*place, strict=True)][1] for place in places])
        if given := self._session.buffers.given:  # wherever these are, the host has given them their contents
            masks = tuple([HOST_BIT if key in given else mask for key, mask in zip(found.keys, masks, strict=True)])
        settings = tuple(self.queues.items()), tuple(self.options.items())
        kind = (policy, *settings, masks, found.structure, self._there[1], self._demanded)
        known = self._known.get((kind, scalars))
        if known is None:
            how = self._session, len(batch.nodes), found, policy, self.queues, self.options
            varied = self._of_kind(kind, partial(VariedGraph, *how, False)) if scalars else None
            if varied is not None and varied.is_first(scalars):
                return varied
            return self._keep((kind, scalars), RecurringGraph(*how, not alone))
        self._known.move_to_end((kind, scalars))
        return known

    def _of_kind(self, kind: Hashable, made: Callable[[], VariedGraph]) -> VariedGraph:
        """Return the cache entry of graphs that differ by their scalars, ``made`` where there is none."""
        varied = self._varied.get(kind)
        if varied is None:
            varied = self._varied[kind] = made()
            if len(self._varied) > FEW:
                self._varied.popitem(last=False)
        self._varied.move_to_end(kind)
        return varied

    def _keep(self, key: Hashable, known: RecurringGraph) -> RecurringGraph:
        self._known[key] = known
        self._nodes += known.nodes
        while len(self._known) > FEW or self._nodes > NODES:
            _, oldest = self._known.popitem(last=False)
            self._nodes -= oldest.nodes
        return known

    def _analyse(self, result: Result) -> None:
        """Analyse in the background how long launches may be divided that a policy has given to devices at run time:
        later ones may leave their devices then."""
        problem = result.playback.command_graph.problem if result.playback is not None else None
        if problem is None or result.seconds < SHORTEST or not isinstance(splits := problem.splits, AnalysedSplits):
            return
        if self._interest.is_done:
            self._interest = Interest()
        if not all(map(splits.is_known, range(len(problem.graph)))):
            session = self._session
            session.models.background.begin(self._interest, lambda: problem.graph, session.devices.build)


def _is_static(policy: str) -> bool:
    """Return whether a policy plans before the run. A user's own policy is asked each time, as it may have reasons."""
    made = find(policy)
    return bool(policies.own_name(made)) and is_static(made) and not learns(made)
