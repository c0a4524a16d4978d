"""The state of a run that does not fit into the devices' memories: what a step needs there is admitted before it is
enqueued, and what others will need last makes way. Pure, like :mod:`manycl.run.state`.

What devices hold (*stores*), where pieces are valid and which commands use that is kept in :mod:`manycl.run.holdings`.

Progress. A step is admitted when all that it depends on is complete, or enqueued on the same device. Of each device one
step at a time is being admitted. Its victims are stores that no other admitted step waits to use; a victim goes when
the commands that use it, which are all enqueued already, have completed, so this waits for nothing that waits for room.
Once admitted, a step waits for transfers alone: from the host's memory, from a store of its own device, or from another
device, which sends it to the host, where there is always room. So it is enqueued in the end, completes, and its stores
may become victims in turn. A step fits alone (``lower``), so when everything else has gone, it is admitted. While a
step is being admitted, or waits for a transfer, something that will be reported is under way: all steps of such devices
are watched, and downloads always are.

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
from collections.abc import Callable, Iterable, Set
from itertools import islice

from manycl.graph.graph import HostTask, Launch
from manycl.machine import HOST
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policy import DynamicPolicy, StaticPolicy
from manycl.plan.problem import Problem
from manycl.run.assign import Assigned
from manycl.run.backend import (
    DOWNLOAD_QUEUE,
    EARLY_QUEUE,
    HOST_DEVICE,
    UPLOAD_QUEUE,
    Command,
    Copy,
    Download,
    Evict,
    Report,
    Run,
    Upload,
)
from manycl.run.coherence import HOST_BIT, Directory
from manycl.run.holdings import Holdings, Places
from manycl.run.lifetimes import Lifetimes
from manycl.run.state import RunState, nothing_overwritten
from manycl.run.steps import Lowered
from manycl.run.transfers import LOOK_AHEAD, NOT_ISSUED
from manycl.run.windows import Room, too_large


class TightState(RunState):
    """A :class:`RunState` with limited room. At its end nothing is valid in windows alone."""

    def __init__(
        self,
        problem: Problem,
        policy: StaticPolicy | DynamicPolicy | Plan,
        directory: Directory,
        overwritten: Callable[[int, int], bool] = nothing_overwritten,
        *,
        lowered: Lowered,
    ) -> None:
        super().__init__(problem, policy, directory, overwritten)
        assert lowered.room is not None
        self._lowered = lowered
        self._machine = problem.machine
        self._room: Room = lowered.room
        self._places = Places(problem.machine, self.graph, self._room)
        self._holdings = Holdings(self.graph, policy if isinstance(policy, Plan) else lowered.plan, self._room)
        self._mine = frozenset(lowered.own)
        self._lifetimes = Lifetimes(self.graph, self._was_issued, self._mine, overwritten)
        self._let_go: set[int] = set()  # pieces whose contents were nobody's any more and are nowhere
        self._admitting: dict[int, int] = {}  # the step, by device
        self._looked_from: dict[tuple[int, int], int] = {}  # the head of a queue when it was last looked along
        self._admitted: dict[int, set[int]] = {}  # steps that wait for transfers, by device
        self._written_at: dict[int, int] = {}
        self._last: dict[int, int] = {}  # the step that was enqueued last, by device
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

    def handle(self, *reports: Report) -> list[Command]:
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
        node, device, queue, watched = assigned
        after: list[int] = []
        for p in self._predecessors[node]:
            if not self.done[p]:
                if self._device[p] != device:
                    return False
                if self._queue[p] != queue:
                    after.append(p)
        task = self.graph.nodes[node]
        assert isinstance(task, Launch)
        # what leaves has no reader that a writer would wait for
        if any(self._comes_down(key) for key in task.writes):
            return False
        tight = device in self._holdings.devices
        if tight and not self._admit(node, device, commands):
            return False
        valid, arriving, homes = self.directory.valid, self._arriving, self._places.homes(node, device)
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
        self._device[node] = device
        self._queue[node] = queue
        self._last[device] = node
        self._push(node, device, queue)
        self.issued.append(Assignment(node, device, queue, 0.0, 0.0))
        commands.append(Run(node, device, queue, after, tight or watched or node in self._crossing))
        if tight:
            self._send_results(task, commands)
        return True

    def _send_results(self, task: Launch, commands: list[Command]) -> None:
        """What no step will touch any more leaves its window when it is made: it has to, sooner or later."""
        everywhere = (1 << self._places.base) - 1
        for key in dict.fromkeys((*task.writes, *task.reads)):
            mask = self.directory.valid.get(key, 0)
            if not mask or mask & everywhere or key in self._mine or key in self._together:
                continue
            if self._lifetimes.over(key):
                self._download(key, mask, commands, EARLY_QUEUE)

    def _look_ahead(self, following: Iterable[Assigned], commands: list[Command], least: int = 0) -> None:
        """What comes before its turn would need room before its turn."""

    def _look_along(self, place: tuple[int, int], line: deque[Assigned], commands: list[Command]) -> None:
        """What the next steps take the place of leaves while others run: those of a queue up to the second that needs
        what is not there yet."""
        device, head = place[0], line[0].node
        if device not in self._holdings.devices or self._looked_from.get(place) == head:
            return
        self._looked_from[place] = head
        held, limit = self._holdings.held(device), self._room.limits[device]
        needed: set[int] = set()
        wanted = lacking = 0
        for assigned in islice(line, LOOK_AHEAD):
            more = self._holdings.needs(assigned.node) - needed
            missing = sum(self._room.sizes[store] for store in more if store not in held)
            if sum(self._room.sizes[store] for store in needed | more) > limit:
                break
            needed |= more
            wanted += missing
            lacking += missing > 0
            if lacking == 2:
                break
        if wanted:
            for store in needed:
                self._holdings.leaving[device].pop(store, None)
            self._choose(device, needed, wanted, commands)

    def _fetch_early(self, node: int, commands: list[Command]) -> None:
        """Windows are fetched when it is time."""

    def _hand_over(self, node: int, device: int, commands: list[Command]) -> bool:
        """So is what others have made."""
        return False

    def _comes_down(self, key: int) -> bool:
        token = self._arriving.get(key, {}).get(HOST)
        return token is not None and token not in self._transfer_done

    def _call(self, assigned: Assigned, commands: list[Command]) -> bool:
        task = self.graph.nodes[assigned.node]
        if not super()._call(assigned, commands):
            return False
        assert isinstance(task, HostTask)
        self._written_at.update(dict.fromkeys(task.writes, HOST))
        return True

    def _bring(
        self,
        key: int,
        memory: int,
        device: int,
        after: list[int],
        commands: list[Command],
        queue: int = UPLOAD_QUEUE,
    ) -> bool:
        """Make a buffer valid on the host, for a host function."""
        assert memory == HOST, "steps on devices fetch"
        mask = self.directory.valid.get(key, 0)
        if not mask:
            return True
        if mask & HOST_BIT:
            return self._arrived(key, HOST, HOST_DEVICE, after)
        self._download(key, mask, commands)
        return False

    def _fetch(self, key: int, place: int, assigned: Assigned, after: list[int], commands: list[Command]) -> bool:
        """Make a piece valid at a place. True when it is, or will be once the tokens added to ``after`` are done."""
        device = assigned.device
        mask = self.directory.valid.get(key, 0)
        if not mask:
            return True  # undefined contents: nothing to bring
        if place == HOST:
            return self._bring(key, HOST, device, after, commands)
        if mask >> place & 1:
            return self._arrived(key, place, device, after)
        for other in self._places.of(mask):
            source = self._places.store(other, key)
            if source[0] == device:
                before = self._made(key, other, device)
                token = self._new_transfer(key, place, device)
                target = self._places.store(place, key)[1]
                commands.append(Copy(token, key, device, assigned.queue, before, False, source[1], target))
                self._holdings.use(assigned.node, source)
                after.append(token)
                return True
        if mask & HOST_BIT:
            if not self._arrived(key, HOST, HOST_DEVICE, after):
                return False
            token = self._new_transfer(key, place, device)
            commands.append(Upload(token, key, device, (), False, self._places.store(place, key)[1]))
            after.append(token)
            return True
        self._download(key, mask, commands)
        return False

    def _made(self, key: int, place: int, device: int) -> list[int]:
        """The commands of its device that make a piece valid at a place, as far as they are not known to be
        complete."""
        writer = self._writer.get(key)
        before = [writer] if writer is not None and not self.done[writer] and self._device[writer] == device else []
        token = self._arriving.get(key, {}).get(place)
        if token is not None and token not in self._transfer_done:
            before.append(token)
        return before

    def _download(self, key: int, mask: int, commands: list[Command], queue: int = DOWNLOAD_QUEUE) -> int:
        """Send a piece to the host, from where it was written if it is still there."""
        place = self._written_at.get(key, HOST)
        if place == HOST or not mask >> place & 1:
            place = next(self._places.of(mask))
        store = self._places.store(place, key)
        before = self._made(key, place, store[0])
        users = (t for t in self._holdings.users(store) if t < len(self.done) and not self.done[t])
        if key in self._together:  # it has several writers
            before += [t for t in users if self._device[t] == store[0] and t not in before]
        token = self._new_transfer(key, HOST, store[0])
        commands.append(Download(token, key, store[0], before, True, store[1], queue))
        self._holdings.use(token, store)
        return token

    def _written_in(self, key: int) -> int:
        return self._written_at.get(key, -1)

    def unfinished_copies(self) -> list[tuple[int, int]]:
        return [(key, place) for key, place in super().unfinished_copies() if key in self.directory.valid]

    # room

    def _admit(self, node: int, device: int, commands: list[Command]) -> bool:
        """Whether all that a step needs is allocated on its device, or is from now on."""
        if self._holdings.uses(node):
            return True
        held, leaving, free = self._holdings.held(device), self._holdings.leaving[device], self._holdings.free
        needed = self._holdings.needs(node)
        missing = [store for store in needed if store not in held]
        if missing:
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
                if wanted > self._room.limits[device]:
                    where = self._machine.devices[device]
                    raise too_large(self.graph.nodes[node].name, self._lowered.step(node).node, wanted, where)
                return False
            for store in missing:
                self._holdings.hold(device, store)
            del self._admitting[device]
        for store in needed:
            leaving.pop(store, None)
            self._holdings.use(node, (device, store))
        self._admitted.setdefault(device, set()).add(node)
        return True

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
            self._send_away(device, store, commands)

    def _was_issued(self, node: int) -> bool:
        return self._device[node] != NOT_ISSUED

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
