"""How a page of results came about: the command, the day, the state of the project, the machine, and where raw samples
are. One header for all pages."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from manycl import flags
from manycl.machine import Device, Machine
from manycl_bench.pages import table

PACKAGES = ("manycl", "numpy", "pyopencl", "pocl-binary-distribution", "libclang-ng", "islpy", "ortools")
VARIABLES = ("MANYCL_", "POCL_", "OCL_")
PLACES = ("MANYCL_DATA", "MANYCL_CACHE", "POCL_CACHE_DIR", "OCL_ICD_VENDORS")
"""Variables that say where something lies, and change no result."""
UNKNOWN = "not known"
SPREAD = "medians, and beside them half of the range of the middle half of the runs, in per cent of the median"


def made(command: str, *machines: Machine, simulated: bool) -> dict[str, Any]:
    """What is known of an experiment that is about to begin on this machine, on devices that are here or simulated."""
    given = [f"{name}={value}" for name, value in flags.given(VARIABLES).items() if name not in PLACES]
    return {
        "command": " ".join([*given, command]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "machine": {
            "processor": processor(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "system": f"{platform.system()} {platform.release()}",
            "load": round(os.getloadavg()[0], 1),
        },
        "simulated": " and ".join(m.name for m in machines) if simulated else None,
        "devices": [words for m in machines for words in described(m.devices, simulated=simulated)],
        "versions": {"python": platform.python_version(), **dict(_versions())},
    }


def described(devices: Sequence[Device], *, simulated: bool = False) -> list[str]:
    """Devices in words, those that are alike together; of such that are here, also their drivers."""
    found: dict[str, list[str]] = {}
    for device in devices:
        words = device.model or device.kind
        if not simulated:
            driver = ", ".join(w for w in (device.platform, device.driver.rpartition("; ")[2]) if w)
            words += f" ({driver})" if driver else ""
        found.setdefault(words, []).append(device.name)
    return [
        f"{', '.join(names) if len(names) < 9 else f'{names[0]} to {names[-1]}'}: {words}"
        for words, names in found.items()
    ]


def processor() -> str:
    """The processor's model, as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or UNKNOWN
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or UNKNOWN)


def commit() -> str | None:
    """The commit of the checkout that manycl and its experiments lie in (None: they lie in none), and whether either
    has been changed since. Where a tree was carried without Git, ``COMMIT`` in it tells (scripts/gpu)."""
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / "COMMIT").exists():
        return (checkout / "COMMIT").read_text(encoding="utf-8").strip() or None
    try:
        top, head = _git(checkout, "rev-parse", "--show-toplevel", "HEAD").split()
        if Path(top).resolve() != checkout:
            return None  # somebody else's, in which manycl is installed
        changed = _git(checkout, "status", "--porcelain", "--", "manycl", "manycl_bench")
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return f"{head[:10]}, with changes" if changed else head[:10]


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True, timeout=20).stdout


def _versions() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


def with_spread(samples: Sequence[float], digits: int = 2) -> str:
    """The median and, of three samples at least, what SPREAD says."""
    middle = statistics.median(samples)
    if len(samples) < 3:
        return f"{middle:.{digits}f}"
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return f"{middle:.{digits}f} ± {50.0 * (high - low) / middle:.0f} %"


def header(figures: Mapping[str, Any], name: str, samples: str, spread: str) -> Iterator[str]:
    """The lines of a page that tell what ``figures["made"]`` says. ``samples``: where in ``name.json`` the raw figures
    are; ``spread``: how what is measured differs from one time to the next, and how the page tells that."""
    found: Mapping[str, Any] = figures.get("made") or {}
    here: Mapping[str, Any] = found.get("machine") or {}
    words = [str(here[key]) for key in ("processor", "system") if here.get(key)]
    if here.get("cores"):
        words.insert(1, f"{here['cores']} cores")
    if here.get("load") is not None:
        words.append(f"load {here['load']} as it began")
    devices: Sequence[str] = found.get("devices") or ()
    where = f"simulated: {found['simulated']}; " if found.get("simulated") else ""
    versions = ", ".join(f"{k} {v}" for k, v in (found.get("versions") or {}).items())
    rows = {
        "command": f"`{found['command']}`" if found.get("command") else UNKNOWN,
        "date": found.get("date") or UNKNOWN,
        "commit": found.get("commit") or UNKNOWN,
        "ran on": ", ".join(words) or UNKNOWN,
        "devices": where + ("; ".join(devices) or UNKNOWN),
        "versions": versions or UNKNOWN,
        "raw figures": f"[{name}.json]({name}.json), {samples}",
        "spread": spread,
    }
    if found.get("remarks"):
        rows["remarks"] = found["remarks"]
    yield from table(["", "how this page came about"], ([key, str(text)] for key, text in rows.items()))
