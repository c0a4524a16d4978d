"""All of OpenCL's functions that are here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

_MODULES = ("platforms", "contexts", "memory", "transfers", "maps", "programs", "kernels", "events", "images")


def load(attend: Callable[[], None]) -> None:
    """Have them registered. ``attend``: to be called when drivers have been loaded, which must not be taken down before
    what was enqueued has run."""
    for name in _MODULES:
        import_module(f"manycl.c_programs.{name}")
    from manycl.c_programs.platforms import when_opened

    when_opened(attend)
