"""What Python does in a C program's process: it gives the library a function for each of OpenCL's, and waits until the
process ends, to do then what a Python program does when it ends."""

from __future__ import annotations

import atexit
import ctypes
import gc
import sys
import threading
from importlib import import_module
from typing import Any, NamedTuple

from manycl.errors import ManyclError
from manycl_c.signatures import SIGNATURES

_SERVES, _FAILED = 1, 2
_MODULES = ("platforms", "contexts", "memory", "transfers", "maps", "programs", "kernels", "events", "images")
"""Whose functions are all of OpenCL's that are here."""
_kept: list[Any] = []
"""What C has the addresses of."""


class _Service(NamedTuple):
    """``struct service`` of library.c."""

    entries: Any
    functions: int
    ready: Any
    wait: Any
    ended: Any
    attend: Any


def serve(address: int) -> None:
    """Does not return: the interpreter is there as long as the process. ``address``: of the service."""
    service = _service(address)
    gc.disable()  # what is made now stays: to look through it again and again takes a tenth of the start
    try:
        _begin(service)
    except BaseException as failure:  # the program is told that there is no platform
        if not isinstance(failure, ManyclError):
            sys.excepthook(type(failure), failure, failure.__traceback__)
        else:
            print(f"manycl: {failure}", file=sys.stderr)
        sys.stderr.flush()
        service.ready(_FAILED)
    else:
        gc.freeze()
        gc.enable()
        service.ready(_SERVES)
    service.wait()
    atexit._run_exitfuncs()
    sys.stderr.flush()
    service.ended()


def _service(address: int) -> _Service:
    entries = (ctypes.c_void_p * len(SIGNATURES)).from_address(address)
    rest = (ctypes.c_void_p * 5).from_address(address + ctypes.sizeof(entries))
    ready = ctypes.CFUNCTYPE(None, ctypes.c_int)(rest[1] or 0)
    plain = [ctypes.CFUNCTYPE(None)(rest[place] or 0) for place in (2, 3, 4)]
    return _Service(entries, int(rest[0] or 0), ready, *plain)


def _begin(service: _Service) -> None:
    from manycl_c.environment import real_opencl

    with real_opencl():
        from manycl.drivers.opencl.icd import prepare
        from manycl.stand_in.environment import take_reports, trust_program
        from manycl_c import raw

        own = ctypes.c_void_p.from_address(service.functions).value
        if ctypes.cast(raw.library().clGetPlatformIDs, ctypes.c_void_p).value == own:
            raise ManyclError(
                "PyOpenCL shares the program's libOpenCL.so.1", hint="C programs need the PyOpenCL of PyPI's wheels"
            )
        trust_program()
        prepare()
        reports = take_reports()
        look = raw.function("clGetPlatformIDs")
        looking = threading.Thread(target=look, args=(0, None, None))  # the loader looks for drivers once: ...
        looking.start()
        try:
            from manycl.stand_in.explain import begin

            _fill(service)  # ... meanwhile, Python reads modules (which leave the environment alone)
        finally:
            looking.join()
    begin(reports)


def _fill(service: _Service) -> None:
    from manycl_c.calls import FUNCTIONS
    from manycl_c.handles import handles

    handles.table = service.functions
    for name in _MODULES:
        import_module(f"manycl_c.objects.{name}")
    from manycl_c.objects.platforms import when_opened

    when_opened(service.attend)  # drivers that are loaded must not be taken down before what was enqueued has run
    for number, signature in enumerate(SIGNATURES):
        function = FUNCTIONS.get(signature.name)
        if function is not None:
            callback = signature.callback(function)
            _kept.append(callback)
            service.entries[number] = ctypes.cast(callback, ctypes.c_void_p).value
