"""The PyOpenCL that is installed: the one module through which manycl has it. ``manycl exec`` gives programs another
one of the same name (:mod:`manycl.stand_in`). What is imported from here is always the real one, as whoever installs
the stand-in imports this first."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pyopencl as cl

__all__ = ["cl", "compiled", "take_out"]

compiled: Any = sys.modules["pyopencl._cl"]
"""Its core, which is compiled: classes for OpenCL's objects, a function for each command."""


def take_out() -> dict[str, ModuleType]:
    """Let ``import pyopencl`` find nothing any more, so that another one may come; what it has found so far. The real
    one goes on working, but imports inside its functions are answered by the other one. Of these only its own cache of
    binaries would mind, so that is turned off (drivers have caches of their own)."""
    cl._PYOPENCL_NO_CACHE = True
    names = [name for name in sys.modules if name == "pyopencl" or name.startswith("pyopencl.")]
    return {name: sys.modules.pop(name) for name in names}


if any(getattr(finder, "stands_in", False) for finder in sys.meta_path):  # the next import is to find the other one
    take_out()
