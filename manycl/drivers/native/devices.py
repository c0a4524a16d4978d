"""The processor as a native device: OpenCL C compiled to the machine's own code, run by threads of this process."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

from manycl import flags
from manycl.drivers.driver import Advice, Driver, DriverError, Found, Handle, Source
from manycl.drivers.native import cores as processor
from manycl.drivers.native.compiler import clang
from manycl.drivers.native.compiler.compiled import ALIGNMENT, Compile, NativeProgram
from manycl.drivers.native.driver import NativeDriver
from manycl.drivers.native.elsewhere import Elsewhere
from manycl.machine import HOST, NATIVE, Device
from manycl.utilities.interrupts import Uninterrupted

if TYPE_CHECKING:  # loads OpenCL's libraries
    from manycl.drivers.opencl.devices import OpenCLHandle

INSTALL = "pip install ziglang"
_MACHINES = ("x86_64", "aarch64")
_RANK = -1  # before all that OpenCL shows: loops of work-items become vectors
_BANDWIDTH = 18e9  # bytes a second that a core moves
_ENOUGH = 8  # cores that have all that a memory gives


class NativeHandle(Handle):
    """So many of the processor's cores. ``compiler`` gives what compiles, when the device is opened; ``other`` the same
    part of the processor as OpenCL shows it, which runs what cannot be compiled, or None; ``share``: which of the
    threads of the whole these are, as for :func:`manycl.drivers.native.cores.resources`."""

    def __init__(
        self,
        cores: Sequence[int],
        compiler: Callable[[], Compile],
        other: Callable[[], OpenCLHandle | None] = lambda: None,
        share: tuple[int, int, int] | None = None,
    ) -> None:
        self._cores, self._compiler = cores, compiler
        self._share = share or (0, len(cores), len(cores))
        self.other = cache(other)

    @property
    def compute_units(self) -> int:
        return len(self._cores)

    @property
    def resources(self) -> frozenset[str]:
        return processor.resources(self._cores, self._share)

    @property
    def cl(self) -> Any:
        """PyOpenCL's device for this part of the processor. Raises DriverError where there is none."""
        return self._shown().cl

    def shares_host_memory(self) -> bool:
        return True  # it is this process that computes

    def can_copy(self, other: Handle) -> bool:
        return isinstance(other, NativeHandle)  # both have memory of this process

    def waits_for(self, other: Handle) -> bool:
        return isinstance(other, NativeHandle)

    def divide(self, division: tuple[int, ...]) -> Sequence[Handle]:
        """Parts have no core in common."""
        sizes = (len(self._cores) // division[0],) * division[0] if len(division) == 1 else division
        if min(sizes) < 1 or sum(sizes) > len(self._cores):
            raise DriverError(f"{len(self._cores)} cores are not divided into {'+'.join(map(str, division))}")
        starts = [sum(sizes[:n]) for n in range(len(sizes))]

        @cache
        def others() -> Sequence[OpenCLHandle] | None:
            whole = self.other()
            try:
                return [cast("OpenCLHandle", one) for one in whole.divide(division)] if whole is not None else None
            except DriverError:  # it has other cores: the whole of it will do
                return [whole] * len(sizes) if whole is not None else None

        def part(number: int) -> OpenCLHandle | None:
            found = others()
            return found[number] if found is not None else None

        first, _, count = self._share
        return [
            NativeHandle(
                self._cores[start : start + size],
                self._compiler,
                partial(part, n),
                (first + start, first + start + size, count),
            )
            for n, (start, size) in enumerate(zip(starts, sizes, strict=True))
        ]

    def open(self, device: Device) -> Driver:
        if not flags.checks_bounds():
            return NativeDriver(device, self._cores, self._compiler(), Elsewhere(device, self._open_other))
        from manycl.drivers.native.compiler.checks import CheckedDriver

        return CheckedDriver(device, self._cores[:1], self._compiler(), Elsewhere(device, self._open_other))

    def _open_other(self, device: Device) -> Driver:
        return self._shown().open(replace(device, memory=HOST))

    def _shown(self) -> OpenCLHandle:
        other = self.other()
        if other is None:
            raise DriverError("no OpenCL driver shows this processor", hint="pip install pocl-binary-distribution")
        return other


def look(notes: list[str]) -> list[Found]:
    """The processor, where there is a compiler for it. Nothing is started for that."""
    if not hasattr(os, "sched_getaffinity") or platform.machine() not in _MACHINES:
        return []
    return [_found(_build, _other)] if clang.is_there() else []


def advise(devices: Sequence[Device], chosen: Sequence[Device]) -> list[Advice]:
    """Return advice, as :attr:`manycl.drivers.kinds.Kind.advise`: why there is no native device, or none that can
    compile."""
    if any(device.platform == NATIVE for device in devices):
        try:
            clang.find()
        except DriverError as error:
            words = f"nothing can be compiled for the native device, so all runs elsewhere: {error.message}"
            return [Advice(words, error.hint or INSTALL)]
        return []
    why = "there is no native device, on which kernels run 2 to 90 times as fast as on PoCL: "
    if not hasattr(os, "sched_getaffinity"):
        return [Advice(f"{why}this is not Linux", "run it on Linux")]
    if platform.machine() not in _MACHINES:
        return [Advice(f"{why}native devices know no {platform.machine()} processors", "they know x86_64 and aarch64")]
    if flags.clang():
        return [Advice(f"{why}MANYCL_CLANG is {flags.clang()!r}, which is no program", f"name a clang, or {INSTALL}")]
    return [Advice(f"{why}there is no compiler", f"{INSTALL}, or name a clang, 16 or newer, in MANYCL_CLANG")]


def found_with(compile_source: Compile) -> Found:
    """The processor, with programs compiled by a function."""
    return _found(lambda: compile_source, lambda: None)


def _build() -> Compile:
    def build(source: Source, device: Device) -> NativeProgram:
        from manycl.drivers.native import program  # the analysis is not loaded to open a device

        return program.build(source, device)

    return build


def _other() -> OpenCLHandle | None:
    """The processor as OpenCL shows it best."""
    with Uninterrupted():  # extension modules cannot be imported again once that was interrupted
        from manycl.drivers.opencl import devices as opencl
    found = [one for one in opencl.look([]) if one.device.kind == "cpu" and not one.device.simulator]
    handle = min(found, key=lambda one: one.rank).handle if found else None
    return handle if isinstance(handle, opencl.OpenCLHandle) else None


def _found(compiler: Callable[[], Compile], other: Callable[[], OpenCLHandle | None]) -> Found:
    cores = processor.cores(flags.threads())
    units, clock, memory = len(cores), processor.clock(), processor.memory()
    device = Device(
        name="",
        kind="cpu",
        model=processor.model(),
        platform=NATIVE,
        driver=flags.clang() or clang.wheel_version(),
        memory=HOST,
        compute_units=units,
        clock=clock,
        flops=units * clock * processor.lanes(),
        bandwidth=_BANDWIDTH * min(units, _ENOUGH),
        global_memory=memory,
        max_allocation=memory,
        local_memory=256 << 10,
        alignment=ALIGNMENT,
        max_work_group=4096,
        launch_overhead=5e-6,
        shortens=True,
    )
    return Found(device, NativeHandle(cores, compiler, other), _RANK)
