"""A Python that has not what programs need on manycl: told in one sentence, where the program does not look after it.
(In a folder that every Python of a program has on its path, also one that has no manycl, or is too old for it: so this
file is written as Python 3.6 had it.)"""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Optional, Sequence  # noqa: UP035

OLDEST = (3, 11)
_NEEDED = {"pyopencl": "PyOpenCL", "numpy": "NumPy", "clang": "libclang", "islpy": "islpy"}


class MissingError(ModuleNotFoundError):
    """The error that ``import pyopencl`` raises; where nobody catches it, only its words are told."""


def absent() -> str:
    """The first thing that manycl needs and this Python has not; empty where it has all."""
    return next((word for name, word in _NEEDED.items() if PathFinder.find_spec(name) is None), "")


def sentence(what: str) -> str:
    """That this Python has no such thing, and what to do."""
    python = sys.executable
    if sys.version_info < OLDEST:
        own, oldest = (".".join(map(str, version[:2])) for version in (sys.version_info, OLDEST))
        return f"{python} is Python {own}, and manycl needs {oldest}: run the program by one that has manycl"
    return f"{python} has no {what}, which programs need on manycl: {python} -m pip install . in manycl's checkout"


def missing(what: str) -> MissingError:
    """An error that, where nobody catches it, is told without a traceback."""
    before = sys.excepthook

    def told(kind: Any, error: BaseException, trace: Any) -> None:
        if isinstance(error, MissingError):
            print(f"manycl: {error}", file=sys.stderr)
        else:
            before(kind, error, trace)

    sys.excepthook = told
    return MissingError(sentence(what), name="pyopencl")


class WithoutManycl:
    """A finder for where there is no manycl: the program has PyOpenCL as it is, which is said, if there is one."""

    def find_spec(
        self,
        name: str,
        path: Optional[Sequence[str]] = None,  # noqa: UP045
        target: Optional[ModuleType] = None,  # noqa: UP045
    ) -> Optional[ModuleSpec]:  # noqa: UP045
        if name == "pyopencl":
            sys.meta_path.remove(self)
            if PathFinder.find_spec(name) is None:
                raise missing("PyOpenCL")
            print(f"manycl: not active: {sentence('manycl')}", file=sys.stderr)
        return None
