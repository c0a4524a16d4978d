"""Which OpenCL devices are here, what they are called, and which of them ``all`` means.

One physical device may be shown by several platforms, under several names; ``all`` has it once.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from manycl.interrupts import Uninterrupted
from manycl.machine import HOST, Device
from manycl.run.backends.drivers import intel_library, pip_pocl, prepare
from manycl.run.backends.processor import introduce

_POCL = "portable computing"
_OPEN_DRIVERS = (_POCL, "rusticl", "clover")  # for GPUs, the vendor's own driver comes first
_SIMULATORS = ("oclgrind", "fpga emulation")
_GPU_LANES = {"nvidia": 128, "amd": 64, "advanced micro": 64, "intel": 8}  # FP32 lanes of a compute unit
_UNKNOWN_LANES = 32
GPU_QUEUES = 16  # on an H200 sixteen queues beat eight on small kernels, and never lost to them
_UNKNOWN_CLOCK = 1000  # MHz, where a driver says 0
_KINDS = ("cpu", "gpu", "accelerator")


@dataclass(frozen=True, eq=False)
class Root:
    """A device as a platform shows it. ``why_not`` says why ``all`` leaves it out (empty: it does not)."""

    device: Device
    cl: Any
    why_not: str = ""


@dataclass(frozen=True)
class Survey:
    """Every root device, those of ``all`` first; ``notes`` tell what was found and could not be used as it
    is."""

    roots: tuple[Root, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Seen:
    """A device as described, before it has a name."""

    device: Device
    cl: Any
    platform: Any
    vendor: int
    place: tuple[int, ...]  # on the PCI bus; () where the driver does not tell


@cache
def survey() -> Survey:
    """Ask every platform once. Names count up per kind, those of ``all`` first: cpu0, gpu0, gpu1, …"""
    prepare()
    notes: list[str] = []
    seen = sorted(_look(notes), key=_preference)
    kept: list[_Seen] = []
    roots: list[Root] = []
    for s in seen:
        why_not = _why_not(s, kept)
        if not why_not:
            kept.append(s)
        roots.append(Root(s.device, s.cl, why_not))
    roots.sort(key=lambda r: bool(r.why_not))
    counts = dict.fromkeys(_KINDS, 0)
    memories = 1
    named = []
    for root in roots:
        d = root.device
        memory = HOST if d.memory == HOST else memories
        memories += memory != HOST
        named.append(replace(root, device=replace(d, name=f"{d.kind}{counts[d.kind]}", memory=memory)))
        counts[d.kind] += 1
    if intel_library() and not any("intel" in s.device.platform.lower() for s in seen):
        notes.append("Intel's runtime is installed but does not load: try pip install intel-cmplr-lib-rt")
    return Survey(tuple(named), tuple(notes))


def discover() -> tuple[Device, ...]:
    """Every root device that is here, whatever ``all`` would choose.

    ``memory`` is what a device claims; whether it really shares the host's is proved when it is opened.
    """
    return tuple(r.device for r in survey().roots)


def _look(notes: list[str]) -> Iterator[_Seen]:
    """Every usable device of every platform; a platform that is there twice is taken once."""
    with Uninterrupted():
        import pyopencl as cl

    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return  # the loader's way to say that there is none
    known: set[tuple[str, str]] = set()
    for platform in platforms:
        try:
            identity = (platform.name, platform.version)
            if identity in known:
                continue
            known.add(identity)
            devices = platform.get_devices()
        except cl.Error:
            continue  # no devices (DEVICE_NOT_FOUND), or a driver without its hardware
        for device in devices:
            try:
                described = _describe(device, platform)
            except cl.Error as error:
                notes.append(f"a device of {identity[0]} does not answer and is left out: {error}")
                continue
            if _POCL in identity[0].lower() and described.device.kind == "cpu":
                if shutil.which("ld") is None:
                    # PoCL links kernels with ld; where there is none, the first launch ends the whole process
                    notes.append(f"{identity[0]} is left out: it needs ld (Debian: apt install binutils)")
                    continue
                if name := introduce(device):
                    notes.append(f"{identity[0]} does not know this processor: kernels are built for {name}")
            yield described


def _describe(device: Any, platform: Any) -> _Seen:
    import pyopencl as cl

    text = f"{device.name} {platform.name}".lower()
    simulator = any(s in text for s in _SIMULATORS)
    if simulator or device.type & cl.device_type.CPU:
        kind = "cpu"  # Oclgrind says that it is everything at once
    else:
        kind = "gpu" if device.type & cl.device_type.GPU else "accelerator"
    clock = (device.max_clock_frequency or _UNKNOWN_CLOCK) * 1e6
    units = max(device.max_compute_units, 1)
    lanes = next((n for v, n in _GPU_LANES.items() if v in device.vendor.lower()), _UNKNOWN_LANES)
    value = Device(
        name="",
        kind=kind,
        model=device.name.strip(),
        platform=platform.name.strip(),
        driver=f"{platform.version.strip()}; {device.driver_version.strip()}",
        memory=HOST if kind == "cpu" and device.host_unified_memory else HOST + 1,
        compute_units=units,
        clock=clock,
        # a plain kernel through PoCL reaches about two operations a cycle and core; a GPU's lanes one
        # multiply-add each
        flops=units * clock * 2 * (1 if kind == "cpu" else lanes),
        bandwidth=10e9 * units if kind == "cpu" else 500e9,
        global_memory=device.global_mem_size,
        max_allocation=device.max_mem_alloc_size,
        local_memory=device.local_mem_size,
        max_work_group=device.max_work_group_size,
        double=bool(device.double_fp_config),
        queues=1 if kind == "cpu" else GPU_QUEUES,
        launch_overhead=5e-6 if kind == "cpu" else 10e-6,
        simulator=simulator,
    )
    return _Seen(value, device, platform, device.vendor_id, _place(device))


def _place(device: Any) -> tuple[int, ...]:
    """Domain, bus and slot on the PCI bus, or () when the driver does not tell."""
    import pyopencl as cl

    absent = (cl.Error, AttributeError, NotImplementedError, TypeError)
    with contextlib.suppress(*absent):
        bus, slot = int(device.pci_bus_id_nv), int(device.pci_slot_id_nv)
        domain = 0
        with contextlib.suppress(*absent):
            domain = int(device.pci_domain_id_nv)
        return domain, bus, slot
    with contextlib.suppress(*absent):
        topology = device.topology_amd
        return 0, int(topology.bus), int(topology.device)
    return ()


def _preference(s: _Seen) -> tuple[Any, ...]:
    """The order in which devices of a kind are taken; simulators come last.

    For CPUs: PyPI's PoCL (it comes with manycl, and its sub-devices run in parallel), other PoCLs, others.
    For others: the vendor's own driver first.
    """
    name = s.platform.name.lower()
    if s.device.kind == "cpu":
        pip = pip_pocl()
        rank = 2 if _POCL not in name else 0 if pip and pip in s.platform.version else 1
    else:
        rank = int(any(d in name for d in _OPEN_DRIVERS))
    return s.device.simulator, _KINDS.index(s.device.kind), rank, s.platform.name, s.platform.version


def _why_not(s: _Seen, kept: Sequence[_Seen]) -> str:
    """Why ``all`` leaves a device out, given what it already has."""
    if s.device.simulator:
        return "a simulator: only used when named"
    others = [o for o in kept if o.device.kind == s.device.kind]
    if s.device.kind == "cpu":
        return f"the processor that {others[0].device.platform} already shows" if others else ""
    for other in others:
        if other.device.platform == s.device.platform and other.device.driver == s.device.driver:
            continue  # a driver shows each of its devices once (instances of a divided GPU share a place)
        if s.place and other.place:
            if s.place == other.place:
                return f"the device that {other.device.platform} already shows"
        elif s.vendor == other.vendor:
            return f"perhaps the device that {other.device.platform} already shows: name it if it is another"
    return ""
