"""Python imports a module of this name when it starts. Here it activates manycl for programs of PyOpenCL; then comes
the module that this one hides, if there is one."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path


def _hidden() -> None:
    """Do what the other module of this name does."""
    here = Path(__file__).resolve().parent
    spec = PathFinder.find_spec("sitecustomize", [p for p in sys.path if Path(p).resolve() != here])
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _begin() -> None:
    try:
        from manycl.stand_in.environment import begin
    except ImportError:
        print(f"manycl: not active: {sys.executable} has no manycl", file=sys.stderr)
    else:
        begin()


_begin()
_hidden()
