"""The survey of devices: which are here, what they are called, and which of them ``all`` means. One physical device may
be shown by several kinds of drivers and several platforms, under several names; ``all`` has it once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from manycl.drivers.driver import Advice, Found, Handle
from manycl.drivers.kinds import Kind, kinds
from manycl.errors import DeviceError
from manycl.machine import DEVICE_KINDS, HOST, Device
from manycl.utilities.forks import Mark


@dataclass(frozen=True, eq=False)
class Root:
    """A device as a driver shows it; ``driver``: the kind's name. ``why_not``: why ``all`` leaves it out, or empty."""

    device: Device
    handle: Handle
    driver: str
    why_not: str = ""


@dataclass(frozen=True)
class Survey:
    """Every root device, those of ``all`` first; ``notes`` tell what could not be used as it is."""

    roots: tuple[Root, ...]
    notes: tuple[str, ...] = ()


@cache
def survey() -> Survey:
    """Ask every kind of driver once. Names count up per kind of device, those of ``all`` first: cpu0, gpu0, gpu1, …"""
    return _asked(kinds())


@cache
def processor_alone() -> Survey | None:
    """Return what is in ``all`` if that is the processor and nothing else, told without loading a library of OpenCL's
    drivers (which takes as long as all else that a program needs to begin): as the whole survey would have it. None
    where there may be more."""
    there = kinds()
    first = [kind for kind in there if kind.first]
    if not all(kind.first or kind.only_processors() for kind in there):
        return None
    found = _asked(first)
    alone = [root.device.kind for root in found.roots] == ["cpu"] and not found.notes
    return found if alone and not found.roots[0].device.simulator else None


def _asked(there: Sequence[Kind]) -> Survey:
    in_use()
    notes: list[str] = []
    seen = [(found, kind.name) for kind in there for found in kind.look(notes)]
    seen.sort(key=lambda s: _preference(s[0]))
    kept: list[Found] = []
    roots: list[Root] = []
    for found, driver in seen:
        why_not = _why_not(found, kept)
        if not why_not:
            kept.append(found)
        roots.append(Root(found.device, found.handle, driver, why_not))
    roots.sort(key=lambda r: bool(r.why_not))
    counts = dict.fromkeys(DEVICE_KINDS, 0)
    memories = 1
    named = []
    for root in roots:
        d = root.device
        memory = HOST if d.memory == HOST else memories
        memories += memory != HOST
        named.append(replace(root, device=replace(d, name=f"{d.kind}{counts[d.kind]}", memory=memory)))
        counts[d.kind] += 1
    return Survey(tuple(named), tuple(notes))


def advice(found: Survey, chosen: Sequence[Device]) -> tuple[Advice, ...]:
    """Return what would be faster, or is known to be wrong, of all that is here, where some of it is chosen."""
    devices = [root.device for root in found.roots]
    order = sorted(kinds(), key=lambda kind: not kind.first)
    return tuple(one for kind in order for one in kind.advise(devices, chosen))


def discover() -> tuple[Device, ...]:
    """Every root device that is here, whatever ``all`` would choose. ``memory`` is what a device claims; whether it
    really shares the host's is proved when it is opened."""
    return tuple(r.device for r in survey().roots)


def _preference(found: Found) -> tuple[Any, ...]:
    """The order in which devices of a kind are taken; simulators come last."""
    d = found.device
    return d.simulator, DEVICE_KINDS.index(d.kind), found.rank, d.platform, d.driver


def _why_not(found: Found, kept: Sequence[Found]) -> str:
    """Why ``all`` leaves a device out, given what it already has."""
    device = found.device
    if device.simulator:
        return "a simulator: only used when named"
    others = [o for o in kept if o.device.kind == device.kind]
    if device.kind == "cpu":
        return f"the processor that {others[0].device.platform} already shows" if others else ""
    for other in others:
        if other.device.platform == device.platform and other.device.driver == device.driver:
            continue  # a driver shows each of its devices once (instances of a divided GPU share a place)
        if found.place and other.place:
            if found.place == other.place:
                return f"the device that {other.device.platform} already shows"
        elif found.vendor == other.vendor:
            return f"perhaps the device that {other.device.platform} already shows: name it if it is another"
    return ""


_mark: Mark | None = None
"""Of the process in which drivers were loaded."""


def in_use() -> Mark:
    """Return the mark of this process, in which devices are used, of whatever survey."""
    global _mark
    if _mark is None or not _mark.page[0]:
        _mark = Mark()
    return _mark


def is_forked() -> bool:
    """Return whether this process was forked from one that has loaded drivers."""
    return _mark is not None and not _mark.page[0]


def refuse_forked() -> None:
    """Raise DeviceError in such a process: the drivers' threads are not here, and what waits for them waits for
    ever."""
    if _mark is not None and not _mark.page[0]:
        raise DeviceError(
            f"this process was forked from process {_mark.process}, which uses devices: drivers do not survive that",
            hint="start it by multiprocessing.get_context('spawn') or 'forkserver', or fork before devices are used",
        )
