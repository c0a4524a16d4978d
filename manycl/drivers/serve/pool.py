"""The processes of ``manycl serve``: started ahead, and kept with the devices that they have open."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from manycl.drivers.worker.handle import started
from manycl.drivers.worker.messages import Channel

SPARE = 1
"""Processes that wait with no device open."""
MOST = 64
"""Processes at the same time."""
KEPT = 16
"""Of those that wait: with devices open."""
LINGER = 10.0
"""Seconds that one waits of which others do all that it could."""
_ENDING = 0.05  # seconds until it is looked again whether one has ended that was to
_FAILURES = 3  # processes in a row that end before they can do anything


class ServedProcess:
    """One process. ``state``: starting, idle, looking (for devices) or busy (it has a client); ``since``: when it
    became idle. ``devices``: open there. ``clients``: how many it has had."""

    def __init__(self) -> None:
        self.process, here = started("serve_clients")
        here.setblocking(False)
        self.channel = Channel(here)
        self.state = "starting"
        self.since = 0.0
        self.devices: Sequence[str] = ()
        self.clients = 0

    def wait(self) -> None:
        """Note that it is there for the next one who asks."""
        self.state, self.since = "idle", time.monotonic()

    def take(self) -> socket.socket:
        """Give it a client, for which this is the connection. Raises OSError if it has gone."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self.channel.call("take", descriptors=[theirs.fileno()])
            except OSError:
                ours.close()
                raise
        self.state = "busy"
        self.clients += 1
        return ours

    def close(self) -> None:
        """Have it end by itself, at once if it has no client."""
        self.channel.close()


class ProcessPool:
    """``failure``: why no more are started, "" while they are."""

    def __init__(self) -> None:
        self.members: list[ServedProcess] = []
        self.failure = ""
        self._failed = 0
        self._ending: list[ServedProcess] = []

    def of(self, state: str) -> list[ServedProcess]:
        return [member for member in self.members if member.state == state]

    def for_device(self, device: str) -> ServedProcess | None:
        """One that waits: with the device open, else with none, else any."""
        idle = self.of("idle")
        return min(idle, key=lambda one: (device not in one.devices, len(one.devices)), default=None)

    def start(self, wanted: int) -> list[ServedProcess]:
        """Start as many processes as are missing where so many are waited for."""
        blank = [member for member in self.of("idle") if not member.devices]
        missing = wanted + SPARE - len(blank) - len(self.of("starting"))
        found: list[ServedProcess] = []
        while len(found) < missing and len(self.members) < MOST and not self.failure:
            try:
                found.append(ServedProcess())
            except OSError as error:
                self.failure = f"no process can be started: {error}"
                break
            self.members.append(found[-1])
        return found

    def ready(self, member: ServedProcess, devices: Sequence[str]) -> list[ServedProcess]:
        """One waits; those that are too many now and are to be closed."""
        member.devices = devices
        member.wait()
        self._failed = 0
        warm = sorted((other for other in self.of("idle") if other.devices), key=lambda one: one.since)
        return warm[: max(len(warm) - KEPT, 0)]

    def surplus(self) -> list[ServedProcess]:
        """Return those that wait and without which as many different devices can be had at the same time, each from a
        process that has it open, and blank ones but for the spare: who has waited longest, first. (:meth:`for_device`
        prefers the first of several, so what clients that come one after another do not need is never asked.)"""
        found: list[ServedProcess] = []
        blank, taken = 0, dict[str, ServedProcess]()
        for member in sorted(self.of("idle"), key=lambda one: one.since, reverse=True):
            blank += not member.devices
            if not _stands_for_one(member, taken, set()) if member.devices else blank > SPARE:
                found.append(member)
        return found[::-1]

    def outstayed(self) -> list[ServedProcess]:
        """Return those of the surplus that have waited for long enough."""
        last = time.monotonic() - LINGER
        return [member for member in self.surplus() if member.since <= last]

    def is_settled(self) -> bool:
        """Return whether nobody is a client, and nothing will change before somebody comes."""
        return not self._ending and not self.surplus() and len(self.of("idle")) == len(self.members)

    def patience(self) -> float | None:
        """Seconds until there is something to do here though nothing has happened."""
        if self._ending:
            return _ENDING
        surplus = self.surplus()
        return max(surplus[0].since + LINGER - time.monotonic(), 0.0) if surplus else None

    def gone(self, member: ServedProcess) -> None:
        """One has ended, or is about to."""
        self.members.remove(member)
        if member.state == "starting":
            self._failed += 1
            if self._failed >= _FAILURES:
                self.failure = f"{self._failed} processes in a row have ended before they could do anything"
        member.close()
        self._ending.append(member)
        self.reap()

    def close(self) -> None:
        """Have all end by themselves; those that have clients, with these."""
        idle = [member for member in self.members if member.state != "busy"]
        for member in self.members:
            member.close()
        for member in (*idle, *self._ending):
            member.process.wait()

    def reap(self) -> None:
        """Take notice of those that have ended."""
        self._ending = [member for member in self._ending if member.process.poll() is None]


def _stands_for_one(member: ServedProcess, taken: dict[str, ServedProcess], seen: set[str]) -> bool:
    """Return whether there is a device for this one, others changing theirs if need be (an augmenting path of a
    matching)."""
    for device in member.devices:
        if device not in seen:
            seen.add(device)
            if device not in taken or _stands_for_one(taken[device], taken, seen):
                taken[device] = member
                return True
    return False
