"""Measurements in a machine, by ``manycl devices --measure`` or between a session's first runs: its devices' rates, its
links, and how they share.

Measurements are kept by subject: a device's :func:`~manycl.model.history.history.identity`, or ``together:`` and the
sorted identities of devices that transferred at the same time. Names of a device's: ``flops``, ``bandwidth``,
``launch_overhead`` as in :class:`manycl.machine.Device`; ``up_bandwidth``, ``up_latency``, ``up_chunk``,
``down_bandwidth``, ``down_latency``, ``down_chunk`` of its links with the host as in :class:`manycl.machine.Link`;
``peer_bandwidth``, ``peer_latency``, ``peer_chunk`` of its links from other devices; ``both_ways``: bytes per second in
both directions together when both are busy. Names for devices together: ``up`` and ``down``, bytes per second of all.
``up_observed``, ``up_latency_observed``, ``up_chunk_observed`` and those of ``down`` are the values in transfers of
real runs (:mod:`manycl.model.history.learning`), which correct what was measured, but for chunks; so are
``enqueuing_observed`` and ``enqueuing_copy_observed``, as in :class:`manycl.machine.Device`. ``idle_power``, ``power``,
``power:`` with a kernel's name, ``up_energy``, ``down_energy`` and ``peer_energy`` are fitted to the joules of runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from manycl.machine import HOST, Device, Machine, Sharing
from manycl.model.history.history import identity
from manycl.model.prior import MEASURED

SOURCE = "measured by manycl"
OBSERVED = "observed in transfers of real runs"
_HALF = 1.25
"""Both directions together must be this many times as fast as the faster one to be full duplex; our own choice."""
ONE_WAY = "NVIDIA"
"""The platform whose driver carries one direction at a time (measured on an H200: both take their sum)."""
_NO_LIMIT = 0.95  # of the links' sum; less together shows a limit of the host's memory; our own choice

Measurements = Mapping[str, Mapping[str, float]]


def together(devices: Iterable[Device]) -> str:
    return "together: " + " + ".join(sorted(identity(d) for d in devices))


def on_machine(machine: Machine, measurements: Measurements) -> Machine:
    """Return the machine with measured numbers where there are any, and notes that say so."""
    notes = dict(machine.notes)
    devices, links = [], list(machine.links)
    for device in machine.devices:
        known = measurements.get(identity(device), {})
        notes |= {f"{device.name}.{name}": SOURCE for name in MEASURED if name in known}
        devices.append(
            replace(
                device,
                flops=known.get("flops", device.flops),
                bandwidth=known.get("bandwidth", device.bandwidth),
                launch_overhead=known.get("launch_overhead", device.launch_overhead),
                enqueuing=known.get("enqueuing_observed", device.enqueuing),
                enqueuing_copy=known.get("enqueuing_copy_observed", device.enqueuing_copy),
                idle_power=known.get("idle_power", device.idle_power),
                power=known.get("power", device.power),
                kernel_power={k.removeprefix("power:"): v for k, v in known.items() if k.startswith("power:")},
            )
        )
        for i, link in enumerate(links):
            if (link.source, link.target) == (HOST, device.memory):
                way, ends = "up", f"host->{device.name}"
            elif (link.source, link.target) == (device.memory, HOST):
                way, ends = "down", f"{device.name}->host"
            elif link.target == device.memory:
                way, ends = "peer", f"{machine.memory_name(link.source)}->{device.name}"
            else:
                continue
            found: dict[str, Any] = {"energy": known.get(f"{way}_energy", link.energy)}
            for what, observed in (("bandwidth", ""), ("latency", "latency_"), ("chunk", "chunk_")):
                names = [f"{way}_{observed}observed", f"{way}_{what}"]  # runs correct what was measured
                name = next((n for n in (names if what != "chunk" else names[::-1]) if known.get(n, 0.0) > 0), "")
                if name:
                    found[what] = known[name] if what != "chunk" else int(known[name])
                    notes[f"{ends}.{what}"] = OBSERVED if name.endswith("observed") else SOURCE
            links[i] = replace(link, **found)
    return replace(
        machine, devices=tuple(devices), links=tuple(links), notes=notes, sharing=_sharing(machine, measurements)
    )


def _sharing(machine: Machine, measurements: Measurements) -> Sharing:
    """Return which links carry one direction at a time, measured or by driver, and the host memory's limits."""
    half = set()
    ups: list[float] = []
    downs: list[float] = []
    own = [d for d in machine.devices if d.memory != HOST]
    for device in own:
        known = measurements.get(identity(device), {})
        up, down = known.get("up_bandwidth", 0.0), known.get("down_bandwidth", 0.0)
        ups.append(up)
        downs.append(down)
        both = known.get("both_ways", 0.0)
        if 0 < both < _HALF * max(up, down) or (not both and ONE_WAY in device.platform):
            half.add(device.memory)
    limits: dict[str, dict[int, float]] = {"up": {}, "down": {}}
    all_of = measurements.get(together(own), {}) if len(own) > 1 else {}
    for way, links in (("up", ups), ("down", downs)):
        if 0 < all_of.get(way, 0.0) < _NO_LIMIT * sum(links):
            limits[way][HOST] = all_of[way]
    return Sharing(frozenset(half), limits["up"], limits["down"])
