"""The processes in which programs run: a pipe to each, and where they leave things on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path

from everyday_programs.worker import Task

SCRIPT = Path(__file__).parents[1] / "everyday.py"
RUNS = 20
BLOCKS = (2, 8, 5, 5)
"""Runs of a turn: in a row, as in a loop, since a run finds nothing in the caches that the other process has used."""
GIVE_UP = 3.0
"""Times as long as the best device's: another single device whose second run takes that long is not the best."""
SECONDS = 900.0
"""After which a process counts as hung."""


class Failed(Exception):
    """A process did not end well."""


def environment(folder: Path) -> dict[str, str]:
    """The user's own, but what is left on disk is in a folder (Python's own code is where the user says, if so)."""
    places = {"MANYCL_CACHE": "cache", "MANYCL_DATA": "data", "POCL_CACHE_DIR": "pocl", "CUDA_CACHE_PATH": "cuda"}
    places["XDG_CACHE_HOME"] = "user"
    if "PYTHONPYCACHEPREFIX" not in os.environ:
        places["PYTHONPYCACHEPREFIX"] = "python"
    for name in places.values():
        (folder / name).mkdir(exist_ok=True)
    own = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # what is installed is compiled
    return {**own, **{k: str(folder / name) for k, name in places.items()}, "MANYCL_MODELS": "1"}


def place(folder: Path, cold: bool, stack: ExitStack) -> Path:
    """The folder that a process leaves things in: the one for all, or one that is empty and goes with the stack."""
    return Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder))) if cold else folder


class Worker:
    """A process that runs a program when it is told to. Raises Failed when it does not end well."""

    def __init__(self, task: Task, env: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed below)
        command = [sys.executable, str(SCRIPT), "--worker", json.dumps(asdict(task))]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=self._errors, text=True)
        self._late = threading.Timer(SECONDS, self._process.kill)
        self._late.start()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        self._late.cancel()
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                with suppress(OSError):  # what was written last and never read
                    pipe.close()

    def built(self) -> None:
        """Wait until all is built."""
        self._answer()

    def ask(self, word: str) -> list[float]:
        """What it answers (:func:`everyday_programs.worker.serve`)."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the answer tells
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> list[float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self._errors.seek(0)
            raise Failed(f"exit status {status}: {self._errors.read().strip()[-1500:]}")
        told: list[float] = json.loads(line)
        return told

    def end(self) -> None:
        """Let it end by itself, so that what it has learned is kept."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.wait():
            self._answer()
