"""Another program, run within limits: one that crashes, never ends or prints without end is an answer, not an end.
Limits are of work, not of the clock: seconds of computing, bytes of memory and of output. What stands still, as a
compiler that includes a pipe, is ended, too."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import resource
import select
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from manycl import flags

COMPUTING = 120
"""Seconds of computing of one run: a program of 200 kernels takes 20."""
MEMORY = 8 << 30
"""Bytes of address space: a compiler asks for far more than it uses."""
OUTPUT = 256 << 20
"""Bytes of each file that is written, messages included."""
PATIENCE = 20.0
"""Seconds after which a program is ended that has not computed meanwhile."""
_MEMORY = "/dev/shm"
_ROOM = 32 << 20  # bytes: what is compiled is much smaller
_TOLD = 1 << 16  # bytes of messages that anybody reads


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder for what a program reads and writes: in memory where there is room, as disks may be full."""
    prefix = f"manycl-{os.getpid()}-"
    with contextlib.suppress(OSError):
        if shutil.disk_usage(_MEMORY).free > _ROOM:
            return tempfile.TemporaryDirectory(prefix=prefix, dir=_MEMORY)
    return tempfile.TemporaryDirectory(prefix=prefix)


class Finished(NamedTuple):
    """``trouble``: empty, or why there is no result, in words. ``log``: what the program said, the beginning of it."""

    trouble: str
    output: bytes
    log: str


def run(
    command: tuple[str, ...], *, given: bytes = b"", folder: Path, computing: int = COMPUTING, output: int = OUTPUT
) -> Finished:
    """Run a program to its end in a folder, with ``given`` as its input. Never raises but for what interrupts it.
    ``computing``: seconds; ``output``: bytes of each file that it writes."""
    with contextlib.ExitStack() as files:
        try:
            put, out, told = (files.enter_context(open(os.memfd_create("manycl"), "r+b")) for _ in range(3))
            put.write(given)
            put.seek(0)
            ending, held = (files.enter_context(open(end, "rb", 0)) for end in os.pipe())
            process = subprocess.Popen(
                command,
                stdin=put,
                stdout=out,
                stderr=told,
                cwd=folder,
                start_new_session=True,
                pass_fds=(held.fileno(),),
                env=flags.inherited(without=_STEERING) | {"LC_ALL": "C"},
            )
        except (OSError, ValueError) as error:
            is_full = isinstance(error, OSError) and error.errno == errno.EAGAIN
            why = "no more processes may be started here (ulimit -u)" if is_full else error
            return Finished(f"it cannot be started: {why}", b"", "")
        try:
            _limit(process.pid, computing, output)
            held.close()
            stands = not _ended(process, ending.fileno())
        finally:
            if process.poll() is None:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        out.seek(0)
        told.seek(0)
        log = told.read(_TOLD).decode(errors="replace")
        trouble = f"it stands still (for {PATIENCE:g} s)" if stands else _trouble(process.returncode, computing, output)
        return Finished(trouble, out.read(), log)


_STEERING = ("CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "CCC_OVERRIDE_OPTIONS", "SOURCE_DATE_EPOCH")
"""What steers compilers from outside is left out: the same text gives the same object."""


def _ended(process: subprocess.Popen[bytes], ending: int) -> bool:
    """Wait until a program has ended; False: it stands still. ``ending``: the end of a pipe whose other end it holds:
    to wait for a process with a limit of time is to look every 50 ms."""
    before, looking = "", select.poll()
    looking.register(ending, 0)  # hanging up is always told
    while True:
        try:
            process.wait(PATIENCE if looking.poll(PATIENCE * 1000) else 0)
            return True
        except subprocess.TimeoutExpired:
            try:
                stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            now = " ".join(stat.rpartition(")")[2].split()[11:13])  # ticks of all its threads
            if now == before:
                return False
            before = now


def wheel() -> Path | None:
    """Return the compiler of the package ``ziglang``, a whole clang with a linker; None where there is none."""
    spec = importlib.util.find_spec("ziglang")  # imports nothing
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "zig"
    return path if path.is_file() else None


def _limit(pid: int, computing: int, output: int) -> None:
    """A soft limit tells what was exceeded; a program that does not mind is ended two seconds later."""
    limits = {
        resource.RLIMIT_CPU: computing,
        resource.RLIMIT_AS: MEMORY,
        resource.RLIMIT_FSIZE: output,
        resource.RLIMIT_CORE: 0,
    }
    for what, most in limits.items():
        with contextlib.suppress(OSError, ValueError):  # it has ended already, or had less
            _, hard = resource.prlimit(pid, what)
            soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.prlimit(pid, what, (soft, soft + 2 if what == resource.RLIMIT_CPU else hard))


def _trouble(code: int, computing: int, output: int) -> str:
    if code == 0:
        return ""
    if code == -signal.SIGXCPU:
        return f"it was ended after {computing} s of computing"
    if code == -signal.SIGXFSZ:
        return f"it was ended after writing {output >> 20} MiB"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"it was ended by {signal.Signals(-code).name}"
    return f"it ended with status {code}"
