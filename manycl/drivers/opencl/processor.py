"""PoCL on x86-64 processors that its compiler is older than.

LLVM calls a processor that it does not know ``generic``; PoCL hands that name on to Clang, which refuses it, so nothing
builds (pocl/pocl issue 1049; PyPI's PoCL 3.0 has LLVM 14, which AMD's family 26, Zen 5, is newer than). PoCL has no
setting for it. So the name in the device's own structure is replaced by that of the newest processor that this LLVM
knows and whose instructions are all here; the ones for which PoCL has libraries of built-in functions.
"""

from __future__ import annotations

import ctypes
import platform
import re
from bisect import bisect_right
from collections.abc import Set
from pathlib import Path
from typing import Any

UNKNOWN = b"generic\0"
_SIZE = 1024  # bytes at the beginning of a device's structure that are looked through; in PoCL 3.0 it is at 640
_WORD = ctypes.sizeof(ctypes.c_void_p)
_V2 = {"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"}
_AVX = _V2 | {"avx", "aes", "pclmulqdq", "xsave"}
_HASWELL = _AVX | {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm", "rdrand", "fsgsbase"}
_SKYLAKE = _HASWELL | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "adx", "clflushopt", "clwb"}
_PROCESSORS = (("skylake-avx512", _SKYLAKE), ("haswell", _HASWELL), ("sandybridge", _AVX), ("nehalem", _V2))

_names: dict[str, ctypes.Array[ctypes.c_char]] = {}  # PoCL keeps pointers to them


def nearest(flags: Set[str]) -> str:
    """The newest processor, by Clang's name, whose instructions are among these (as in ``/proc/cpuinfo``)."""
    return next((name for name, needed in _PROCESSORS if needed <= flags), "x86-64")


def introduce(device: Any) -> str:
    """Tell a CPU device of PoCL's (before it has contexts or sub-devices) what its processor is like; the name that it
    has now, or "" where it knows its processor."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return ""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="ascii", errors="replace")
        flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return ""  # no Linux; PyPI's PoCL is for Linux only
    name = nearest(set(flags[1].split()) if flags else set())
    return name if rename(device.int_ptr, name, _Memory(maps)) else ""


def rename(address: int, name: str, memory: _Memory) -> bool:
    """Replace the first pointer to the text ``generic`` in the structure at an address by one to a name."""
    for at in range(address, address + _SIZE, _WORD):
        if not memory.has(at, _WORD, write=True):
            return False
        pointer = ctypes.c_void_p.from_address(at)
        text = pointer.value
        if text and memory.has(text, len(UNKNOWN)) and ctypes.string_at(text, len(UNKNOWN)) == UNKNOWN:
            pointer.value = ctypes.addressof(_names.setdefault(name, ctypes.create_string_buffer(name.encode())))
            return True
    return False


class _Memory:
    """The parts of this process's memory that may be looked at: the text of ``/proc/self/maps``."""

    def __init__(self, maps: str) -> None:
        found = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) r(.)", maps, re.MULTILINE)
        self._ranges = sorted((int(first, 16), int(end, 16), mode == "w") for first, end, mode in found)

    def has(self, address: int, size: int, *, write: bool = False) -> bool:
        i = bisect_right(self._ranges, address, key=lambda r: r[0]) - 1
        if i < 0:
            return False
        _, end, writable = self._ranges[i]
        return address + size <= end and (writable or not write)
