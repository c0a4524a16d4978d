"""Choosing, dividing and opening the devices that are here, by this process or those of ``manycl serve``."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from manycl import flags
from manycl.device_syntax import EXAMPLES, Item, parse
from manycl.drivers.driver import Driver, DriverError, Handle
from manycl.drivers.kinds import kinds
from manycl.drivers.survey import Root, Survey, processor_alone, refuse_forked, survey
from manycl.errors import DeviceError
from manycl.machine import DEVICE_KINDS, HOST, Device, Link, Machine

_PRIOR_BANDWIDTH = 10e9  # bytes per second between host and device, until it is measured
_PRIOR_LATENCY = 20e-6  # seconds, likewise
_PROCESSOR = {"all", "cpu", "cpu0", "native"}
"""What means the native device wherever there is one, and with ``all`` perhaps others."""
_NAME = re.compile(rf"(?P<root>(?:{'|'.join(DEVICE_KINDS)})\d+)(?P<part>\.\d+)?")


@dataclass(frozen=True, eq=False)
class OpenDevice:
    """A device in use, or a part of one. ``selection`` means it, in any process."""

    device: Device
    handle: Handle
    selection: str = ""

    def open(self) -> Driver:
        """Return its driver. Raises DriverError, also for a slow-down of a device that cannot be slowed down."""
        driver = self.handle.open(self.device)
        if self.device.slowdown != 1.0 and not driver.slows_down:
            driver.release()
            raise DriverError(f"{self.device.name} cannot be slowed down: of all devices, only native ones can")
        return driver


class Opened(NamedTuple):
    """Devices that are opened by their handles, and the machine that they are, in the same order."""

    machine: Machine
    devices: tuple[OpenDevice, ...]


def open_devices(selection: str | Sequence[str] | None = None) -> Opened:
    """The machine that a selection means (None: MANYCL_DEVICES, else ``all``), and handles in the same order. CPU
    devices that prove to compute in the host's memory have ``memory == HOST``. Every other device, also every part of
    one, has a memory of its own, with links of prior estimates: with the host's memory, and with those of devices that
    it can copy from. Raises DeviceError for devices that are not here, cannot be divided so, or are chosen twice."""
    return arranged(chosen_devices(selection))


def chosen_devices(selection: str | Sequence[str] | None = None) -> list[OpenDevice]:
    """Return the chosen devices, as they say that they are. Raises what :func:`open_devices` raises."""
    items = parse(flags.devices() if selection is None else selection)
    refuse_forked()
    return choose(items)


def choose(items: Sequence[Item]) -> list[OpenDevice]:
    """The devices that a selection means, in its order. Raises DeviceError."""
    found = _survey_for(items)
    if not found.roots:
        names, install = " or ".join(k.name for k in kinds()), "; ".join(k.install for k in kinds())
        raise DeviceError("\n  ".join([f"there is no {names} device on this machine", *found.notes]), hint=install)
    return _choose(items, found.roots)


def arranged(chosen: Sequence[OpenDevice]) -> Opened:
    """The machine that devices are, and they with their places in it."""
    memories, met = 1, defaultdict[tuple[str, str], dict[str, Any]](dict)
    opened: list[OpenDevice] = []
    for c in chosen:
        shares = c.device.kind == "cpu" and flags.zero_copy() and c.handle.shares_host_memory()
        memory = HOST if shares else memories
        memories += not shares
        most = flags.device_memory()
        sizes = min(c.device.global_memory, most), min(c.device.max_allocation, most)
        device = replace(c.device, memory=memory, global_memory=sizes[0], max_allocation=sizes[1])
        handle = c.handle if shares else c.handle.among(met[device.platform, device.driver])
        opened.append(replace(c, device=device, handle=handle))
    return joined(opened)


def joined(opened: Sequence[OpenDevice]) -> Opened:
    """The machine of devices that have their places, and they as their handles say which of them wait for each other
    and copy from each other."""
    domains = [next((o.device.name for o in opened if c.handle.waits_for(o.handle)), "") for c in opened]
    opened = [replace(o, device=replace(o.device, event_domain=d)) for o, d in zip(opened, domains, strict=True)]
    own = [o for o in opened if o.device.memory != HOST]
    memories = 1 + max([o.device.memory for o in opened], default=HOST)
    ends = [pair for m in range(1, memories) for pair in ((HOST, m), (m, HOST))]
    ends += [(a.device.memory, b.device.memory) for a in own for b in own if a is not b and b.handle.can_copy(a.handle)]
    links = tuple([Link(*pair, _PRIOR_BANDWIDTH, _PRIOR_LATENCY) for pair in ends])
    return Opened(Machine(tuple(o.device for o in opened), links), tuple(opened))


def _survey_for(items: Sequence[Item]) -> Survey:
    """Return the survey of all that is here, or of the processor where nothing else can be meant."""
    alone = processor_alone() if {item.selector.lower() for item in items} <= _PROCESSOR else None
    return survey() if alone is None else alone


def _choose(items: Sequence[Item], roots: Sequence[Root]) -> list[OpenDevice]:
    chosen: list[OpenDevice] = []
    divisions: dict[str, tuple[int, ...]] = {}
    parts: dict[str, Sequence[Handle]] = {}  # a device is divided once, so that its parts are of one division
    for item in items:
        for root in _select(item, roots):
            name = root.device.name
            if divisions.setdefault(name, item.division) != item.division:
                raise _refusal(item, f"{name} cannot be whole and divided, or divided in two ways, at once")
            if not item.division:
                selection = str(Item(name, factor=item.factor))
                found = [OpenDevice(replace(root.device, slowdown=item.factor), root.handle, selection)]
            else:
                if name not in parts:
                    parts[name] = _divide(root, item)
                found = _parts(root, item, parts[name])
            chosen.extend(_in_processes(found) if item.own_process else found)
    names = [c.device.name for c in chosen]
    for name in names:
        if names.count(name) > 1:
            raise _refusal(", ".join(map(str, items)), f"{name} is chosen twice")
    return chosen


def _select(item: Item, roots: Sequence[Root]) -> list[Root]:
    """The roots that a selector means: a kind among those of ``all``, a name, or part of a name. Platforms are looked
    at before models (an Intel processor is also in PoCL's model name). As in ``all``, a processor that several
    platforms show is taken once."""
    word = item.selector.lower()
    if word == "all" or word in DEVICE_KINDS:
        found = [r for r in roots if not r.why_not and word in ("all", r.device.kind)]
    elif name := _NAME.fullmatch(word):
        found = [r for r in roots if r.device.name == word]
        if name["part"]:
            raise _refusal(
                item, f"{word} is a part of {name['root']}: say how that is divided, as in {name['root']}/2#1"
            )
    else:
        found = [r for r in roots if word in _text(r)] or [r for r in roots if word in r.device.model.lower()]
        found = [r for r in found if not r.device.simulator] or found
        first_cpu = next((r for r in found if r.device.kind == "cpu"), None)
        found = [r for r in found if r.device.kind != "cpu" or r is first_cpu]
    if not found:
        raise _refusal(item, "there is no such device")
    return found


def _text(root: Root) -> str:
    return f"{root.driver} {root.device.platform} {root.device.driver}".lower()


def _divide(root: Root, item: Item) -> Sequence[Handle]:
    """Return all parts of a division."""
    units = root.device.compute_units
    needed, count = sum(item.division), len(item.division)
    if count == 1:
        count = needed
    if needed > units:
        raise _refusal(item, f"{root.device.name} has {units} compute units, not {needed}")
    try:
        parts = root.handle.divide(item.division)
    except DriverError as error:
        raise _refusal(item, f"{root.device.name} cannot be divided so ({error})") from None
    if len(parts) < count:
        raise _refusal(item, f"{root.device.name} can be divided into {len(parts)} parts, not {count}")
    return parts


def _parts(root: Root, item: Item, parts: Sequence[Handle]) -> list[OpenDevice]:
    """The parts that an item wants, as devices: compute power and bandwidth in proportion."""
    first, last = item.parts or (0, len(parts) - 1)
    if last >= len(parts):
        there = f"parts 0 to {len(parts) - 1}"
        raise _refusal(item, f"{root.device.name} is divided into {there}; there is no part {last}")
    out = []
    for number in range(first, last + 1):
        units = parts[number].compute_units
        share = units / root.device.compute_units
        value = replace(
            root.device,
            name=f"{root.device.name}.{number}",
            compute_units=units,
            flops=root.device.flops * share,
            bandwidth=root.device.bandwidth * share,
            slowdown=item.factor,
        )
        selection = str(Item(root.device.name, item.division, (number, number), item.factor))
        out.append(OpenDevice(value, parts[number], selection))
    return out


def _in_processes(chosen: Sequence[OpenDevice]) -> list[OpenDevice]:
    """Return the devices, each to be opened by a process of its own."""
    from manycl.drivers.worker.handle import WorkerHandle

    return [
        replace(one, device=replace(one.device, shortens=False), handle=WorkerHandle(one.handle, one.selection))
        for one in chosen
    ]


def _refusal(item: Item | str, problem: str) -> DeviceError:
    there = [
        f"{d.name}: {d.model} ({d.platform}), {d.compute_units} compute units" + (f"; {r.why_not}" if r.why_not else "")
        for r in survey().roots
        for d in (r.device,)
    ]
    return DeviceError("\n    ".join([f"{item}: {problem}; here are", *there, *survey().notes]), hint=EXAMPLES)


Opener = Callable[[str | Sequence[str] | None], Opened]


def opener(serve: bool | None) -> Opener:
    """Return what opens devices (None: as MANYCL_SERVE says)."""
    if not (flags.serve() if serve is None else serve):
        return open_devices
    from manycl.drivers.serve.client import open_served

    return open_served
