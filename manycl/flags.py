"""Every environment variable that manycl reads, each with a line; nothing else reads the environment."""

from __future__ import annotations

import os


def devices() -> str:
    """MANYCL_DEVICES: which devices to use, in the syntax of ``--devices`` (default: ``all``)."""
    return os.environ.get("MANYCL_DEVICES", "") or "all"


def policy() -> str:
    """MANYCL_POLICY: the scheduling policy when none is named (default: ``auto``)."""
    return os.environ.get("MANYCL_POLICY", "") or "auto"


def debug() -> int:
    """MANYCL_DEBUG: 0 silent; 1 runs; 2 + decisions; 3 + commands; 4 + reports, and invariants are asserted."""
    value = os.environ.get("MANYCL_DEBUG", "0")
    return int(value) if value.isdigit() else 0


def zero_copy() -> bool:
    """MANYCL_ZERO_COPY: 0 gives CPU devices memory of their own instead of the host's (default: 1)."""
    return os.environ.get("MANYCL_ZERO_COPY", "1") != "0"


def device_memory() -> int:
    """MANYCL_DEVICE_MEMORY: bytes of memory that a device is taken to have at most (default: what it has)."""
    value = os.environ.get("MANYCL_DEVICE_MEMORY", "")
    return int(value) if value.isdigit() and int(value) > 0 else 1 << 62


def data() -> str:
    """MANYCL_DATA: the folder that measurements are kept in (default: the user's data folder)."""
    return os.environ.get("MANYCL_DATA", "")


def learning() -> bool:
    """MANYCL_MODELS: 0 neither reads nor keeps measurements of earlier sessions (default: 1)."""
    return os.environ.get("MANYCL_MODELS", "1") != "0"
