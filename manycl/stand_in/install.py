"""Puts the stand-in in the place of PyOpenCL's compiled core, below PyOpenCL's own Python layer."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from manycl.drivers.opencl import real
from manycl.drivers.opencl.icd import prepare
from manycl.stand_in.environment import take_reports, trust_program
from manycl.stand_in.explain import begin
from manycl.stand_in.objects.contexts import Platforms

CORE = "pyopencl._cl"
_NAMES = "contexts", "events", "memory", "transfers", "pools", "programs", "kernels", "images"
_MODULES = [import_module(f"manycl.stand_in.objects.{name}") for name in _NAMES]


class Settings(NamedTuple):
    """``devices`` (as of ``--devices``) and ``policy``: None, what MANYCL_DEVICES and MANYCL_POLICY say; ``real_too``:
    the real platforms are shown as well."""

    devices: str | None = None
    policy: str | None = None
    real_too: bool = False


def install(settings: Settings) -> None:
    """Have ``import pyopencl`` give from now on PyOpenCL's Python layer on the stand-in; what has the real one keeps
    it."""
    trust_program()
    prepare()
    begin(take_reports())
    real.take_out()
    sys.modules[CORE] = core(settings)


def core(settings: Settings) -> ModuleType:
    """The module: every name that the real one has; what the stand-in's modules have of these is theirs."""
    module = ModuleType(CORE, "PyOpenCL's core, on manycl")
    own: dict[str, Any] = {}
    for source in _MODULES:
        own |= {name: value for name, value in vars(source).items() if _is_own(value, source)}
    for name in dir(real.compiled):
        if not name.startswith("__"):
            setattr(module, name, own.get(name, getattr(real.compiled, name)))
    shown = Platforms(settings.devices, settings.policy, real_too=settings.real_too)
    module.get_platforms = shown.get_platforms  # type: ignore[attr-defined]
    return module


def _is_own(value: Any, source: ModuleType) -> bool:
    """Return whether a module defines it, and not only imports it."""
    return getattr(value, "__module__", None) == source.__name__
