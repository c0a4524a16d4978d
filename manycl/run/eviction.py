"""The state of a run that does not fit into the devices' memories: what a step needs there is admitted before it is
enqueued, and what others will need last makes way. Pure, like :mod:`manycl.run.state`.

What devices hold (*stores*), where pieces are valid and which commands use that is kept in :mod:`manycl.run.holdings`;
what moves, in :mod:`manycl.run.placed`.

Progress. A step is admitted when all that it depends on is complete, or enqueued on the same device. Of each device one
step at a time is being admitted. Its victims are stores that no other admitted step waits to use; a victim goes when
the commands that use it, which are all enqueued already, have completed, so this waits for nothing that waits for room.
Once admitted, a step waits for transfers alone: from the host's memory, from a store of its own device, or from another
device, which sends it to the host, where there is always room. So it is enqueued in the end, completes, and its stores
may become victims in turn. A step fits alone (``lower``), so when everything else has gone, it is admitted. While a
step is being admitted, or waits for a transfer, something that will be reported is under way: downloads always are, and
copies within a device, and steps of such devices are, but for one whose device has one queue in which the next step
needs no more room: that one is enqueued without anybody's making way, and tells of both.

What the next steps will take the place of is chosen before it is their turn, so that it is on its way while others run,
and their own data can come at once. Such a store takes no room from anybody and waits for nothing but the commands that
use it; it goes when a step is being admitted that needs the room, or stays if it is used after all. Results, which no
step touches any more, leave when they are made. Contents that the next step to touch them overwrites
(:mod:`manycl.run.lifetimes`) go with their store; where a run ends before that step has run, they are lost.

The victim is the store whose next use lies furthest ahead: Belady, "A study of replacement algorithms for a
virtual-storage computer", IBM Systems Journal 5(2), 1966; where a plan says who runs what, the future is known. Where
it is decided while the run goes on, the order of the graph stands for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Set
from itertools import islice

from manycl.graph.graph import Launch
from manycl.machine import HOST
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policy import DynamicPolicy, StaticPolicy
from manycl.plan.problem import Problem
from manycl.run.assign import Assigned
from manycl.run.backend import Command, Evict, Report, Run
from manycl.run.coherence import HOST_BIT, Directory
from manycl.run.placed import PlacedState
from manycl.run.state import nothing_overwritten
from manycl.run.steps import Lowered
from manycl.run.transfers import LOOK_AHEAD
from manycl.run.windows import too_large


class TightState(PlacedState):
    """A :class:`manycl.run.state.RunState` with limited room. At its end nothing is valid in windows alone."""

    def __init__(
        self,
        problem: Problem,
        policy: StaticPolicy | DynamicPolicy | Plan,
        directory: Directory,
        overwritten: Callable[[int, int], bool] = nothing_overwritten,
        *,
        lowered: Lowered,
    ) -> None:
        super().__init__(problem, policy, directory, overwritten, lowered)
        self._lowered = lowered
        self._machine = problem.machine
        self._let_go: set[int] = set()  # pieces whose contents were nobody's any more and are nowhere
        self._admitting: dict[int, int] = {}  # the step, by device
        self._looked_from: dict[tuple[int, int], int] = {}  # the head of a queue when it was last looked along
        self._admitted: dict[int, set[int]] = {}  # steps that wait for transfers, by device
        self._last: dict[int, int] = {}  # the step that was enqueued last, by device
        # where the step that was enqueued last has run, and what it needed, if nothing has changed since
        self._before: tuple[int, int, frozenset[int]] | None = None
        self._before_homes: Mapping[int, int] = {}
        self._flushing: set[int] | None = None
        for device in self._holdings.devices:
            bit = 1 << self._memory[device]
            for key in self.graph.buffers:
                if directory.valid.get(key, 0) & bit:
                    self._holdings.hold(device, self._places.whole[key])

    @property
    def limited(self) -> tuple[int, ...]:
        """The devices whose room is limited."""
        return tuple(self._holdings.devices)

    @property
    def buffers(self) -> Set[int]:
        """The run's buffers, as they are without being cut."""
        return self._places.buffers

    def held(self, device: int) -> Set[int]:
        """The stores that a device is counted to hold."""
        return self._holdings.held(device).keys()

    @property
    def finished(self) -> bool:
        return self.complete == len(self.graph.nodes) and not self._flushing

    def start(self, now: float) -> list[Command]:
        """The first steps alone, so that links are at work while all else is thought of (``handle()``)."""
        commands: list[Command] = []
        self._accept(self.assigner.start(now))
        for place, line in self._waiting.items():
            if line and (self._issue if place[0] >= 0 else self._call)(line[0], commands):
                line.popleft()
        return commands

    def handle(self, *reports: Report) -> list[Command]:
        self._before = None
        commands = super().handle(*reports)
        if self.failed is None and self.complete == len(self.graph.nodes) and self._flushing is None:
            self._flush(commands)
        return commands

    def _flush(self, commands: list[Command]) -> None:
        """Everything has run: what is valid in windows alone goes to the host, if it is not on its way."""
        self._flushing = {t[HOST] for t in self._arriving.values() if HOST in t} - self._transfer_done
        everywhere = (1 << self._places.base) - 1
        for key in self.graph.buffers:
            mask = self.directory.valid.get(key, 0)
            if mask and not mask & everywhere and key not in self._mine:
                self._flushing.add(self._download(key, mask, commands))

    def close(self) -> None:
        """The run has ended, well or not: there are no windows any more."""
        valid, everywhere = self.directory.valid, (1 << self._places.base) - 1
        for key in self.graph.buffers:
            mask = valid.get(key)
            if mask is None:
                if key in self._let_go:
                    self.directory.lose(key, "the run ended before a kernel had overwritten all of them")
                continue
            if mask & everywhere:
                valid[key] = mask & everywhere
                continue
            del valid[key]
            if key not in self._mine:
                self.directory.lose(key, "the run ended before they had come back from a device")

    # steps

    def _issue(self, assigned: Assigned, commands: list[Command]) -> bool:
        node, device, queue, watched, seconds = assigned
        if seconds and (device, queue) in self._pace.full:
            return False
        after: list[int] = []
        for p in self._predecessors[node]:
            if not self.done[p]:
                if self._device[p] != device:
                    return False
                if self._queue[p] != queue:
                    after.append(p)
        task = self.graph.nodes[node]
        assert isinstance(task, Launch)
        tight = device in self._holdings.devices
        homes, needs = self._places.homes(node, device), self._holdings.needs(node)
        if tight and self._before == (device, queue, needs) and self._before_homes is homes:
            # it touches the same as the step just before it: all is there, or its queue has waited for it
            for store in needs:
                self._holdings.use(node, (device, store))
            self._writer.update(dict.fromkeys(task.writes, node))
        elif not self._prepare(task, assigned, homes, after, commands):
            return False
        self._device[node] = device
        self._queue[node] = queue
        self._last[device] = node
        self._before, self._before_homes = (device, queue, needs), homes
        self._push(node, device, queue)
        self.issued.append(Assignment(node, device, queue, 0.0, 0.0))
        if after:
            after = self._wait_for(after, device, queue)
        heard = watched or node in self._crossing or (tight and self._makes_wait(device, queue, needs))
        if seconds:
            heard = self._pace.give(node, device, queue, seconds, heard)
        commands.append(Run(node, device, queue, after, heard))
        self._send_results(node, homes, commands)
        return True

    def _prepare(
        self,
        task: Launch,
        assigned: Assigned,
        homes: Mapping[int, int],
        after: list[int],
        commands: list[Command],
    ) -> bool:
        """See to it that a step has room and finds all that it needs; False: not yet."""
        node, device, _, *_ = assigned
        tight = device in self._holdings.devices
        # what leaves has no reader that a writer would wait for
        arriving = self._arriving
        if any(key in arriving and self._comes_down(key) for key in task.writes):
            return False
        if tight and not self._admit(node, device, commands):
            return False
        valid = self.directory.valid
        ready = True
        for key in task.reads:
            if key in arriving or not valid.get(key, 0) >> homes[key] & 1:
                ready &= self._fetch(key, homes[key], assigned, after, commands)
        for key in task.writes:
            if key in task.reads or key in task.overwrites:
                continue
            place = homes[key]
            if valid.get(key, 0) >> place & 1 or not self._overwritten(node, key):
                ready &= self._fetch(key, place, assigned, after, commands)
        if not ready:
            return False
        for key in task.writes:
            place = self._written_at[key] = homes[key]
            valid[key] = 1 << place
            self._writer[key] = node
            if key not in self._together:
                self._arriving.pop(key, None)
        if tight:
            self._admitted[device].remove(node)
        return True

    def _makes_wait(self, device: int, queue: int, needs: Set[int]) -> bool:
        """Whether somebody may wait for the end of the step that is issued now, to get its room: not where the next
        one has what it needs, and nobody else is on the device; then that one will tell of both."""
        line = self._waiting[device, queue]
        if self.queues[device] > 1 or len(line) < 2:
            return True
        following = self._holdings.needs(line[1].node)
        return following != needs and not following <= self._holdings.held(device).keys()

    def _look_along(self, place: tuple[int, int], line: deque[Assigned], commands: list[Command]) -> None:
        """What the next steps take the place of leaves while others run: those of a queue up to the second that needs
        what is not there yet."""
        device, head = place[0], line[0].node
        if device not in self._holdings.devices or self._looked_from.get(place) == head:
            return
        self._looked_from[place] = head
        held, limit = self._holdings.held(device), self._room.limits[device]
        needed: set[int] = set()
        sources: set[int] = set()
        wanted = lacking = 0
        for assigned in islice(line, LOOK_AHEAD):
            more = self._holdings.needs(assigned.node) - needed
            missing = sum(self._room.sizes[store] for store in more if store not in held)
            if sum(self._room.sizes[store] for store in needed | more) > limit:
                break
            needed |= more
            wanted += missing
            if missing and not lacking:
                sources.update(self._sources(assigned.node, device))
            lacking += missing > 0
            if lacking == 2:
                break
        if wanted:
            for store in needed:
                self._holdings.leaving[device].pop(store, None)
            self._choose(device, needed | sources, wanted, commands)

    def _sources(self, node: int, device: int) -> Iterator[int]:
        """The stores of a device that alone have what a step needs."""
        for key in self.graph.nodes[node].reads:
            mask = self.directory.valid.get(key, 0)
            if not mask & HOST_BIT:
                found = (self._places.store(place, key) for place in self._places.of(mask))
                yield from (store for where, store in found if where == device)

    def _call(self, assigned: Assigned, commands: list[Command]) -> bool:
        self._before = None
        return super()._call(assigned, commands)

    def _new_transfer(self, key: int, memory: int, device: int) -> int:
        self._before = None
        return super()._new_transfer(key, memory, device)

    # room

    def _admit(self, node: int, device: int, commands: list[Command]) -> bool:
        """Whether all that a step needs is allocated on its device, or is from now on."""
        if self._holdings.uses(node):
            return True
        held, leaving, free = self._holdings.held(device), self._holdings.leaving[device], self._holdings.free
        needed = self._holdings.needs(node)
        missing = [store for store in needed if store not in held]
        if missing:
            self._check_fits(node, device, needed)
            if self._admitting.setdefault(device, node) != node:
                return False
            for store in needed:
                leaving.pop(store, None)  # it stays
            wanted = sum(self._room.sizes[store] for store in missing)
            self._choose(device, needed, wanted, commands)
            for store in list(leaving):
                if free[device] < wanted and not self._holdings.users((device, store)):
                    self._evict(device, store, commands)
            if free[device] < wanted:
                return False
            for store in missing:
                self._holdings.hold(device, store)
            del self._admitting[device]
        for store in needed:
            leaving.pop(store, None)
            self._holdings.use(node, (device, store))
        self._admitted.setdefault(device, set()).add(node)
        return True

    def held_up(self) -> str:
        room = (
            f"device {d} has {free} of {self._room.limits[d]} bytes free"
            + (f" and waits for room for node {self._admitting[d]}" if d in self._admitting else "")
            for d, free in self._holdings.free.items()
        )
        return "; ".join([super().held_up(), *room])

    def _check_fits(self, node: int, device: int, needed: Set[int]) -> None:
        """What of it is there already makes way for nobody, so all of it has to fit at once. That was seen to where
        there is a plan (``room``)."""
        where, sizes = self._machine.devices[device], [self._room.sizes[store] for store in needed]
        if sum(sizes) > self._room.limits[device] or max(sizes) > where.max_allocation:
            raise too_large(self.graph.nodes[node].name, self._lowered.step(node).node, sum(sizes), where)

    def _choose(self, device: int, needed: Set[int], wanted: int, commands: list[Command]) -> None:
        """Send away as many stores as ``wanted`` bytes take, beside those that are leaving already."""
        holdings = self._holdings
        held, leaving = holdings.held(device), holdings.leaving[device]
        over = wanted - holdings.free[device] - sum(held[store] for store in leaving)
        if over <= 0:
            return
        stay = {store for step in self._admitted.get(device, ()) for _, store in holdings.used(step)}
        found = [store for store in held if store not in needed and store not in leaving and store not in stay]
        # what the last step works on can only go when it has ended: the device would have nothing to do meanwhile
        busy = {store for _, store in holdings.used(self._last.get(device, -1))}
        issued = self._was_issued
        found.sort(key=lambda store: (store in busy, -holdings.next_use(device, store, issued)))
        for store in found:
            if over <= 0:
                return
            over -= held[store]
            leaving[store] = None
            self._before = None
            self._send_away(device, store, commands)

    def _send_away(self, device: int, store: int, commands: list[Command]) -> None:
        """Bring to the host what only this store holds, and others that leave, if somebody may need it."""
        bit = 1 << self._places.at(device, store)
        valid, lives, leaving = self.directory.valid, self._lifetimes.lives, self._holdings.leaving
        for key in self._places.pieces(store):
            mask = valid.get(key, 0)
            if not mask & bit or mask & HOST_BIT or not lives(key):
                continue
            if mask != bit:
                others = (self._places.store(other, key) for other in self._places.of(mask))
                if not all(other in leaving.get(where, ()) for where, other in others):
                    continue
            self._download(key, mask, commands)

    def _evict(self, device: int, store: int, commands: list[Command]) -> None:
        place = self._places.at(device, store)
        valid = self.directory.valid
        for key in self._places.pieces(store):
            mask = valid.get(key, 0)
            if mask >> place & 1:
                if mask == 1 << place:
                    assert not self._lifetimes.lives(key), "only what nobody needs any more may go with its store"
                    del valid[key]
                    if key not in self._mine:
                        self._let_go.add(key)
                else:
                    valid[key] = mask & ~(1 << place)
                self._arriving.get(key, {}).pop(place, None)
                if self._written_at.get(key) == place:
                    del self._written_at[key]  # what is there from now on was brought
        self._holdings.evict(device, store)
        commands.append(Evict(device, store))

    def _mark_done(self, token: int) -> list[int]:
        nodes = super()._mark_done(token)
        for t in nodes or (token,):
            self._holdings.completed(t)
        if self._flushing:
            self._flushing.discard(token)
        return nodes

    def validate(self) -> None:
        super().validate()
        self._holdings.validate()
        for key in self.graph.buffers:
            for place in self._places.of(self.directory.valid.get(key, 0)):
                device, store = self._places.store(place, key)
                if device in self._holdings.devices:
                    assert store in self._holdings.held(device), f"buffer {key} is valid in {store}, which is gone"
        for device, steps in self._admitted.items():
            for step in steps:
                for where, store in self._holdings.used(step):
                    assert store in self._holdings.held(where), f"step {step} was admitted without {store}"
                    assert store not in self._holdings.leaving[where], f"{store} leaves, but step {step} waits for it"
            assert device in self._holdings.devices, f"a step was admitted to device {device}, which has room"
