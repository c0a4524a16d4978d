"""Reservations as values, and which of them are in force.

There is nobody who grants them: each process reads all of them and comes to the same conclusion. They have an order,
higher priorities first, and among these whoever asked first; a reservation is in force when no other one before it
wants any of the same resources. One that waits keeps those behind it waiting, so nobody is passed for ever.

Processes that are started by one that reserves may belong to it (``under``), so that they use what it has: what such a
family reserves twice does not make it wait for itself.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

from manycl import flags
from manycl.utilities.checked import unfit

Resources = frozenset[str]
"""Parts of a machine by names that are the same in all processes: cores, places on the PCI bus, …"""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation. ``device``: what is asked for, in the user's words, ``resources``: of the machine; ``command``:
    what for; ``seconds``: for how long (None: until it ends). The rest is there when it is entered: the ``name`` of its
    file; ``process``: a word for the process that asked, unlike that of any other one (process numbers come again);
    ``under``: those that it belongs to; ``pid``: its number, for people; ``ticket``: when it asked, by the machine's
    clock, unlike that of any other one; ``since``, ``until``: from when to when, by ``time.time`` and
    ``time.monotonic`` (None: it waits; until it ends)."""

    device: str
    resources: Resources
    seconds: float | None = None
    priority: int = 0
    command: str = ""
    name: str = ""
    process: str = ""
    pid: int = 0
    under: tuple[str, ...] = ()
    ticket: int = 0
    since: float | None = None
    until: float | None = None

    def __str__(self) -> str:
        """Return in words who has it."""
        until = "until it ends" if self.seconds is None else f"for {self.seconds:g} s"
        return f"process {self.pid}, which has reserved {self.device} {until} ({self.command})"

    def is_family(self, other: Reservation) -> bool:
        """Return whether neither waits for the other one."""
        return self.process == other.process or self.process in other.under or other.process in self.under

    def format(self) -> bytes:
        """Return the text of its file."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields | {"resources": sorted(self.resources)}).encode()


def parse(data: bytes, name: str | None = None) -> Reservation | None:
    """Return the reservation of a text that ``format`` has made, under the ``name`` of the file that says it, if one
    does; None for anything else."""
    try:
        found: dict[str, Any] = json.loads(data)
        found = {key: found[key] for key in Reservation.__slots__} | ({} if name is None else {"name": name})
        found |= {"resources": frozenset(found["resources"]), "under": tuple(found["under"])}
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return None if unfit(Reservation, found) else Reservation(**found)


def in_order(all_of_them: Iterable[Reservation]) -> list[Reservation]:
    """Return reservations in their order, the first one first."""
    return sorted(all_of_them, key=lambda r: (-r.priority, r.ticket, r.name))


def unexpired(all_of_them: Iterable[Reservation], now: float | None = None) -> list[Reservation]:
    """Return reservations without those whose time is over, by ``time.monotonic``."""
    now = time.monotonic() if now is None else now
    return [r for r in all_of_them if r.until is None or now < r.until]


def in_force(all_of_them: Iterable[Reservation]) -> list[Reservation]:
    """Return those that hold what they asked for, first ones first (none of those that are given has expired)."""
    found: list[Reservation] = []
    before: list[Reservation] = []
    for r in in_order(all_of_them):
        if not any(_keeps_waiting(e, r, found) for e in before):
            found.append(r)
        before.append(r)
    return found


def _keeps_waiting(first: Reservation, second: Reservation, holding: Sequence[Reservation]) -> bool:
    """Return whether the second waits for the first: they want the same, and the second's family does not hold it
    first."""
    shared = first.resources & second.resources
    if not shared or first.is_family(second):
        return False
    for own in holding:
        if own.is_family(second) and not own.is_family(first):
            shared -= own.resources
    return bool(shared)


def held_by_others(all_of_them: Iterable[Reservation], process: str, under: Collection[str]) -> Resources:
    """Return the resources that a process that belongs to others (``under``) is not to use."""
    taken: Resources = frozenset()
    for r in in_force(all_of_them):
        if r.process != process and r.process not in under:
            taken |= r.resources
    return taken


# The runtime folder while nobody else enters anything there, and without what killed processes left half made.


UNFINISHED = ".unfinished"
"""The ending of a name while its file is made, which is done with the folder's lock."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder. The lock is the folder's own: no file is needed for it. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        for name in os.listdir(folder):
            if name.endswith(UNFINISHED):  # of a process that was killed at it
                with suppress(FileNotFoundError):
                    os.unlink(folder / name)
        yield
    finally:
        os.close(handle)


class Closable(Protocol):
    def close(self) -> None: ...


closed_in_children: WeakSet[Closable] = WeakSet()
"""Files and sockets of this process that would outlive it if a child that was forked had them, too."""
_word = ""


def process() -> str:
    """Return a word for this process alone on this machine: numbers of processes come again, and are others in
    containers."""
    global _word
    if not _word:
        _word = f"{os.getpid()}-{os.urandom(6).hex()}"
    return _word


def under() -> tuple[str, ...]:
    """Return the processes that this one belongs to: it may use what they have reserved."""
    return tuple(word for word in flags.reservation().split(",") if word)


def for_children() -> str:
    """Return what processes that are to belong to this one have as MANYCL_RESERVATION."""
    return ",".join((*under(), process()))


def _forked() -> None:
    global _word
    _word = ""
    for one in list(closed_in_children):
        one.close()


os.register_at_fork(after_in_child=_forked)
