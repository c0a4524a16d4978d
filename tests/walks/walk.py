"""Counts the Python calls inside manycl that a run passes, and the modules that they are in.

``python walk.py NAME`` prints a JSON object: of each run that NAME's program counts, its calls and modules, on the
thread that runs it: what others do beside it differs from time to time.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np

SAXPY = """
kernel void saxpy(global float *y, global const float *x, float a) {
    int i = get_global_id(0);
    y[i] = a * x[i] + y[i];
}
"""
SMOOTH = """
kernel void smooth(global float *y, global const float *x, int n) {
    int i = get_global_id(0);
    y[i] = 0.5f * (x[max(i - 1, 0)] + x[min(i + 1, n - 1)]);
}
"""
LOGISTIC = """
kernel void logistic(global float *x, int n) {
    int i = get_global_id(0);
    float v = x[i];
    for (int k = 0; k < n; k++) v = 3.7f * v * (1.0f - v);
    x[i] = v;
}
"""
N = 1 << 16
Counts = dict[str, tuple[int, int]]
"""Of each run that is counted: calls, and modules that they are in."""


class Walk:
    def __init__(self) -> None:
        import manycl

        self._root = str(Path(manycl.__file__).parent) + os.sep
        self.counts: Counts = {}

    @contextmanager
    def counted(self, name: str) -> Iterator[None]:
        modules: Counter[str] = Counter()

        def called(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and frame.f_code.co_filename.startswith(self._root):
                modules[frame.f_code.co_filename] += 1

        sys.setprofile(called)
        try:
            yield
        finally:
            sys.setprofile(None)
        self.counts[name] = modules.total(), len(modules)


def one_device(walk: Walk) -> None:
    import manycl

    with manycl.Queue("cpu0") as queue:
        saxpy = manycl.Program(SAXPY).saxpy
        x, y = queue.array(np.ones(N, np.float32)), queue.array(np.zeros(N, np.float32))
        for turn in range(1, 21):
            with walk.counted(f"run {turn}"):
                saxpy(queue, (N,), (64,), y, x, np.float32(2))
                y.get()
        assert (y.get() == 40).all()


def one_of_two(walk: Walk) -> None:
    import manycl

    with manycl.Queue("cpu/2") as queue:
        saxpy = manycl.Program(SAXPY).build().saxpy
        x, y = queue.array(np.ones(64, np.float32)), queue.array(np.zeros(64, np.float32))
        for turn in range(1, 201):  # among so many some are quick, however busy the machine is
            with walk.counted(f"run {turn}"):
                saxpy(queue, (64,), (64,), y, x, np.float32(2))
                queue.finish()
        assert (y.get() == 400).all()


def divided(walk: Walk) -> None:
    import manycl

    with manycl.Queue("cpu/2", policy="balance") as queue:
        smooth = manycl.Program(SMOOTH).smooth
        x, y = queue.array(np.ones(N, np.float32)), queue.array(np.zeros(N, np.float32))
        for turn in range(1, 21):
            with walk.counted(f"run {turn}"):
                smooth(queue, (N,), (64,), y, x, np.int32(N))
                y.get()
        assert (y.get() == 1).all()


def prepared(walk: Walk) -> None:
    import manycl

    with manycl.Queue("cpu0") as queue:
        smooth = manycl.Program(SMOOTH).smooth
        x, y = queue.array(np.ones(N, np.float32)), queue.array(np.zeros(N, np.float32))
        with queue.prepare() as graph:
            smooth(queue, (N,), (64,), y, x, np.int32(N))
            smooth(queue, (N,), (64,), x, y, np.int32(N))
        for turn in range(1, 11):
            with walk.counted(f"run {turn}"):
                graph.run()
        assert (x.get() == 1).all()


def moving(walk: Walk) -> None:
    import manycl
    from manycl.machine import DeviceIndex
    from manycl.plan.plan import Assignment, Plan

    with manycl.Queue("cpu/2#0,cpu/2#1@4") as queue:
        logistic = manycl.Program(LOGISTIC).logistic
        x = queue.array(np.full(N, 0.5, np.float32))
        with queue.prepare() as graph:
            logistic(queue, (N,), (64,), x, np.int32(2000))
        half = N // 64 // 2
        shares = [Assignment(0, DeviceIndex(d), 0, 0.0, 0.0, 0, d * half, half) for d in (0, 1)]
        plan = Plan(tuple(shares), "by hand", queue.devices, 0.0, movable=(0,))
        for turn in range(1, 7):
            with walk.counted(f"run {turn}"):
                queue.session.run(graph.graph, plan)


def unmodified(walk: Walk) -> None:
    import pyopencl as cl

    context = cl.create_some_context(interactive=False)
    queue = cl.CommandQueue(context)
    saxpy = cl.Program(context, SAXPY).build().saxpy
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    flags = cl.mem_flags
    on_device = [cl.Buffer(context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=array) for array in (y, x)]
    for turn in range(1, 201):  # among so many some are quick, however busy the machine is
        with walk.counted(f"run {turn}"):
            saxpy(queue, (N,), (64,), *on_device, np.float32(2))
            cl.enqueue_copy(queue, y, on_device[0])
    assert (y == 400).all()


WALKS: dict[str, Callable[[Walk], None]] = {
    walk.__name__: walk for walk in (one_device, one_of_two, divided, prepared, moving, unmodified)
}


def have_launch_cache() -> None:
    """Have the launch cache compiled, as it is on a machine that has run a program before."""
    from manycl.api.dispatch import compiled

    compiled.install()


if __name__ == "__main__":
    have_launch_cache()
    walk = Walk()
    WALKS[sys.argv[1]](walk)
    print(json.dumps(walk.counts))
