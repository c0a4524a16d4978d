"""Meters of energy: RAPL's counters of processors and their memory, and those of NVIDIA's GPUs (NVML), where this
machine has some that the process may read. All count joules since some time; RAPL's begin again at a limit."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

POWERCAP = Path("/sys/class/powercap")
NVML = "libnvidia-ml.so.1"


class Meter(NamedTuple):
    """A meter: its name, what reads its joules (NaN: it cannot be read), and the joules after which it begins again."""

    name: str
    read: Callable[[], float]
    limit: float = math.inf


def rapl(folder: Path = POWERCAP) -> list[Meter]:
    """Return the meters of processor packages and of their memory that may be read, mostly by root alone."""
    found = []
    for zone in sorted(folder.glob("intel-rapl:*")):

        def read(name: str = "energy_uj", zone: Path = zone) -> float:
            try:
                return 1e-6 * int((zone / name).read_text())
            except (OSError, ValueError):
                return math.nan

        with suppress(OSError):
            name, limit = (zone / "name").read_text().strip(), read("max_energy_range_uj")
            if (name.startswith("package") or name == "dram") and math.isfinite(read() + limit):
                found.append(Meter(f"{name} ({zone.name})", read, limit))
    return found


def nvidia(open_library: Callable[[str], Any] = ctypes.CDLL) -> list[Meter]:
    """Return the meters of NVIDIA's GPUs, from Volta on; none without the driver's library. Steps: 20 to 100 ms."""
    count, found = ctypes.c_uint(), list[Meter]()
    try:
        library = open_library(NVML)
    except OSError:
        return found
    if library.nvmlInit_v2() == 0 and library.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0:
        for number in range(count.value):
            handle = ctypes.c_void_p()
            library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle))

            def read(handle: ctypes.c_void_p = handle) -> float:
                value = ctypes.c_ulonglong()
                failed = library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(value))
                return math.nan if failed else 1e-3 * value.value

            found += [Meter(f"nvidia {number}", read)] if math.isfinite(read()) else []
    return found


@cache
def meters() -> tuple[Meter, ...]:
    """Return all meters that may be read."""
    return (*rapl(), *nvidia())


def measuring() -> Callable[[], dict[str, float]]:
    """Begin to measure; return what returns the joules since then by meter, of those that could be read both times."""
    begin = [(meter, meter.read()) for meter in meters()]

    def spent() -> dict[str, float]:
        used = {m.name: (m.read() - before) % m.limit for m, before in begin}
        return {name: joules for name, joules in used.items() if math.isfinite(joules)}

    return spent
