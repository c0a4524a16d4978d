"""Tapes (``run/backends/tape.py``) and where buffers are: played where they fit, and what they leave."""

from __future__ import annotations

from manycl.errors import RunError
from manycl.run.backends.opencl import OpenCLBackend
from manycl.run.backends.tape import Tape, play
from manycl.run.coherence import Directory
from manycl.run.result import Result


def played(tape: Tape, backend: OpenCLBackend, directory: Directory, at_once: bool) -> Result | None:
    """Run a tape; None if buffers are not where it needs them. ``at_once``: as for ``play``. Raises RunError."""
    tape.lowered.open(directory)
    try:
        return _played(tape, backend, directory, at_once)
    finally:
        tape.lowered.close(directory)


def _played(tape: Tape, backend: OpenCLBackend, directory: Directory, at_once: bool) -> Result | None:
    valid = directory.valid
    if any(k in directory.parts or valid.get(k, bit) & bit == 0 for k, bit in tape.needs):
        return None
    try:
        seconds, done = play(backend, tape, at_once)
    except BaseException:
        _lose(tape, directory, "the run was interrupted")
        raise
    if done.failure is not None:
        name = tape.lowered.graph.nodes[done.failure.token].name
        number = tape.lowered.step(done.failure.token).node
        _lose(tape, directory, f"kernel {name} failed")
        raise RunError(f"kernel {name} (node {number}) failed: {done.failure.message}")
    for key, bit in tape.leaves.items():
        valid[key] = bit
    return Result(tape.graph, backend.machine, "prepared", seconds, done, lowered=tape.lowered)


def _lose(tape: Tape, directory: Directory, reason: str) -> None:
    for key in tape.leaves:
        directory.lose(key, reason)
