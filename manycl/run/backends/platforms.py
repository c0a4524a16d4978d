"""Choosing, dividing and opening the OpenCL devices that are here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from manycl import flags
from manycl.device_syntax import EXAMPLES, Item, parse
from manycl.errors import DeviceError
from manycl.machine import HOST, Device, Link, Machine
from manycl.run.backends.drivers import prepare, refuse_forked
from manycl.run.backends.survey import Root, discover, survey

__all__ = ["OpenDevice", "discover", "open_devices", "prepare", "shares_host_memory", "survey"]

INSTALL = (
    "pip install pocl-binary-distribution gives a CPU device (it needs ld; Debian: apt install binutils); "
    "a GPU needs its vendor's driver"
)
_PRIOR_BANDWIDTH = 10e9  # bytes per second between host and device, until it is measured
_PRIOR_LATENCY = 20e-6  # seconds, likewise
_PROBE = 4096  # bytes, and the alignment every driver accepts
_NAME = re.compile(r"(?P<root>(?:cpu|gpu|accelerator)\d+)(?P<part>\.\d+)?")


@dataclass(frozen=True, eq=False)
class OpenDevice:
    """A device in use. ``cl``: its handle (a sub-device's own); ``parent``: the root device's.

    Give ``cl`` to every CommandQueue: PoCL's ``Context([sub]).devices`` holds the parent.
    """

    device: Device
    cl: Any
    parent: Any


def open_devices(selection: str | Sequence[str] | None = None) -> tuple[Machine, tuple[OpenDevice, ...]]:
    """The machine that a selection means (None: MANYCL_DEVICES, else ``all``), and handles in the same order.

    CPU devices that prove to compute in the host's memory have ``memory == HOST``. Every other device, also
    every part of one, has a memory of its own, with links of prior estimates. Raises DeviceError for devices
    that are not here, cannot be divided so, or are chosen twice.
    """
    items = parse(flags.devices() if selection is None else selection)
    refuse_forked()
    if not survey().roots:
        raise DeviceError("\n  ".join(["there is no OpenCL device on this machine", *survey().notes]), hint=INSTALL)
    chosen = _choose(items)
    memories = 1
    opened: list[OpenDevice] = []
    for c in chosen:
        shares = c.device.kind == "cpu" and flags.zero_copy() and shares_host_memory(c.cl)
        memory = HOST if shares else memories
        memories += not shares
        most = flags.device_memory()
        sizes = min(c.device.global_memory, most), min(c.device.max_allocation, most)
        device = replace(c.device, memory=memory, global_memory=sizes[0], max_allocation=sizes[1])
        opened.append(replace(c, device=device))
    links = tuple(
        Link(a, b, _PRIOR_BANDWIDTH, _PRIOR_LATENCY) for m in range(1, memories) for a, b in ((HOST, m), (m, HOST))
    )
    return Machine(tuple(o.device for o in opened), links), tuple(opened)


def _choose(items: Sequence[Item]) -> list[OpenDevice]:
    chosen: list[OpenDevice] = []
    divisions: dict[str, tuple[int, ...]] = {}
    parts: dict[str, list[Any]] = {}  # a device is divided once, so that its parts are of one division
    for item in items:
        for root in _select(item):
            name = root.device.name
            if divisions.setdefault(name, item.division) != item.division:
                raise _refusal(item, f"{name} cannot be whole and divided, or divided in two ways, at once")
            if not item.division:
                chosen.append(OpenDevice(replace(root.device, slowdown=item.factor), root.cl, root.cl))
                continue
            if name not in parts:
                parts[name] = _divide(root, item)
            chosen.extend(_parts(root, item, parts[name]))
    names = [c.device.name for c in chosen]
    for name in names:
        if names.count(name) > 1:
            raise _refusal(", ".join(map(str, items)), f"{name} is chosen twice")
    return chosen


def _select(item: Item) -> list[Root]:
    """The roots that a selector means: a kind among those of ``all``, a name, or part of a name.

    Platforms are looked at before models (an Intel processor is also in PoCL's model name). As in ``all``, a
    processor that several platforms show is taken once.
    """
    word = item.selector.lower()
    roots = survey().roots
    if word in ("all", "cpu", "gpu", "accelerator"):
        found = [r for r in roots if not r.why_not and word in ("all", r.device.kind)]
    elif name := _NAME.fullmatch(word):
        found = [r for r in roots if r.device.name == word]
        if name["part"]:
            raise _refusal(
                item, f"{word} is a part of {name['root']}: say how that is divided, as in {name['root']}/2#1"
            )
    else:
        found = [r for r in roots if word in _platform_text(r)] or [r for r in roots if word in r.device.model.lower()]
        found = [r for r in found if not r.device.simulator] or found
        first_cpu = next((r for r in found if r.device.kind == "cpu"), None)
        found = [r for r in found if r.device.kind != "cpu" or r is first_cpu]
    if not found:
        raise _refusal(item, "there is no such device")
    return found


def _platform_text(root: Root) -> str:
    name = root.device.platform.lower()
    return f"{name} pocl" if "portable computing" in name else name


def _divide(root: Root, item: Item) -> list[Any]:
    """All sub-devices of a division. Compute units that equal parts leave over stay idle."""
    import pyopencl as cl

    units, kinds = root.device.compute_units, cl.device_partition_property
    equal = len(item.division) == 1
    needed = item.division[0] if equal else sum(item.division)
    if needed > units:
        raise _refusal(item, f"{root.device.name} has {units} compute units, not {needed}")
    if equal:
        how = [kinds.EQUALLY, units // needed]
    else:
        how = [kinds.BY_COUNTS, *item.division, kinds.BY_COUNTS_LIST_END]
    count = needed if equal else len(item.division)
    try:
        parts = list(root.cl.create_sub_devices(how))[:count]
    except cl.Error as error:
        raise _refusal(item, f"{root.device.name} cannot be divided so ({error})") from None
    if len(parts) < count:
        raise _refusal(item, f"{root.device.name} can be divided into {len(parts)} parts, not {count}")
    return parts


def _parts(root: Root, item: Item, parts: Sequence[Any]) -> list[OpenDevice]:
    """The parts that an item wants, as devices: compute power and bandwidth in proportion."""
    first, last = item.parts or (0, len(parts) - 1)
    if last >= len(parts):
        there = f"parts 0 to {len(parts) - 1}"
        raise _refusal(item, f"{root.device.name} is divided into {there}; there is no part {last}")
    out = []
    for number in range(first, last + 1):
        units = parts[number].max_compute_units
        share = units / root.device.compute_units
        value = replace(
            root.device,
            name=f"{root.device.name}.{number}",
            compute_units=units,
            flops=root.device.flops * share,
            bandwidth=root.device.bandwidth * share,
            slowdown=item.factor,
        )
        out.append(OpenDevice(value, parts[number], root.cl))
    return out


def _refusal(item: Item | str, problem: str) -> DeviceError:
    there = [
        f"{d.name}: {d.model} ({d.platform}), {d.compute_units} compute units" + (f"; {r.why_not}" if r.why_not else "")
        for r in survey().roots
        for d in (r.device,)
    ]
    return DeviceError("\n    ".join([f"{item}: {problem}; here are", *there, *survey().notes]), hint=EXAMPLES)


def shares_host_memory(device: Any) -> bool:
    """Whether a device computes in the host's memory: proved by a probe, not by what it says of itself.

    A buffer lies on host memory. The device changes it and the host looks, then the host changes it and the
    device looks, and neither maps it.
    """
    import pyopencl as cl

    raw = np.zeros(2 * _PROBE, np.uint8)
    start = -raw.ctypes.data % _PROBE
    data = raw[start : start + _PROBE]
    seen = np.full(_PROBE, 0xA5, np.uint8)
    try:
        context = cl.Context([device])
        queue = cl.CommandQueue(context, device)
        shared = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR, hostbuf=data)
        other = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=seen)
        cl.enqueue_copy(queue, shared, other, byte_count=_PROBE)
        queue.finish()
        if not (data == 0xA5).all():
            return False
        data[:] = 0x5A
        cl.enqueue_copy(queue, other, shared, byte_count=_PROBE)
        cl.enqueue_copy(queue, seen, other)
        queue.finish()
    except cl.Error:
        return False
    return bool((seen == 0x5A).all())
