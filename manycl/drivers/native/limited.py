"""Another program, run within limits: one that crashes, never ends or prints without end is an answer, not an end.

Limits are of work, not of the clock: seconds of computing, bytes of memory and of output.
"""

from __future__ import annotations

import contextlib
import os
import resource
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
_TOLD = 1 << 16  # bytes of messages that anybody reads


class Finished(NamedTuple):
    """``trouble``: empty, or why there is no result, in words. ``log``: what the program said, the beginning of it."""

    trouble: str
    output: bytes
    log: str


def run(command: tuple[str, ...], *, given: bytes = b"", folder: Path, computing: int = COMPUTING) -> Finished:
    """Run a program to its end in a folder, with ``given`` as its input. Never raises but for what interrupts it."""
    with contextlib.ExitStack() as files:
        put, out, told = (files.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in range(3))
        put.write(given)
        put.seek(0)
        try:
            process = subprocess.Popen(
                command,
                stdin=put,
                stdout=out,
                stderr=told,
                cwd=folder,
                start_new_session=True,
                env=_environment(folder),
            )
        except (OSError, ValueError) as error:
            return Finished(f"it cannot be started: {error}", b"", "")
        try:
            _limit(process.pid, computing)
            process.wait()
        finally:
            if process.poll() is None:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        out.seek(0)
        told.seek(0)
        log = told.read(_TOLD).decode(errors="replace")
        return Finished(_trouble(process.returncode, computing), out.read(OUTPUT), log)


def _environment(folder: Path) -> dict[str, str]:
    """What steers compilers from outside is left out: the same text gives the same object."""
    steering = ("CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "CCC_OVERRIDE_OPTIONS", "SOURCE_DATE_EPOCH")
    return flags.inherited(without=steering) | {
        "ZIG_GLOBAL_CACHE_DIR": str(folder),
        "ZIG_LOCAL_CACHE_DIR": str(folder),
        "LC_ALL": "C",
    }


def _limit(pid: int, computing: int) -> None:
    """A soft limit tells what was exceeded; a program that does not mind is ended two seconds later."""
    limits = {
        resource.RLIMIT_CPU: computing,
        resource.RLIMIT_AS: MEMORY,
        resource.RLIMIT_FSIZE: OUTPUT,
        resource.RLIMIT_CORE: 0,
    }
    for what, most in limits.items():
        with contextlib.suppress(OSError, ValueError):  # it has ended already, or had less
            _, hard = resource.prlimit(pid, what)
            soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.prlimit(pid, what, (soft, soft + 2 if what == resource.RLIMIT_CPU else hard))


def _trouble(code: int, computing: int) -> str:
    if code == 0:
        return ""
    if code == -signal.SIGXCPU:
        return f"it was ended after {computing} s of computing"
    if code == -signal.SIGXFSZ:
        return f"it was ended after writing {OUTPUT >> 20} MiB"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"it was ended by {signal.Signals(-code).name}"
    return f"it ended with status {code}"
