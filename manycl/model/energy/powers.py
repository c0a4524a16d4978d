"""Energy: the joules of a run by the powers of its devices and the energy of its links, and powers fitted to joules. A
device draws its idle power from the first command to the last one, and more while it computes: a kernel's own power
where that was measured, else the device's. Each byte costs a link the same. So the joules of a run are a sum of times
and bytes, and powers follow from the measured joules of runs that differ, by least squares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from manycl.intervals import union_length
from manycl.machine import HOST, Device, Machine
from manycl.model.history.history import identity
from manycl.trace import Event, KernelEvent, TransferEvent

JOULES = "joules"
"""The key of a plan's or trace's details that has the joules, by device or meter."""


class Usage(NamedTuple):
    """The use of a machine by a run, on which its joules depend: ``seconds`` of the run; ``busy``: seconds in which a
    device (its name) computed a kernel (its name); ``moved``: bytes from one memory to another (names)."""

    seconds: float
    busy: Mapping[tuple[str, str], float]
    moved: Mapping[tuple[str, str], int]


def usage(events: Iterable[Event], seconds: float) -> Usage:
    """Return the usage of a run, a simulation or a plan that takes so many seconds. Of the time in which kernels in
    several queues of a device overlap, each counts its part."""
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    busy: dict[tuple[str, str], float] = defaultdict(float)
    moved: dict[tuple[str, str], int] = defaultdict(int)
    for e in events:
        if isinstance(e, KernelEvent):
            spans[e.device].append((e.start, e.end))
            busy[e.device, e.kernel or e.name] += max(0.0, e.end - e.start)
        elif isinstance(e, TransferEvent) and e.source != e.target:
            moved[e.source, e.target] += e.nbytes
    sums = {device: sum(max(0.0, end - start) for start, end in of) or 1.0 for device, of in spans.items()}
    parts = {device: union_length(of) / sums[device] for device, of in spans.items()}
    return Usage(seconds, {key: t * parts[key[0]] for key, t in busy.items()}, moved)


def _terms(machine: Machine, of: Usage) -> Iterator[tuple[Device, str, float, float]]:
    """Yield what the joules of a run are the sum of: a device, what the term is called among its measurements, seconds
    or bytes, and the joules of each (of kernels above idle power)."""
    devices = {d.name: d for d in machine.devices}
    for d in machine.devices:
        yield d, "idle_power", of.seconds, d.idle_power
    for (name, kernel), seconds in of.busy.items():
        yield devices[name], f"power:{kernel}", seconds, devices[name].above_idle(kernel)
    hosts = {machine.memory_name(m): m for m in range(1 + len(machine.hosts))}
    for ends, nbytes in of.moved.items():
        source, target = (hosts[e] if e in hosts else devices[e].memory for e in ends)
        link, way = machine.link(source, target), "down" if target == HOST else "up" if source == HOST else "peer"
        owner = devices.get(ends[1]) or devices.get(ends[0])
        if owner is not None:
            yield owner, f"{way}_energy", float(nbytes), link.energy if link is not None else 0.0


def joules(machine: Machine, of: Usage) -> dict[str, float]:
    """Return the joules of each device, those of transfers to it, or from it to the host, among them."""
    found = {d.name: 0.0 for d in machine.devices}
    for device, _, amount, each in _terms(machine, of):
        found[device.name] += amount * each
    return found


def has_powers(machine: Machine) -> bool:
    """Return whether a machine says what its devices draw."""
    return any(d.power or d.idle_power for d in machine.devices)


def spent(machine: Machine, events: Iterable[Event], seconds: float) -> dict[str, dict[str, float]]:
    """Return the ``JOULES`` of a run, a simulation or a plan as an entry of its details; none without powers."""
    return {JOULES: joules(machine, usage(events, seconds))} if has_powers(machine) else {}


def fitted(machine: Machine, runs: Sequence[Usage], measured: Sequence[float]) -> dict[str, dict[str, float]]:
    """Return the powers that explain the measured joules of runs best, as measurements of devices: by least squares of
    relative errors, none below zero, the least ones where several explain them. Runs tell the devices' idle powers only
    together: these are then equal."""
    rows: list[dict[tuple[str, str], float]] = [defaultdict(float) for _ in runs]
    for row, run, total in zip(rows, runs, measured, strict=True):
        for device, name, amount, _ in _terms(machine, run):
            row[identity(device), name] += amount / total
    names = sorted({key for row in rows for key, part in row.items() if part > 0.0})
    table = np.array([[row.get(key, 0.0) for key in names] for row in rows])
    scale, values, free = np.sqrt((table**2).sum(axis=0)), np.zeros(len(names)), np.ones(len(names), bool)
    while free.any():
        values[:] = 0.0
        values[free] = np.linalg.lstsq(table[:, free] / scale[free], np.ones(len(rows)), rcond=None)[0] / scale[free]
        if values.min() >= 0.0:
            break
        free[np.argmin(values * scale)] = False
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for (subject, name), value in zip(names, map(float, values), strict=True):
        found[subject][name] = value
    for subject, of in found.items():
        seconds = {n: sum(row.get((subject, n), 0.0) for row in rows) for n in of if n.startswith("power:")}
        idle, busy = of.get("idle_power", 0.0), sum(seconds.values())
        of |= {n: idle + of[n] for n in seconds}
        of["power"] = sum(t * of[n] for n, t in seconds.items()) / busy if busy else idle
    return found
