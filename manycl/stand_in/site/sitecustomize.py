"""Python imports a module of this name when it starts. Here it activates manycl for programs of PyOpenCL; then comes
the module that this one hides, if there is one."""

import os
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
    import manycl_missing  # type: ignore[import-not-found]

    if sys.version_info >= manycl_missing.OLDEST:
        try:
            from manycl.stand_in.activate import begin
        except ImportError:
            pass
        else:
            begin()
            return
    if os.environ.get("MANYCL", "0") not in ("", "0"):
        sys.meta_path.insert(0, manycl_missing.WithoutManycl())


_begin()
_hidden()
