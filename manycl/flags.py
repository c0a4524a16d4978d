"""Every environment variable that manycl reads, each with a line; nothing else reads the environment. A value that
means nothing is refused with those that do: a setting that is silently another is worse than none."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from manycl.errors import ManyclError

Value = TypeVar("Value")


def devices() -> str:
    """MANYCL_DEVICES: which devices to use, in the syntax of ``--devices`` (default: ``all``)."""
    return os.environ.get("MANYCL_DEVICES", "") or "all"


def cluster() -> str:
    """MANYCL_CLUSTER: the address of a Dask scheduler, whose workers are the devices of a program that ``manycl exec``
    runs (default: none, they are this machine's)."""
    return os.environ.get("MANYCL_CLUSTER", "")


def policy() -> str:
    """MANYCL_POLICY: the scheduling policy when none is named (default: ``auto``)."""
    return os.environ.get("MANYCL_POLICY", "") or "auto"


def given(prefixes: tuple[str, ...]) -> dict[str, str]:
    """The variables that are set and begin so, in the order of their names: for records of how something was run."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(prefixes)}


def inherited(without: tuple[str, ...]) -> dict[str, str]:
    """The environment for another process, but for these variables."""
    return {name: value for name, value in os.environ.items() if name not in without}


_SWITCH = {"1": True, "0": False}
_checks: list[Callable[[], object]] = []
"""What reads a variable with few values, and refuses others."""


def _one_of(name: str, values: Mapping[str, Value], default: str) -> Callable[[], Value]:
    """Return the function that reads a variable with few values."""

    def read() -> Value:
        value = os.environ.get(name, "").strip() or default
        if value not in values:
            raise ManyclError(f"{name} is {value!r:.60}", hint=f"it is one of {', '.join(values)}")
        return values[value]

    _checks.append(read)
    return read


debug = _one_of("MANYCL_DEBUG", {str(level): level for level in range(6)}, "0")
"""0 silent; 1 runs; 2 + decisions; 3 + commands; 4 + reports, and invariants are asserted; 5 + red zones around buffers
are checked after every kernel."""
zero_copy = _one_of("MANYCL_ZERO_COPY", _SWITCH, "1")
"""0 gives CPU devices memory of their own instead of the host's (default: 1)."""
serve = _one_of("MANYCL_SERVE", _SWITCH, "0")
"""1 has devices opened by the processes of ``manycl serve`` (default: 0, by this one)."""
bounds = _one_of("MANYCL_BOUNDS", {"on": True, "off": False}, "on")
"""Off runs launches that are proved to leave their buffers (default: on, they are refused)."""
checks_bounds = _one_of("MANYCL_CHECK", {"off": False, "bounds": True}, "off")
"""Bounds runs kernels one at a time, between red zones, and checks each access of those that are compiled natively
(default: off)."""
deterministic = _one_of("MANYCL_DETERMINISTIC", _SWITCH, "1")
"""0 lets shares of launches move while they run between devices that are not alike, too, so that the last bits of
results depend on time; 1 never does (default: only where a device takes twice as long as was measured, in a graph that
runs once)."""
merging = _one_of("MANYCL_MERGING", {word: word for word in ("automatic", "each", "last")}, "automatic")
"""When what parts of a divided launch have written goes to the host's memory: ``each`` as it has ended, ``last`` when
somebody needs it (default: ``automatic``)."""
apart = _one_of("MANYCL_APART", _SWITCH, "0")
"""1 promises of all kernels that work-groups do not write different values to an element, nor read what others write,
where that cannot be proved (docs/splitting.md; default: 0)."""
prompt = _one_of("MANYCL_PROMPT", _SWITCH, "1")
"""0 leaves the time slices of threads that enqueue and wait as they are (default: 1, they ask the system for short
ones, so that they run soon when they are woken)."""
stand_in = _one_of("MANYCL", _SWITCH, "0")
"""1 gives programs that import PyOpenCL one that runs on manycl (default: 0); ``manycl exec`` sets it, with the folder
that makes Python look at it."""
real_platforms = _one_of("MANYCL_REAL", _SWITCH, "0")
"""1 shows such programs the real platforms beside manycl's (default: 0)."""
heeds_reservations = _one_of("MANYCL_RESERVED", {"leave": True, "ignore": False}, "leave")
"""Ignore uses devices that another process has reserved (default: leave, they are not used)."""
learning = _one_of("MANYCL_MODELS", _SWITCH, "1")
"""0 neither reads nor keeps measurements of earlier sessions (default: 1)."""


def threads() -> int:
    """MANYCL_THREADS: compute units of the native device, a thread each (default, or 0: one for each core that the
    process may use)."""
    value = os.environ.get("MANYCL_THREADS", "").strip() or "0"
    if not re.fullmatch(r"[0-9]{1,4}", value):
        raise ManyclError(f"MANYCL_THREADS is {value!r:.60}", hint="it is a number of threads, such as 8")
    return int(value)


def check_all_bounds() -> None:
    """MANYCL_CHECK=bounds from now on, also in processes that are started."""
    os.environ["MANYCL_CHECK"] = "bounds"


def strict() -> bool:
    """Return whether MANYCL_DETERMINISTIC is set to 1."""
    return deterministic() and "MANYCL_DETERMINISTIC" in os.environ


REPORTS = "MANYCL_REPORTS"


def reports() -> str:
    """MANYCL_REPORTS: what ``manycl exec`` was asked to tell of the program, as JSON (default: nothing)."""
    return os.environ.get(REPORTS, "")


_BYTES = re.compile(r"(\d+)\s*(?:([KMGT])(i?)B?|B)?\Z", re.ASCII | re.IGNORECASE)


def device_memory() -> int:
    """MANYCL_DEVICE_MEMORY: bytes of memory that a device is taken to have at most, as ``65536``, ``512 MiB`` or ``16
    GB`` (default: what it has)."""
    value = os.environ.get("MANYCL_DEVICE_MEMORY", "").strip()
    if not value:
        return 1 << 62
    match = _BYTES.match(value)
    if match is None or int(match[1]) == 0:
        raise ManyclError(
            f"MANYCL_DEVICE_MEMORY is {value!r:.60}", hint="it is a number of bytes, such as 65536, 512 MiB or 16 GB"
        )
    base = 1024 if match[3] else 1000
    return int(match[1]) * (base ** (" KMGT".index(match[2].upper())) if match[2] else 1)


def data() -> str:
    """MANYCL_DATA: the folder that measurements are kept in (default: the user's data folder)."""
    return os.environ.get("MANYCL_DATA", "")


def cache() -> str:
    """MANYCL_CACHE: the folder that analyses of sources are kept in, or 0: none are (default: the user's cache
    folder)."""
    return os.environ.get("MANYCL_CACHE", "")


def runtime() -> str:
    """XDG_RUNTIME_DIR: the folder for what processes of a user share until the machine restarts (default: the one that
    a login has)."""
    return os.environ.get("XDG_RUNTIME_DIR", "")


RESERVATION = "MANYCL_RESERVATION"


def reservation() -> str:
    """MANYCL_RESERVATION: the processes whose reservations hold for this one, too; ``manycl reserve`` sets it for its
    command (default: none)."""
    return os.environ.get(RESERVATION, "")


def temporary() -> str:
    """TMPDIR: the folder for temporary files (default: /tmp)."""
    return os.environ.get("TMPDIR", "") or "/tmp"


def clang() -> str:
    """MANYCL_CLANG: the clang that compiles for native devices, 16 or newer (default: the one of the package
    ziglang)."""
    return os.environ.get("MANYCL_CLANG", "").strip()


def completing() -> str:
    """_ARGCOMPLETE: set by a shell that wants a command line completed: COMP_LINE, of which COMP_POINT bytes count."""
    if "_ARGCOMPLETE" not in os.environ:
        return ""
    line, point = os.environ.get("COMP_LINE", ""), os.environ.get("COMP_POINT", "")
    return line.encode()[: int(point)].decode(errors="ignore") if point.isdigit() else line


def check() -> None:
    """Read all of them, so that what means nothing is told before the work. Raises ManyclError."""
    for read in (*_checks, device_memory, threads):
        read()
