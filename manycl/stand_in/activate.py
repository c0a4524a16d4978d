"""Activation: the first ``import pyopencl`` of a program gives it the stand-in. Until then nothing is loaded."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from manycl import flags
from manycl.errors import ManyclError
from manycl.stand_in.site.manycl_missing import absent, missing

_NAME = "pyopencl"
_CHARACTERISTICS = "pyopencl.characterize"
_REAL = "manycl.drivers.opencl.real"


class Finder:
    """Finds PyOpenCL where it is, but first has its core stood in for; manycl itself finds the real one."""

    stands_in = True

    def __init__(self, settings: tuple[str | None, str | None, bool]) -> None:
        self._settings = settings

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == _CHARACTERISTICS:
            return _characterised(importlib.machinery.PathFinder.find_spec(name, path))
        if name != _NAME or self._is_manycl():
            return None
        if what := absent():
            raise missing(what)
        from manycl.stand_in.install import Settings, install

        install(Settings(*self._settings))
        return importlib.machinery.PathFinder.find_spec(_NAME, path)

    @staticmethod
    def _is_manycl() -> bool:
        """Return whether it is manycl that imports PyOpenCL just now."""
        module = sys.modules.get(_REAL)
        return module is not None and not hasattr(module, "take_out")


def _characterised(spec: ModuleSpec | None) -> ModuleSpec | None:
    """PyOpenCL asks a function of that module, by names of platforms, whether programs need a cache of PyOpenCL's: on
    manycl they do not, as drivers and the analysis have their own."""
    if spec is None or spec.loader is None:
        return spec
    loaded = spec.loader.exec_module

    def exec_module(module: ModuleType) -> None:
        loaded(module)
        module.has_src_build_cache = lambda dev: True  # type: ignore[attr-defined]

    spec.loader.exec_module = exec_module  # type: ignore[method-assign]
    return spec


def activate(devices: str | None = None, policy: str | None = None, *, real_too: bool = False) -> None:
    """Have ``import pyopencl`` give from now on a PyOpenCL that runs on manycl: one platform with one device, made of
    all that are chosen (``devices`` and ``policy`` as of a queue; ``real_too``: the real platforms are shown as well).
    Raises ManyclError where the program has imported PyOpenCL already."""
    if any(getattr(finder, "stands_in", False) for finder in sys.meta_path):
        raise ManyclError("manycl is active already")
    if _NAME in sys.modules:
        if _REAL not in sys.modules:
            raise ManyclError("pyopencl has been imported already", hint="activate manycl before that")
        sys.modules[_REAL].take_out()  # manycl's own import; who else has one keeps it
    sys.meta_path.insert(0, Finder((devices, policy, real_too)))


def begin() -> None:
    """Activate manycl if MANYCL says so: what each Python process that ``manycl exec`` starts does first."""
    try:
        if flags.stand_in():
            activate(real_too=flags.real_platforms())
    except ManyclError as failure:
        print(f"manycl: {failure}", file=sys.stderr)
        raise SystemExit(2) from None
