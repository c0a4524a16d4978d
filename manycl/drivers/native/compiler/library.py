"""The runtime of native devices as a loaded library: compiled once, by a C compiler that is here, and kept."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from manycl import flags
from manycl.drivers import last_words
from manycl.drivers.driver import DriverError
from manycl.utilities import limited
from manycl.utilities.disk_cache import DiskCache

RUNTIME = Path(__file__).parent.parent / "runtime" / "runtime.c"
_FLAGS = ("-std=gnu11", "-O1", "-fno-inline-functions", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
"""``-fno-inline-functions``: no launch is slower by it, and first programs wait less for the compiler."""
_MOST_KEPT = 1 << 22  # bytes on disk
_CACHE = DiskCache("native-runtime", _MOST_KEPT, ("manycl/drivers/native/runtime",))
Loaded = TypeVar("Loaded")
_loads = count()
_ADDRESS = ctypes.c_void_p  # also for sizes and counts: ctypes converts these twice as fast as its integers


class Compiler(NamedTuple):
    """A compiler of C, and what links its objects (nothing: the compiler does). ``flags`` are for both steps."""

    command: tuple[str, ...]
    linker: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        state = os.stat(self.command[0])
        return repr((self, state.st_size, state.st_mtime_ns))


def compilers() -> Sequence[Compiler]:
    """That are here, the one to take first."""
    found = []
    zig = limited.wheel()
    if zig is not None and os.access(zig, os.X_OK):
        target = "clang", "-target", f"{platform.machine()}-linux-gnu"
        found.append(Compiler((str(zig), *target), (str(zig), "ld.lld")))
    for name in (flags.clang(), "clang", "cc"):
        path = shutil.which(name) if name else None
        if path is not None:
            found.append(Compiler((path,)))
    return found


def compile_shared(compiler: Compiler, source: Path, target: Path, extra: Sequence[str] = ()) -> None:
    """Make a shared library of a file of C. Raises DriverError with the compiler's own words."""
    flags = [*_FLAGS, *extra]
    if platform.machine() == "aarch64":
        flags.append("-mno-outline-atomics")  # else they are in a library of the compiler's
    if not compiler.linker:
        _run([*compiler.command, *flags, "-shared", "-o", str(target), str(source)])
        return
    relocatable = target.with_suffix(".o")
    _run([*compiler.command, *flags, "-c", "-o", str(relocatable), str(source)])
    _run([*compiler.linker, "-shared", "-o", str(target), str(relocatable)])


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    except OSError as error:
        raise DriverError(f"{command[0]} cannot be started: {error}") from None
    if done.returncode:
        raise DriverError(f"{command[0]} does not compile {Path(command[-1]).name}: {done.stderr.strip()}")


def _compiled(source: Path, kept_in: DiskCache, compiles: bool) -> bytes:
    fault = DriverError("native devices need a C compiler", hint="pip install ziglang")
    for compiler in compilers():
        question = compiler.identity.encode()
        kept = kept_in.get(question)
        if kept is not None:
            return kept
        if not compiles:
            fault = DriverError(f"{source.name} has to be compiled")
            continue
        with limited.scratch() as folder:
            target = Path(folder) / "library.so"
            try:
                compile_shared(compiler, source, target)
            except DriverError as error:
                fault = error
                continue
            made = target.read_bytes()
        kept_in.keep(question, made)
        return made
    try:
        raise fault
    finally:
        del fault  # or it keeps its frame, and the arguments of all who have called, until garbage is collected


def load(source: Path, kept_in: DiskCache, loaded: Callable[[str], Loaded], compiles: bool = True) -> Loaded:
    """Return what ``loaded`` makes of the path of a file of C as a shared library, which is compiled once, and kept.
    Raises DriverError; without ``compiles`` also where it has not been compiled yet."""
    try:
        return load_object(_compiled(source, kept_in, compiles), loaded)
    except OSError as error:
        raise DriverError(f"{source.name} cannot be loaded: {error}") from None


def load_object(content: bytes, loaded: Callable[[str], Loaded]) -> Loaded:
    """Return what ``loaded`` makes of the path of a shared object, which lies in memory: what is kept on disk is
    compared with its digest, and may go. Raises OSError."""
    handle = os.memfd_create("manycl-native")
    try:
        with open(handle, "wb", closefd=False) as file:
            file.write(content)
        steps = f"{next(_loads):b}".replace("0", "/").replace("1", "./")
        return loaded(f"/proc/self/fd/{steps}{handle}")  # of one name, the loader has one library
    finally:
        os.close(handle)


class Library:
    """The runtime's functions (``runtime/runtime.c``). All but ``wait`` return at once, and keep Python's lock: giving
    it up and taking it again would take longer. Numbers of commands are 0 where there was no memory."""

    def __init__(self, path: str) -> None:
        brief, blocking = ctypes.PyDLL(path), ctypes.CDLL(path)

        def function(name: str, arguments: int, result: Any = ctypes.c_uint64, library: Any = brief) -> Any:
            found = getattr(library, f"manycl_{name}")
            found.argtypes, found.restype = [_ADDRESS] * arguments, result
            return found

        self.open = function("open", 3, _ADDRESS)
        self.close = function("close", 1, None)
        self.hold = function("hold", 2, None)
        self.is_still = function("is_still", 1, ctypes.c_int)
        self.queue = function("queue", 1, _ADDRESS)
        self.free_queue = function("free_queue", 1, None)
        self.times = function("times", 2, None)
        self.mirror = function("mirror", 2, None)
        self.launch = function("launch", 5)
        self.shorten = function("shorten", 4)
        self.copy = function("copy", 5)
        self.fill = function("fill", 7)
        self.play = function("play", 5)
        self.has_failed = function("has_failed", 2, ctypes.c_int)
        self.wait = function("wait", 2, ctypes.c_int, blocking)
        function("tell", 2, None)(ctypes.addressof(last_words.sink), ctypes.addressof(last_words.running))


@cache
def library() -> Library:
    """Raises DriverError where it cannot be compiled."""
    return load(RUNTIME, _CACHE, Library)
