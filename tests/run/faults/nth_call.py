"""The n-th call of the driver fails, once, in fixed graphs: whatever call it is, only manycl's own errors come out of
it, every array is right or said to be lost, and the run that follows is right.

    python -m tests.run.faults.nth_call [GRAPH …]

lets every call of every graph fail; the tests let a few.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pyopencl as cl

import manycl as mc
from manycl.drivers.opencl import copies, driver, staging
from manycl.errors import ManyclError, ResultError
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.run.data import host_memory
from manycl.run.executor.command_buffer import recorded

N, GROUP, ARRAYS = 1024, 64, 4
PROGRAM = mc.Program("""
kernel void inc(global uint *x, uint m) {
    uint v = x[get_global_id(0)];
    for (int k = 0; k < 20; ++k) v = v * 1664525u + m;
    x[get_global_id(0)] = v;
}
kernel void mixup(global const uint *a, global const uint *b, global uint *c, uint m) {
    int i = get_global_id(0);
    c[i] = a[i] * m + (b[i] >> 3);
}
kernel void sten(global const uint *a, global uint *c) {
    int i = get_global_id(0), n = get_global_size(0);
    if (i > 0 && i < n - 1) c[i] = a[i - 1] + a[i + 1];
}
""")
Bits = Any
Step = tuple[str, tuple[int, int, int], int]


class Case(NamedTuple):
    """A graph: ``steps`` drawn from its name, on ``devices``. ``own``: memories of their own; ``staged``: by pinned
    chunks; ``watched``: as GPUs are; ``divided``: every launch in ranges on all devices; ``again``: a prepared graph's
    runs before the one that counts; ``room``: bytes of memory; ``fresh``: devices are opened in it, too; ``host``:
    with host functions."""

    name: str
    policy: str = "eager"
    devices: str = "opencl/2"
    steps: int = 8
    own: bool = False
    staged: bool = False
    watched: bool = False
    divided: bool = False
    again: int = 0
    room: int = 0
    fresh: bool = False
    host: bool = True


CASES = (
    Case("in order", "in_order"),
    Case("eager"),
    Case("heft", "heft"),
    Case("auto", "auto"),
    Case("one device", "in_order", "opencl/2#0"),
    Case("one device, own", "in_order", "opencl/2#0", own=True),
    Case("at once", "in_order", "opencl/2#0", steps=12, host=False),
    Case("at once, staged", "in_order", "opencl/2#0", own=True, staged=True, host=False),
    Case("own", own=True),
    Case("own, mkmd", "mkmd", own=True),
    Case("own, clustering", "clustering", own=True),
    Case("own, heft", "heft", own=True, steps=12),
    Case("staged", own=True, staged=True),
    Case("staged, mkmd", "mkmd", own=True, staged=True),
    Case("divided", divided=True),
    Case("own, divided", divided=True, own=True),
    Case("little memory", own=True, room=3 * 4 * N, policy="heft"),
    Case("little memory, divided", own=True, room=3 * 4 * N, divided=True),
    Case("recorded", "heft", own=True, again=6),
    Case("recorded, divided", own=True, divided=True, again=3),
    Case("launches only", "in_order", again=6, host=False),
    Case("watched", "heft", own=True, watched=True),
    Case("opened", "in_order", steps=3, own=True, fresh=True),
)


class Calls:
    """Counts the calls of the driver while ``counting``; the ``failing``-th of them fails."""

    def __init__(self) -> None:
        self.count = 0
        self.counting = False
        self.failing = 0
        self._lock = threading.Lock()

    def count_from_now(self, failing: int = 0) -> None:
        self.count, self.failing, self.counting = 0, failing, True

    def wrapped(self, call: Any) -> Any:
        def counted(*args: Any, **options: Any) -> Any:
            if self.counting:
                with self._lock:
                    self.count += 1
                    fails = self.count == self.failing
                if fails:
                    raise cl.RuntimeError(f"{getattr(call, '__name__', call)} failed: OUT_OF_RESOURCES")
            return call(*args, **options)

        return counted


@contextmanager
def counted_calls() -> Iterator[Calls]:
    """All calls that this project makes of PyOpenCL are counted."""
    calls = Calls()
    buffer = cl.Buffer

    class Counted(buffer):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **options: Any) -> None:
            calls.wrapped(super().__init__)(*args, **options)

    with ExitStack() as stack:

        def replaced(owner: Any, name: str, value: Any = None) -> None:
            wrapped = value if value is not None else calls.wrapped(getattr(owner, name))
            stack.enter_context(mock.patch.object(owner, name, wrapped))

        replaced(driver, "_enqueue")
        for module in (driver, copies):
            for name in ("read_buffer", "write_buffer"):
                replaced(module, name)
        for name in (
            "enqueue_copy",
            "enqueue_map_buffer",
            "enqueue_marker",
            "enqueue_barrier",
            "CommandQueue",
            "Context",
        ):
            replaced(cl, name)
        replaced(staging.Staged, "__init__")
        replaced(cl, "Buffer", Counted)
        for name in ("wait", "get_info", "get_profiling_info"):
            replaced(cl.Event, name)
        status = cl.Event.command_execution_status
        replaced(cl.Event, "command_execution_status", property(calls.wrapped(status.fget)))
        for name in ("flush", "finish"):
            replaced(cl.CommandQueue if isinstance(cl.CommandQueue, type) else _QUEUE, name)
        for name in ("set_arg", "_set_arg_buf"):
            replaced(cl.Kernel, name)
        replaced(cl.Program, "build")
        yield calls


_QUEUE = cl.CommandQueue


def steps_of(case: Case) -> list[Step]:
    r = Random(case.name)
    kinds = ["inc", "mix", "mix", "sten", *(["host"] if case.host else [])]

    def arrays() -> tuple[int, int, int]:
        a, b, c = r.sample(range(ARRAYS), 3)
        return a, b, c

    return [(r.choice(kinds), arrays(), r.randrange(1, 1 << 32)) for _ in range(case.steps)]


def reckon(step: Step, values: list[Bits]) -> None:
    """What a step does, by NumPy."""
    kind, (a, b, c), m = step
    by = np.uint32(m)
    if kind == "inc":
        v = values[a].copy()
        for _ in range(20):
            v = v * np.uint32(1664525) + by
        values[a] = v
    elif kind == "mix":
        values[c] = values[a] * by + (values[b] >> np.uint32(3))
    elif kind == "sten":
        values[c] = values[c].copy()
        values[c][1:-1] = values[a][:-2] + values[a][2:]
    else:
        values[c] = values[a][::-1].copy()


def enqueue(queue: mc.Queue, step: Step, arrays: Sequence[mc.Array]) -> None:
    kind, (a, b, c), m = step
    if kind == "inc":
        PROGRAM.inc(queue, (N,), (GROUP,), arrays[a], m)
    elif kind == "mix":
        PROGRAM.mixup(queue, (N,), (GROUP,), arrays[a], arrays[b], arrays[c], m)
    elif kind == "sten":
        PROGRAM.sten(queue, (N,), (GROUP,), arrays[a], arrays[c])
    else:
        queue.call(lambda x, y: np.copyto(y, x[::-1]), arrays[a], arrays[c], writes=[arrays[c]])


def divided_plan(queue: mc.Queue, steps: Sequence[Step]) -> Plan:
    """Every launch in a range on each device."""
    devices, groups = len(queue.devices), N // GROUP
    cuts = [groups * d // devices for d in range(devices + 1)]
    out: list[Assignment] = []
    for n, (kind, _, _) in enumerate(steps):
        if kind == "host":
            out.append(Assignment(n, ON_HOST, 0, 0.0, 0.0))
        else:
            ranges = enumerate(itertools.pairwise(cuts))
            out += [Assignment(n, d, 0, 0.0, 0.0, 0, low, high - low) for d, (low, high) in ranges]
    return Plan(tuple(out), "divided", queue.devices, 0.0)


class World:
    """A queue and its arrays, and what these may hold: every version since they were known."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.steps = steps_of(case)
        self.values = [np.arange(N, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(k) for k in range(ARRAYS)]
        self.prepared: Any = None
        self.queue: mc.Queue | None = None

    def open(self) -> None:
        self.queue = mc.Queue(self.case.devices, policy=self.case.policy)
        for lanes in self.queue.session.backend.lanes:
            lanes.watched = lanes.watched or self.case.watched
        if self.case.divided:
            self.queue.policy = divided_plan(self.queue, self.steps)
        self.arrays = [self.queue.array(value) for value in self.before]

    def close(self) -> None:
        if self.queue is not None:
            self.queue.session.close()
        self.queue = self.prepared = None

    def run(self) -> None:
        """One run; raises what it raises."""
        if self.queue is None:
            self.open()
        assert self.queue is not None
        if self.case.again:
            if self.prepared is None:
                with self.queue.prepare() as prepared:
                    for step in self.steps:
                        enqueue(self.queue, step, self.arrays)
                self.prepared = prepared
            self.prepared.run()
            return
        for step in self.steps:
            enqueue(self.queue, step, self.arrays)
        self.queue.finish()

    def contents(self) -> list[Bits | None]:
        """Of all arrays; None: lost, and written anew. Raises what asking raises."""
        found: list[Bits | None] = []
        for array, value in zip(self.arrays, self.values, strict=True):
            try:
                found.append(array.get())
            except ResultError:
                found.append(None)
                array.set(value)
        return found

    def turn(self, look: Callable[[Callable[[], Any]], bool]) -> None:
        """A run, which ``look`` calls, saying whether it ended well; then what the arrays hold."""
        self.before = list(self.values)
        versions = [[value] for value in self.values]
        for step in self.steps:
            reckon(step, self.values)
            for mine, value in zip(versions, self.values, strict=True):
                if value is not mine[-1]:
                    mine.append(value)
        ended = look(self.run)
        if self.queue is None:  # it could not be opened
            self.values = [mine[0] for mine in versions]
            return
        found: list[list[Bits | None]] = []
        if not look(lambda: found.append(self.contents())):
            found = [self.contents()]  # what has failed once, in asking, does not fail twice
        for k, (got, mine) in enumerate(zip(found[0], versions, strict=True)):
            if got is None:
                assert not ended, f"the run ended well, and array {k} is lost"
            elif ended:
                assert (got == self.values[k]).all(), f"array {k} is wrong"
            else:
                assert any((got == value).all() for value in mine), f"array {k} holds what nobody ever wrote"
                self.values[k] = got


def calls_of(case: Case, numbers: Callable[[int], Sequence[int]]) -> Iterator[tuple[int, BaseException | None]]:
    """Let the calls of these numbers fail, of as many as there are; what is wrong with each."""
    world = World(case)
    with environment(case), counted_calls() as calls:

        def well(act: Callable[[], Any]) -> bool:
            act()
            return True

        def looked(act: Callable[[], Any]) -> bool:
            try:
                act()
            except ManyclError:
                return False
            return True

        try:
            for _ in range(case.again):
                world.turn(well)
            if case.again:
                assert world.queue is not None
                kept = [
                    recorded(world.queue.session.backend, kept.command_graph)
                    for kept in world.prepared._prepared._commands
                ]
                assert kept, "no command graph was kept"
                assert any(kept) == ("launches only" in case.name)
            calls.count_from_now()
            world.turn(well)
            count = calls.count
            assert count, "no call of the driver was counted"
            for n in numbers(count):
                if case.fresh:
                    world.close()
                calls.count_from_now(n)
                try:
                    world.turn(looked)
                    calls.counting = False
                    world.turn(well)
                    yield n, None
                except Exception as error:
                    calls.counting = False
                    yield n, error
                    world.close()
                    world = World(case)
        finally:
            calls.counting = False
            world.close()


@contextmanager
def environment(case: Case) -> Iterator[None]:
    names = {"MANYCL_ZERO_COPY": "0" if case.own else "1", "MANYCL_MODELS": "0"}
    if case.room:
        names["MANYCL_DEVICE_MEMORY"] = str(case.room)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, names))
        if case.staged:
            for owner, name, value in (
                (staging, "STAGE_FROM", 1),
                (host_memory, "PAGE", 1 << 40),
                (staging, "CHUNK", 1000),
            ):
                stack.enter_context(mock.patch.object(owner, name, value))
        yield


def main(names: list[str]) -> int:
    failed = 0
    for case in CASES:
        if names and case.name not in names:
            continue
        wrong: list[int] = []
        total = 0
        for n, error in calls_of(case, lambda count: range(1, count + 4)):
            total += 1
            if error is not None:
                wrong.append(n)
                if len(wrong) <= 3:
                    traceback.print_exception(error, limit=-6)
        failed += len(wrong)
        print(f"{case.name}: {total} calls, {len(wrong)} wrong {wrong[:20]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
