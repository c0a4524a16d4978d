"""One process of `foreign.py`: runs a program of others several times, as ``python program.py`` would, times each run
and, in the first, notes what comes back from the devices.

With ``--plain`` drivers are prepared first, as manycl does (PoCL may have to be told what processor this is); PyOpenCL
is the real one then. Random numbers are seeded before each run: of the module ``random`` and of NumPy, also where
programs ask for a generator without a seed.
"""

from __future__ import annotations

import functools
import json
import os
import random
import runpy
import sys
import time
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

MARK = "<<<the next run>>>"
"""Printed between runs."""
SEED = 20
KEPT = 64 << 20
"""Bytes of results that are compared as numbers."""


class Reads:
    """What comes back from the devices: checksums of the memory that blocking copies and maps give the host."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self.values: dict[str, np.ndarray] = {}
        """By their numbers among what is noted: arrays of numbers, while there is room."""
        self._room = KEPT
        self.on = True

    def _note(self, memory: Any) -> None:
        if isinstance(memory, np.ndarray) and memory.dtype != object:
            data = np.ascontiguousarray(memory)
            numbers = _numbers(data)
            if numbers is not None and data.nbytes <= self._room:
                self._room -= data.nbytes
                self.values[str(len(self.noted))] = numbers.copy()
            self.noted.append(f"{data.dtype}{list(data.shape)} {zlib.crc32(data.view(np.uint8).data):08x}")

    def listen(self, module: Any) -> None:
        """Look on at what PyOpenCL's Python layer gives to programs and to its own arrays."""
        copy, mapped = module.enqueue_copy, module.enqueue_map_buffer
        module.enqueue_copy = self._after(copy, lambda _, args, kwargs: args[1] if len(args) > 1 else kwargs["dest"])
        module.enqueue_map_buffer = self._after(mapped, lambda answer, *_: answer[0])

    def _after(self, function: Callable[..., Any], which: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def looked_on(*args: Any, **kwargs: Any) -> Any:
            answer = function(*args, **kwargs)
            if self.on and kwargs.get("is_blocking", True):
                self._note(which(answer, args, kwargs))
            return answer

        return looked_on


def _numbers(data: np.ndarray) -> np.ndarray | None:
    """An array as numbers, also of vectors, which are structs of one type; None for what is none."""
    fields = data.dtype.fields
    types: set[np.dtype[Any]] = {field[0] for field in fields.values()} if fields else {data.dtype}
    kind = types.pop()
    if types or kind.kind not in "iufc" or data.dtype.itemsize % kind.itemsize:
        return None
    return data.view(kind)


class Seeded(random.Random):
    """Where a program asks for a generator, or a seed, of the system's choice, it is the same each time."""

    def seed(self, a: Any = None, version: int = 2) -> None:
        super().seed(SEED if a is None else a, version)


def seed() -> None:
    random.seed()
    np.random.seed(SEED)


def seeded_generators() -> None:
    random.Random = Seeded  # type: ignore[misc]
    shared = random._inst.seed
    random.seed = lambda a=None, version=2: shared(SEED if a is None else a, version)
    original = np.random.default_rng
    np.random.default_rng = lambda seed=None: original(SEED if seed is None else seed)


def status(run: Callable[[], Any]) -> int:
    """The exit status that a process of its own would have."""
    try:
        run()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    task = json.loads(sys.argv[1])
    seeded_generators()
    if task["plain"]:
        import manycl

        manycl.devices()
    program = task["program"]
    sys.argv = [program, *task["args"]]
    sys.path[0] = os.getcwd()
    if program.endswith(".py"):
        run = functools.partial(runpy.run_path, program, run_name="__main__")
    else:
        run = functools.partial(runpy.run_module, program, run_name="__main__", alter_sys=True)
    sys.path[1:1] = [os.path.abspath(p) for p in task["path"]]
    import pyopencl

    reads = Reads()
    reads.listen(pyopencl)
    told: dict[str, Any] = {
        "reads": reads.noted,
        "seconds": [],
        "processor": [],
        "status": 0,
        "core": getattr(pyopencl._cl, "__file__", None) or "",
    }
    new = Path(task["told"] + ".new")
    for _ in range(task["runs"]):
        seed()
        start, used = time.perf_counter(), time.process_time()
        told["status"] = status(run)
        told["seconds"].append(time.perf_counter() - start)
        told["processor"].append(time.process_time() - used)
        if reads.on:
            np.savez(task["values"], allow_pickle=False, **reads.values)
        reads.on = False
        print(f"\n{MARK}", flush=True)
        new.write_text(json.dumps(told), encoding="utf-8")
        new.replace(task["told"])
        if told["status"]:
            break
    sys.stdout.flush()


if __name__ == "__main__":
    main()
