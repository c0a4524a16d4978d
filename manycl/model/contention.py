"""Contention: how activities at the same time on a machine slow each other down.

Three things are shared. A device's throughput, by kernels in several of its queues (``model/occupancy.py``); links, by
transfers (``Estimates.slowdowns``), also by small ones beside a large one of the same link; and memories. The host's
(``Machine.host_bandwidth``) is shared by transfers to and from it and by kernels of devices that compute in it: the
contention of endpoints of MKMD (Section 5.2, Eq. 6 and Figure 6, where arriving and leaving data congest the
processor). A device's own is shared by kernels in several of its queues, where the host's is described. An activity
that would draw more of a memory than there is gets a fair share (max-min fairness, as in ``model/transfer.py``).
Planner (``plan/timeline/timing.py``) and simulator (``run/simulation/simulator.py``) both use this, the planner for the
host's memory alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from manycl.machine import HOST, Machine
from manycl.model.estimates import Ends, Estimates, for_each_byte
from manycl.model.transfer import TransferModel


class Use(NamedTuple):
    """The use of shared resources beside the device: ``ends`` of a transfer; ``draws``: bytes per second that an
    activity reads from and writes to a ``memory`` when alone; ``most``: bytes per second that a transfer puts on its
    link at most (infinite: all that the link carries)."""

    ends: Ends | None = None
    draws: float = 0.0
    most: float = math.inf
    memory: int = HOST


NOTHING = Use()


def shared(draws: Sequence[float], capacity: float) -> list[float]:
    """Return how many times slower than alone each activity gets on when they draw ``draws`` of a capacity at the same
    time: none gets more than it draws, and of the others all get the same."""
    if math.fsum(draws) <= capacity:
        return [1.0] * len(draws)
    left, share = capacity, math.inf
    rest = sorted(draws)
    for i, wanted in enumerate(rest):
        share = left / (len(rest) - i)
        if wanted > share:
            break
        left -= wanted
    return [max(1.0, wanted / share) for wanted in draws]


class Contention:
    """The contention on one machine. ``in_turn``: every link makes one transfer at a time."""

    def __init__(self, machine: Machine, estimates: Estimates, in_turn: bool = True) -> None:
        self._estimates = estimates
        self._links = estimates.contended or not in_turn
        self._capacities: dict[Ends, float] = {}  # bytes per second of links, as far as they were asked for
        self.limited = machine.host_bandwidth < math.inf
        """True if memories are a limit: the host's is described."""
        self._carries = {device.memory: device.bandwidth for device in machine.devices}
        self._carries[HOST] = machine.host_bandwidth
        self.anything = self._links or self.limited
        self._network = TransferModel(machine) if machine.network is not None and not in_turn else None
        self.is_local = self._links and not (estimates.contended or self.limited)
        """True if it is known which transfers disturb each other: those that have something :meth:`in_common`."""

    def use(self, ends: Ends | None, nbytes: float, seconds: float, in_turn: bool = True) -> Use:
        """Return what an activity uses that moves so many bytes in ``seconds`` when alone, to or from the host's
        memory, or between ``ends``. A transfer that does not wait for its turn on its link shares that with another
        one, and leaves it what its own latency leaves."""
        draws = self.draws(nbytes, seconds) if not ends or HOST in ends else 0.0
        most = math.inf if in_turn or seconds <= 0.0 else nbytes / seconds
        return Use(ends, draws, most) if ends is not None and self._links else Use(None, draws)

    def draws(self, nbytes: float, seconds: float, memory: int = HOST) -> float:
        """Return the bytes per second that it draws of a memory, by default the host's."""
        return min(self._carries[memory], nbytes / seconds) if self.limited and seconds > 0.0 else 0.0

    def slowdowns(self, uses: Sequence[Use]) -> list[float]:
        """Return how many times longer than alone each activity takes while all of them go on."""
        out = [1.0] * len(uses)
        if self._links:
            moving = [(i, u.ends, u.most) for i, u in enumerate(uses) if u.ends is not None]
            ends, most = [e for _, e, _ in moving], [m for _, _, m in moving]
            slow = self._slowed_on_links if self._network is None else self._network.slowdowns
            slow = self._estimates.slowdowns if self._estimates.contended else slow
            for (i, *_), slower in zip(moving, slow(ends, most), strict=True):
                out[i] = slower
        if self.limited:
            for memory in dict.fromkeys(u.memory for u in uses):
                here = [i for i, u in enumerate(uses) if u.memory == memory]
                found = shared([uses[i].draws / out[i] for i in here], self._carries[memory])
                for i, slower in zip(here, found, strict=True):
                    out[i] *= slower
        return out

    def in_common(self, use: Use) -> Sequence[object]:
        """Return what an activity may have in common with those that disturb it."""
        if not self.is_local or use.ends is None:
            return ("memories",)
        return (use.ends,) if self._network is None else self._network.shared_by(*use.ends)

    def _slowed_on_links(self, ends: Sequence[Ends], most: Sequence[float]) -> list[float]:
        """Return the same for transfers of which only those between the same memories disturb each other."""
        out = [1.0] * len(ends)
        for link in {*ends} if len({*ends}) < len(ends) else ():
            if link not in self._capacities:
                each = for_each_byte(self._estimates, *link)
                self._capacities[link] = 1.0 / each if each > 0.0 else math.inf
            capacity = self._capacities[link]
            here = [i for i, e in enumerate(ends) if e == link]
            if capacity < math.inf:
                for i, slower in zip(here, shared([min(most[i], capacity) for i in here], capacity), strict=True):
                    out[i] = slower
        return out


@dataclass(slots=True)
class _Activity:
    """An activity: at ``since``, ``left`` seconds of it remain, were it alone; it takes ``pace`` times as long."""

    left: float
    since: float
    device: int
    share: float  # part of its device
    use: Use
    number: int  # of all that have begun
    pace: float = 1.0
    slower: float = 1.0  # by contention beside its device


class Activities:
    """The activities under way, by token. A begin or an end changes the ends of others."""

    def __init__(self, contention: Contention) -> None:
        self._contention = contention
        self._all: dict[int, _Activity] = {}
        self._on: dict[int, dict[int, None]] = {}  # activities that share a device
        self._load: dict[int, float] = {}
        self._using: dict[int, None] = {}  # activities that use something beside their device
        self._users: dict[object, dict[int, None]] = {}  # of these, by what they may have in common with others
        self._begun = 0

    def begin(
        self, token: int, now: float, seconds: float, device: int = 0, share: float = 0.0, use: Use = NOTHING
    ) -> list[tuple[int, float]]:
        """Begin an activity that takes ``seconds`` alone. ``share``: of its device (0: others do not disturb it).
        Return the activities whose ends have changed, itself among them, and these ends."""
        self._begun += 1
        self._all[token] = _Activity(seconds, now, device, share, use, self._begun)
        if share:
            self._on.setdefault(device, {})[token] = None
        if use != NOTHING:
            self._using[token] = None
            for common in self._contention.in_common(use):
                self._users.setdefault(common, {})[token] = None
        if not share and self._is_apart(use, 1):
            return [(token, now + seconds)]
        return self._again(now, token, self._all[token])

    def _is_apart(self, use: Use, itself: int) -> bool:
        """Return whether no other activity disturbs one that uses this, and nothing of a device. ``itself``: how often
        it is among them."""
        if use == NOTHING:
            return True
        found = map(self._users.__getitem__, self._contention.in_common(use))
        return self._contention.is_local and all(len(of) <= itself for of in found)

    def _disturbed(self, use: Use) -> Sequence[int]:
        """Return the activities, in the order of their begins, that have something in common with one that uses this,
        or with one of these, and so on."""
        if not self._contention.is_local:
            return [*self._using]
        seen, left = dict[object, None](), list[object](self._contention.in_common(use))
        found = dict[int, None]()
        while left:
            if (common := left.pop()) in seen:
                continue
            seen[common] = None
            for token in self._users.get(common, ()):
                if token not in found:
                    found[token] = None
                    left += self._contention.in_common(self._all[token].use)
        return sorted(found, key=lambda token: self._all[token].number)

    def left(self, token: int, now: float) -> float:
        """Return the seconds that it would still take alone."""
        a = self._all[token]
        return max(0.0, a.left - (now - a.since) / a.pace)

    def shorten(self, token: int, now: float, seconds: float) -> list[tuple[int, float]]:
        """Let an activity take only ``seconds`` more, alone; return what ``begin`` returns."""
        a = self._all[token]
        a.left, a.since = seconds, now
        return [(token, now + seconds * a.pace)]

    def finish(self, token: int, now: float) -> list[tuple[int, float]]:
        """End an activity, or give it up. Return the activities whose ends have changed, and these ends."""
        activity = self._all.pop(token)
        if activity.share:
            del self._on[activity.device][token]
        if activity.use != NOTHING:
            del self._using[token]
            for common in self._contention.in_common(activity.use):
                del self._users[common][token]
        if not activity.share and self._is_apart(activity.use, 0):
            return []
        return self._again(now, None, activity)

    def _again(self, now: float, new: int | None, activity: _Activity) -> list[tuple[int, float]]:
        touched: dict[int, None] = {new: None} if new is not None else {}
        if activity.share:
            here = self._on[activity.device]
            self._load[activity.device] = max(1.0, math.fsum([self._all[t].share for t in here]))
            touched.update(here)
        # (how kernels share a device matters to others by what these draw of memories)
        if self._using and (activity.use != NOTHING or (activity.share and self._contention.limited)):
            uses, disturbed = [], self._disturbed(activity.use)
            for token in disturbed:
                a = self._all[token]
                uses.append(a.use._replace(draws=a.use.draws / self._load[a.device]) if a.share else a.use)
            for token, slower in zip(disturbed, self._contention.slowdowns(uses), strict=True):
                self._all[token].slower = slower
            touched.update(dict.fromkeys(disturbed))
        changed = []
        for token in touched:
            a = self._all[token]
            pace = a.slower * self._load[a.device] if a.share else a.slower
            if pace == a.pace and token != new:
                continue
            if token != new:
                a.left = max(0.0, a.left - (now - a.since) / a.pace)
            a.since, a.pace = now, pace
            changed.append((token, now + a.left * pace))
        return changed
