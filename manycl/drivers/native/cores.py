"""The processor's cores: which ones this process may use, in an order in which neighbours share caches and memory."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_SYSTEM = Path("/sys/devices/system/cpu")


def cores(count: int, system: Path = _SYSTEM) -> Sequence[int]:
    """One for each of so many threads (0: for each that this process may use): its number, or -1, any, where there are
    more threads than cores. Threads of a core follow one another, and cores of a package, and of a NUMA node."""
    allowed = sorted(os.sched_getaffinity(0), key=lambda core: _place(system / f"cpu{core}", core))
    if not count:
        return allowed
    return allowed[:count] if count <= len(allowed) else (-1,) * count


def resources(chosen: Sequence[int], share: tuple[int, int, int] | None = None) -> frozenset[str]:
    """The cores of some threads, in the words of ``Handle.resources``. Threads that may run on any core (-1) are taken
    to share the cores of the process evenly, in their order: ``share`` has the first of them, the one behind the last,
    and how many there are in all (None: these are all)."""
    if all(core >= 0 for core in chosen):
        return frozenset(f"core {core}" for core in chosen)
    first, end, count = share or (0, len(chosen), len(chosen))
    allowed = cores(0)
    low, high = first * len(allowed) // count, -(-end * len(allowed) // count)
    return frozenset(f"core {core}" for core in allowed[low:high])


def _place(folder: Path, core: int) -> tuple[int, int, int, int]:
    nodes = [int(path.name[4:]) for path in folder.glob("node[0-9]*")] if folder.is_dir() else []
    package, of_core = (_number(folder / "topology" / name) for name in ("physical_package_id", "core_id"))
    return min(nodes, default=0), package, of_core, core


def _number(path: Path) -> int:
    with suppress(OSError, ValueError):
        return int(path.read_text())
    return 0


def model() -> str:
    """Return what the processor is called."""
    found = re.search(r"^model name\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    return found[1].strip() if found else os.uname().machine


def clock() -> float:
    """Hz: the highest, else the present one, else 1 GHz."""
    with suppress(OSError, ValueError):
        return int((_SYSTEM / "cpu0" / "cpufreq" / "cpuinfo_max_freq").read_text()) * 1e3
    found = re.search(r"^cpu MHz\s*:\s*([\d.]+)", _cpuinfo(), re.MULTILINE)
    return float(found[1]) * 1e6 if found else 1e9


def lanes() -> int:
    """Values of 4 bytes in a vector."""
    found = re.search(r"^flags\s*:(.+)$", _cpuinfo(), re.MULTILINE)
    flags = found[1].split() if found else []
    return 16 if "avx512f" in flags else 8 if "avx" in flags else 4


def memory() -> int:
    """Bytes that this process may have."""
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            most = min(most, int((Path("/sys/fs/cgroup") / limit).read_text()))
    return most


def _cpuinfo() -> str:
    with suppress(OSError):
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    return ""
