"""Guards for what PyOpenCL must not do in several threads at once."""

from __future__ import annotations

import threading
import warnings
from types import TracebackType
from typing import Any

from manycl.drivers.opencl.real import cl

_creating = threading.Lock()


def new_kernel(program: cl.Program, name: str) -> cl.Kernel:
    """The kernel of that name. PyOpenCL generates code for each, and finds a name for it that nothing has yet; two
    threads may find the same (pytools warns then: "Overwriting existing generated code")."""
    with _creating:
        try:
            return cl.Kernel(program, name)
        except Exception as error:
            if type(error).__module__ != "sqlite3":
                raise
            told = (
                f"PyOpenCL's cache is damaged ({error}): it is not used until pytools, in the cache folder, is removed"
            )
            warnings.warn(told, RuntimeWarning, stacklevel=2)
            cl._PYOPENCL_NO_CACHE = True
            return cl.Kernel(program, name)


class _Quiet:
    """``with quiet:`` compilers' remarks are not shown (some always have something to say). Python's filters are the
    whole process's: threads that each put back what they had found would put back one another's. So the first one in
    changes them, and the last one out puts them back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._filters: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.simplefilter("ignore", cl.CompilerWarning)
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._filters.__exit__(kind, error, trace)


quiet = _Quiet()
