"""The state of a run whose pieces may be valid in windows: what is brought to a step, and what leaves. Pure.

Where pieces may be valid (*places*) and what devices hold is kept in :mod:`manycl.run.holdings`;
:mod:`manycl.run.eviction` decides what is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from manycl.graph.graph import HostTask
from manycl.machine import HOST
from manycl.plan.plan import Plan
from manycl.plan.policy import DynamicPolicy, StaticPolicy
from manycl.plan.problem import Problem
from manycl.run.assign import Assigned
from manycl.run.backend import DOWNLOAD_QUEUE, EARLY_QUEUE, HOST_DEVICE, UPLOAD_QUEUE, Command, Copy, Download, Upload
from manycl.run.coherence import HOST_BIT, Directory
from manycl.run.holdings import Holdings, Places
from manycl.run.lifetimes import Lifetimes
from manycl.run.state import RunState
from manycl.run.steps import Lowered
from manycl.run.transfers import NOT_ISSUED
from manycl.run.windows import Room


class PlacedState(RunState):
    """A :class:`RunState` that works on windows."""

    def __init__(
        self,
        problem: Problem,
        policy: StaticPolicy | DynamicPolicy | Plan,
        directory: Directory,
        overwritten: Callable[[int, int], bool],
        lowered: Lowered,
    ) -> None:
        super().__init__(problem, policy, directory, overwritten)
        assert lowered.room is not None
        self._room: Room = lowered.room
        self._places = Places(problem.machine, self.graph, self._room)
        self._holdings = Holdings(self.graph, policy if isinstance(policy, Plan) else lowered.plan, self._room)
        self._mine = frozenset(lowered.own)
        self._lifetimes = Lifetimes(self.graph, self._was_issued, self._mine, overwritten)
        self._left = self._lifetimes.counts()  # steps to come that touch a piece
        self._written_at: dict[int, int] = {}
        self._behind: dict[tuple[int, int], set[int]] = {}  # transfers that a queue has waited for, or has done

    @property
    def _valid_in(self) -> int:
        return self._places.base + len(self._room.windows)

    def _was_issued(self, node: int) -> bool:
        return self._device[node] != NOT_ISSUED

    def _comes_down(self, key: int) -> bool:
        token = self._arriving.get(key, {}).get(HOST)
        return token is not None and token not in self._transfer_done

    def _call(self, assigned: Assigned, commands: list[Command]) -> bool:
        task = self.graph.nodes[assigned.node]
        if not super()._call(assigned, commands):
            return False
        assert isinstance(task, HostTask)
        self._written_at.update(dict.fromkeys(task.writes, HOST))
        for key in {*task.reads, *task.writes}:
            self._left[key] -= 1
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
        _, device, queue, *_ = assigned
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
                before = self._made(key, other, device, queue)
                token = self._new_transfer(key, place, device)
                target = self._places.store(place, key)[1]
                commands.append(Copy(token, key, device, queue, before, True, source[1], target))
                self._holdings.use(token, source)
                self._behind.setdefault((device, queue), set()).update((*before, token))
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

    def _wait_for(self, after: list[int], device: int, queue: int) -> list[int]:
        """Those of some tokens that no earlier command of a queue has waited for."""
        behind = self._behind.setdefault((device, queue), set())
        new = [token for token in after if token not in behind]
        behind.update(new)
        return new

    def _made(self, key: int, place: int, device: int, queue: int | None = None) -> list[int]:
        """The commands of its device that make a piece valid at a place, as far as they are not known to be complete,
        and what is put into ``queue`` does not come after them in any case."""
        writer = self._writer.get(key)
        before = [writer] if writer is not None and not self.done[writer] and self._device[writer] == device else []
        token = self._arriving.get(key, {}).get(place)
        if token is not None and token not in self._transfer_done:
            before.append(token)
        if queue is None:
            return before
        behind = self._behind.get((device, queue), ())
        return [t for t in before if t not in behind and not (t < len(self.done) and self._queue[t] == queue)]

    def _download(self, key: int, mask: int, commands: list[Command]) -> int:
        """Send a piece to the host, from where it was written if it is still there."""
        place = self._written_at.get(key, HOST)
        if place == HOST or not mask >> place & 1:
            place = next(self._places.of(mask))
        store = self._places.store(place, key)
        before = self._made(key, place, store[0])
        users = (t for t in self._holdings.users(store) if t < len(self.done) and not self.done[t])
        if key in self._together:  # it has several writers
            before += [t for t in users if self._device[t] == store[0] and t not in before]
        return self._send(key, store, before, DOWNLOAD_QUEUE, commands)

    def _send(self, key: int, store: tuple[int, int], before: list[int], queue: int, commands: list[Command]) -> int:
        token = self._new_transfer(key, HOST, store[0])
        commands.append(Download(token, key, store[0], before, True, store[1], queue))
        self._holdings.use(token, store)
        return token

    def _send_results(self, node: int, homes: Mapping[int, int], commands: list[Command]) -> None:
        """What no step will touch any more leaves the windows of the last one that does: it has to, sooner or later."""
        everywhere, left = (1 << self._places.base) - 1, self._left
        for key, place in homes.items():
            left[key] -= 1
            if left[key]:
                continue
            mask = self.directory.valid.get(key, 0)
            if mask >> place & 1 and not mask & everywhere and key not in self._mine and key not in self._together:
                self._send(key, self._places.store(place, key), [node], EARLY_QUEUE, commands)

    def _written_in(self, key: int) -> int:
        return self._written_at.get(key, -1)

    def unfinished_copies(self) -> list[tuple[int, int]]:
        return [(key, place) for key, place in super().unfinished_copies() if key in self.directory.valid]

    # before their turn

    def _look_ahead(self, following: Iterable[Assigned], commands: list[Command], least: int = 0) -> None:
        """What comes before its turn would need room before its turn."""

    def _fetch_early(self, node: int, commands: list[Command]) -> None:
        """Windows are fetched when it is time."""

    def _hand_over(self, node: int, device: int, commands: list[Command]) -> bool:
        """So is what others have made."""
        return False
