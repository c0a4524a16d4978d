"""Finding, choosing and dividing the OpenCL devices that are here, however they were installed.

PyPI's PoCL and Oclgrind lie beside PyOpenCL's own loader and are always seen. The system's ICD files, Intel's wheel and
an NVIDIA library without an ICD file are gathered in a folder that OCL_ICD_VENDORS is pointed at (it replaces the
system's folder), unless the user has set that variable.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.metadata
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from ctypes.util import find_library
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from manycl import flags
from manycl.device_syntax import EXAMPLES, Item, parse
from manycl.errors import DeviceError
from manycl.machine import HOST, Device, Link, Machine

_SYSTEM_ICDS = Path("/etc/OpenCL/vendors")
_NVIDIA = "libnvidia-opencl.so.1"
_NVIDIA_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",
)
_SIMULATORS = ("oclgrind", "fpga emulation")
_GPU_LANES = {"nvidia": 128, "amd": 64, "advanced micro": 64, "intel": 8}  # FP32 lanes of a compute unit
_PRIOR_LINK = (10e9, 20e-6)  # bytes per second and seconds, until a link is measured
_PROBE = 4096  # bytes
INSTALL = "pip install pocl-binary-distribution gives a CPU device; PoCL needs ld (Debian: apt install binutils)"


@dataclass(frozen=True, eq=False)
class OpenDevice:
    """A device that is in use: its value, the (sub-)device's handle, and the root device's."""

    device: Device
    cl: Any
    parent: Any


@dataclass(frozen=True, eq=False)
class Root:
    """A device as a platform shows it. ``why_not`` says why it is left out of ``all`` (empty: it is in it)."""

    device: Device
    cl: Any
    why_not: str = ""


@cache
def prepare() -> None:
    """Point the loader at every driver that is here, before the first platform query. Idempotent."""
    if "OCL_ICD_VENDORS" in os.environ:
        return
    folder = Path(tempfile.mkdtemp(prefix="manycl-icd-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    known = ""
    if _SYSTEM_ICDS.is_dir():
        for icd in sorted(_SYSTEM_ICDS.glob("*.icd")):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                text = icd.read_text(encoding="utf-8")
                (folder / icd.name).write_text(text, encoding="utf-8")
                known += text
    intel = _intel_library()
    if intel and "libintelocl" not in known:
        (folder / "intel-pip.icd").write_text(f"{intel}\n", encoding="utf-8")
    nvidia = _nvidia_library()
    if nvidia and "libnvidia-opencl" not in known:
        (folder / "nvidia-found.icd").write_text(f"{nvidia}\n", encoding="utf-8")
    os.environ["OCL_ICD_VENDORS"] = str(folder)


def _intel_library() -> str:
    """The library in Intel's wheel (whose own ICD file has a path that exists nowhere)."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("intel-opencl-rt") or ():
            if file.name == "libintelocl.so":
                return str(Path(str(file.locate())).resolve())
    return ""


def _nvidia_library() -> str:
    """NVIDIA's library where a container has it without an ICD file."""
    if find_library("nvidia-opencl"):
        return _NVIDIA
    return next((str(p) for f in _NVIDIA_FOLDERS if (p := Path(f) / _NVIDIA).exists()), "")


@cache
def roots() -> tuple[Root, ...]:
    """Every root device, default ones first; names count up per kind: cpu0, gpu0, gpu1, …"""
    prepare()
    import pyopencl as cl

    try:
        platforms = {(p.name, p.version): p for p in cl.get_platforms()}
    except cl.Error:
        return ()  # no platform at all
    found: list[Root] = []
    for platform in sorted(platforms.values(), key=_preference):
        for device in _devices_of(platform):
            found.append(_describe(device, platform, found))
    found.sort(key=lambda r: bool(r.why_not))
    counts: dict[str, int] = {}
    named = []
    for root in found:
        kind = root.device.kind
        number = counts.get(kind, 0)
        counts[kind] = number + 1
        named.append(replace(root, device=replace(root.device, name=f"{kind}{number}")))
    return tuple(named)


def _preference(platform: Any) -> tuple[int, str, str]:
    """PyPI's PoCL is the default CPU driver; simulators come last."""
    name = platform.name.lower()
    rank = 0 if "portable computing" in name else 2 if any(s in name for s in _SIMULATORS) else 1
    return rank, platform.name, platform.version


def _devices_of(platform: Any) -> list[Any]:
    import pyopencl as cl

    if "portable computing" in platform.name.lower() and shutil.which("ld") is None:
        return []  # PoCL links kernels with ld and aborts the process where there is none
    try:
        return list(platform.get_devices())
    except cl.Error:
        return []  # a platform without devices (DEVICE_NOT_FOUND), or a broken one


def _describe(device: Any, platform: Any, before: Sequence[Root]) -> Root:
    import pyopencl as cl

    text = f"{device.name} {platform.name}".lower()
    simulator = any(s in text for s in _SIMULATORS)
    if simulator or device.type & cl.device_type.CPU:
        kind = "cpu"  # Oclgrind says that it is everything at once
    else:
        kind = "gpu" if device.type & cl.device_type.GPU else "accelerator"
    clock = max(device.max_clock_frequency, 1) * 1e6
    units = max(device.max_compute_units, 1)
    lanes = next((n for vendor, n in _GPU_LANES.items() if vendor in device.vendor.lower()), 32)
    # plain kernels through PoCL reach one or two operations a cycle and core; a GPU's lanes do one multiply-add each
    flops = units * clock * (2 if kind == "cpu" else lanes * 2)
    value = Device(
        name="",
        kind=kind,
        model=device.name.strip(),
        platform=platform.name.strip(),
        driver=f"{platform.version.strip()}; {device.driver_version.strip()}",
        memory=HOST if kind == "cpu" and device.host_unified_memory else 1,
        compute_units=units,
        clock=clock,
        flops=flops,
        bandwidth=10e9 * units if kind == "cpu" else 500e9,
        global_memory=device.global_mem_size,
        max_allocation=device.max_mem_alloc_size,
        local_memory=device.local_mem_size,
        max_work_group=device.max_work_group_size,
        double=bool(device.double_fp_config),
        queues=1 if kind == "cpu" else 8,
        launch_overhead=5e-6 if kind == "cpu" else 10e-6,
        simulator=simulator,
    )
    return Root(value, device, _why_not(value, device, before))


def _why_not(value: Device, device: Any, before: Sequence[Root]) -> str:
    if value.simulator:
        return "a simulator; choose it by name"
    others = [r for r in before if not r.why_not and r.device.kind == value.kind]
    if value.kind == "cpu" and others:
        return f"the same processor as {others[0].device.platform} shows"
    place = _pci(device)
    if place and any(_pci(r.cl) == place for r in others):
        return "the same device as another platform shows"
    return ""


def _pci(device: Any) -> tuple[int, ...]:
    """Where a device sits on the bus, or () when its driver does not tell."""
    import pyopencl as cl

    for names in (("PCI_DOMAIN_ID_NV", "PCI_BUS_ID_NV", "PCI_SLOT_ID_NV"), ("PCI_BUS_ID_NV", "PCI_SLOT_ID_NV")):
        with contextlib.suppress(cl.Error, AttributeError):
            return tuple(int(device.get_info(getattr(cl.device_info, n))) for n in names)
    return ()


def discover() -> tuple[Device, ...]:
    """Every root device that is here, whatever ``all`` would choose."""
    return tuple(r.device for r in roots())


def open_devices(selection: str | Sequence[str] | None = None) -> tuple[Machine, tuple[OpenDevice, ...]]:
    """The machine that a selection describes, and its devices' handles in the same order.

    Raises DeviceError for devices that are not here, cannot be divided so, or are chosen twice.
    """
    items = parse(selection if selection is not None else flags.devices())
    if not roots():
        raise DeviceError("there is no OpenCL device on this machine", hint=INSTALL)
    chosen: list[OpenDevice] = []
    divisions: dict[str, tuple[int, ...]] = {}
    for item in items:
        for root in _select(item):
            name = root.device.name
            if divisions.setdefault(name, item.division) != item.division and item.division and divisions[name]:
                raise DeviceError(f"{item}: {name} is divided in two different ways", hint=EXAMPLES)
            chosen.extend(_divide(root, item))
    _check_overlap([c.device.name for c in chosen])
    memories = 1
    opened: list[OpenDevice] = []
    for c in chosen:
        shares = c.device.kind == "cpu" and flags.zero_copy() and shares_host_memory(c.cl)
        memory = HOST if shares else memories
        memories += 0 if shares else 1
        opened.append(replace(c, device=replace(c.device, memory=memory)))
    bandwidth, latency = _PRIOR_LINK
    links = tuple(
        Link(a, b, bandwidth, latency) for m in range(1, memories) for a, b in ((HOST, m), (m, HOST))
    )
    return Machine(tuple(o.device for o in opened), links), tuple(opened)


def _select(item: Item) -> Iterator[Root]:
    """The roots that a selector means: names first, then kinds among the default set, then parts of names."""
    word = item.selector.lower()
    every = roots()
    found = [r for r in every if r.device.name == word]
    if not found and word in ("all", "cpu", "gpu", "accelerator"):
        found = [r for r in every if not r.why_not and word in ("all", r.device.kind)]
    elif not found:
        found = [r for r in every if word in f"{r.device.model} {r.device.platform}".lower()]
        if "pocl" in word and not found:
            found = [r for r in every if "portable computing" in r.device.platform.lower()]
    if not found:
        raise DeviceError(f"{item}: there is no such device\n{_list_devices()}", hint=EXAMPLES)
    yield from found


def _list_devices() -> str:
    return "\n".join(f"  {r.device.name}: {r.device.model} ({r.device.platform})" for r in roots())


def _divide(root: Root, item: Item) -> Iterator[OpenDevice]:
    import pyopencl as cl

    device = replace(root.device, slowdown=item.factor)
    if not item.division:
        yield OpenDevice(device, root.cl, root.cl)
        return
    units = root.device.compute_units
    kinds = cl.device_partition_property
    if len(item.division) == 1:
        count = item.division[0]
        needed, how = count, [kinds.EQUALLY, units // count or 1]
    else:
        count, needed = len(item.division), sum(item.division)
        how = [kinds.BY_COUNTS, *item.division, kinds.BY_COUNTS_LIST_END]
    if needed > units:
        raise DeviceError(f"{item}: {root.device.name} has {units} compute units, not {needed}", hint=EXAMPLES)
    try:
        parts = root.cl.create_sub_devices(how)[:count]
    except cl.Error as error:
        raise DeviceError(f"{item}: {root.device.name} cannot be divided so: {error}") from None
    first, last = item.parts or (0, count - 1)
    if last >= count:
        raise DeviceError(f"{item}: {root.device.name} is divided into {count} parts; there is no part {last}")
    for number in range(first, last + 1):
        part = parts[number]
        share = part.max_compute_units / units
        value = replace(
            device,
            name=f"{device.name}.{number}",
            compute_units=part.max_compute_units,
            flops=device.flops * share,
            bandwidth=device.bandwidth * share,
        )
        yield OpenDevice(value, part, root.cl)


def _check_overlap(names: Sequence[str]) -> None:
    for i, name in enumerate(names):
        if name in names[:i]:
            raise DeviceError(f"{name} is chosen twice", hint=EXAMPLES)
        root = name.split(".")[0]
        if name != root and root in names:
            raise DeviceError(f"{name} is a part of {root}, and both are chosen", hint=EXAMPLES)


def shares_host_memory(device: Any) -> bool:
    """Whether a device computes in the host's memory: proved by a probe, not by what it says of itself.

    A buffer on host memory is changed by the device, and the host looks without mapping it.
    """
    import pyopencl as cl

    raw = np.zeros(2 * _PROBE, np.uint8)
    start = -raw.ctypes.data % _PROBE
    data = raw[start : start + _PROBE]
    try:
        context = cl.Context([device])
        queue = cl.CommandQueue(context, device)
        shared = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR, hostbuf=data)
        source = np.full(_PROBE, 0xA5, np.uint8)
        other = cl.Buffer(context, cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR, hostbuf=source)
        cl.enqueue_copy(queue, shared, other, byte_count=_PROBE)
        queue.finish()
    except cl.Error:
        return False
    return bool((data == 0xA5).all())
