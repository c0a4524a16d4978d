"""The OpenCL devices that the installed drivers show, described, divided and probed."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from manycl.drivers.driver import Driver, DriverError, Found, Handle
from manycl.drivers.native import cores
from manycl.drivers.opencl.driver import CommonContext, OpenCLDriver
from manycl.drivers.opencl.icd import INSTALL, intel_library, pip_pocl, prepare
from manycl.drivers.opencl.processor import introduce
from manycl.drivers.opencl.real import cl
from manycl.machine import EXTENSIONS, HOST, Device

__all__ = ["INSTALL", "look"]

_POCL = "portable computing"
_OPEN_DRIVERS = (_POCL, "rusticl", "clover")  # for GPUs, the vendor's own driver comes first
_SIMULATORS = ("oclgrind", "fpga emulation")
_GPU_LANES = {"nvidia": 128, "amd": 64, "advanced micro": 64, "intel": 8}  # FP32 lanes of a compute unit
_UNKNOWN_LANES = 32
GPU_QUEUES = 16  # on an H200 sixteen queues beat eight on small kernels, and never lost to them
_UNKNOWN_CLOCK = 1000  # MHz, where a driver says 0
_PROBE = 4096  # bytes, and the alignment every driver accepts


class OpenCLHandle(Handle):
    """A device or sub-device; ``resources``: as of :class:`manycl.drivers.driver.Handle`. ``common``: the context that
    it has in common with others, which it copies from and waits for (None: it is opened with a context of its own).
    Give ``cl`` to every CommandQueue: PoCL's ``Context([sub]).devices`` holds the parent."""

    def __init__(
        self, device: Any, resources: Callable[[], frozenset[str]], common: CommonContext | None = None
    ) -> None:
        self.cl = device
        self._resources = resources
        self._common = common

    @property
    def compute_units(self) -> int:
        return int(self.cl.max_compute_units)

    @property
    def resources(self) -> frozenset[str]:
        return self._resources()

    def shares_host_memory(self) -> bool:
        return shares_host_memory(self.cl)

    def can_copy(self, other: Handle) -> bool:
        return self.waits_for(other)

    def waits_for(self, other: Handle) -> bool:
        return self._common is not None and isinstance(other, OpenCLHandle) and other._common is self._common

    def among(self, met: dict[str, Any]) -> Handle:
        common = met.setdefault("context", CommonContext())
        common.devices.append(self.cl)
        return OpenCLHandle(self.cl, self._resources, common)

    def divide(self, division: tuple[int, ...]) -> Sequence[Handle]:
        if _is_intels_processor(self.cl):
            raise DriverError(
                "Intel's runtime runs all parts on the same cores: it is one device; the native device has parts"
            )
        kinds = cl.device_partition_property
        if len(division) == 1:
            how, count = [kinds.EQUALLY, self.compute_units // division[0]], division[0]
        else:
            how, count = [kinds.BY_COUNTS, *division, kinds.BY_COUNTS_LIST_END], len(division)
        try:
            parts = self.cl.create_sub_devices(how)[:count]
        except cl.Error as error:
            raise DriverError(str(error)) from None
        if not self.cl.type & cl.device_type.CPU:
            return [OpenCLHandle(part, self._resources) for part in parts]  # nobody knows what they have in common
        units = [int(part.max_compute_units) for part in parts]
        starts, of = [sum(units[:n]) for n in range(len(units))], self.compute_units
        return [
            OpenCLHandle(part, partial(_cores, start, start + n, of))
            for part, start, n in zip(parts, starts, units, strict=True)
        ]

    def open(self, device: Device) -> Driver:
        return OpenCLDriver(self.cl, device, self._common)


def look(notes: list[str]) -> list[Found]:
    """Every usable device of every platform."""
    prepare()
    found = list(_usable(notes))
    if intel_library() and not any("intel" in f.device.platform.lower() for f in found):
        notes.append("Intel's runtime is installed but does not load: try pip install intel-cmplr-lib-rt")
    return found


def _usable(notes: list[str]) -> Iterator[Found]:
    """Every usable device of every platform; a platform that is there twice is taken once."""
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return  # the loader's way to say that there is none
    known: set[tuple[str, str]] = set()
    numbers: Counter[str] = Counter()
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
                described = _describe(device, platform, numbers)
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


def _describe(device: Any, platform: Any, numbers: Counter[str]) -> Found:
    """``numbers``: how many devices of each name came before."""
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
        # a plain kernel through PoCL reaches about two operations a cycle and core; a GPU's lanes one multiply-add each
        flops=units * clock * 2 * (1 if kind == "cpu" else lanes),
        bandwidth=10e9 * units if kind == "cpu" else 500e9,
        global_memory=device.global_mem_size,
        max_allocation=device.max_mem_alloc_size,
        local_memory=device.local_mem_size,
        alignment=max(device.mem_base_addr_align // 8, 1),
        max_work_group=device.max_work_group_size,
        double=bool(device.double_fp_config),
        lacks=" ".join(
            [*["images"][: not device.image_support], *sorted(EXTENSIONS.difference(device.extensions.split()))]
        ),
        queues=1 if kind == "cpu" else GPU_QUEUES,
        launch_overhead=5e-6 if kind == "cpu" else 10e-6,
        simulator=simulator,
    )
    place = _place(device)
    name = f"{value.platform} {value.model}"
    if kind == "cpu":
        resources = partial(_cores, 0, units, units)
    elif place:
        resources = partial(_words, "pci {:04x}:{:02x}:{:02x}".format(*place))
    else:
        resources = partial(_words, f"{name} {numbers[name]}")
    numbers[name] += 1
    return Found(value, OpenCLHandle(device, resources), _rank(value), device.vendor_id, place)


def _words(*words: str) -> frozenset[str]:
    return frozenset(words)


def _cores(first: int, end: int, count: int) -> frozenset[str]:
    """Return the resources of a processor, or a part of one: these of so many threads, which no OpenCL driver says
    where they run."""
    return cores.resources((-1,) * (end - first), (first, end, count))


def _is_intels_processor(device: Any) -> bool:
    with contextlib.suppress(cl.Error):
        return bool(device.type & cl.device_type.CPU) and "intel" in device.platform.name.lower()
    return False


def _place(device: Any) -> tuple[int, ...]:
    """Domain, bus and slot on the PCI bus, or () when the driver does not tell."""
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


def _rank(device: Device) -> int:
    """For CPUs: Intel's runtime (2 to 20 times faster than PyPI's PoCL, also on others' processors), PyPI's PoCL, other
    PoCLs, others. For others: the vendor's own driver first."""
    name = device.platform.lower()
    if device.kind != "cpu":
        return int(any(d in name for d in _OPEN_DRIVERS))
    if "intel" in name:
        return 0
    pip = pip_pocl()
    return 3 if _POCL not in name else 1 if pip and pip in device.driver else 2


def shares_host_memory(device: Any) -> bool:
    """Return whether a device computes in the host's memory: proved by a probe, not by what it says of itself. A buffer
    lies on host memory. The device changes it and the host looks, then the host changes it and the device looks, and
    neither maps it."""
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
