"""Silent wrong results: sequences whose contents must be those of one device."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from typing import Any

import numpy as np

import manycl as mc
from found_cases.case import OWN_MEMORIES, case, expect, files, manycl, same
from manycl.machine import DeviceIndex
from manycl.plan.plan import Assignment

STEPS = """
#define I get_global_id(0)
float worn(float a, int n) { for (int k = 0; k < n; k++) a = a * 0.999f + 0.001f; return a; }
kernel void copy(global const int *x, global int *y) { y[I] = x[I]; }
kernel void inc(global int *x) { x[I] += 1; }
kernel void ring(global const int *x, global int *y) { y[I] = x[(I + 1) % get_global_size(0)] + 3 * x[I]; }
kernel void some(global const int *x, global int *y) { if (x[I] & 1) y[I] = x[I] * 5; }
kernel void hist(global const int *x, global int *y) { atomic_add(&y[x[I] & 7], 1); }
kernel void slow(global float *x, int n) { x[I] = worn(x[I], n); }
kernel void later(global int *b, global float *f, int n) { b[I] = worn(f[I], n) > -5 ? 7 : 0; }
kernel void plus(global float *x, int n) { x[I] = worn(x[I], n) * 0.0f + x[I] + 1.0f; }
kernel void take(global const float *x, global float *y) { y[I] = x[I]; }
"""


@case(OWN_MEMORIES)
def tape_reads_stale_parts() -> None:
    """A graph that is run again reads a buffer which a divided launch of another queue has left in parts."""
    program, size = mc.Program(STEPS), 1 << 17
    with mc.Queue("cpu/2", policy="in_order") as one:
        many = mc.Queue(session=one.session, policy="balance")
        x, y = one.zeros(size, np.float32), one.zeros(size, np.float32)
        with one.prepare() as prepared:
            program.take(one, (size,), (64,), x, y)
        for turn in range(12):
            prepared.run()
            if turn >= 8:
                program.plus(many, (size,), (64,), x, 3000)
                many.finish()
                prepared.run()
                same(y.get(), np.full(size, turn - 7, np.float32), f"turn {turn}")


@case(OWN_MEMORIES)
def tape_of_one_queue() -> None:
    """The same with one queue: a kernel on a device that was named, and a divided one."""
    program, size = mc.Program(STEPS), 1 << 14
    with mc.Queue("cpu/2", policy="balance") as queue:
        x, y = queue.zeros(size, np.float32), queue.zeros(size, np.float32)
        with queue.prepare() as first:
            program.take(queue, (size,), (64,), x, y, device="cpu0.0")
        with queue.prepare() as second:
            program.plus(queue, (size,), (64,), x, 20_000)
        for _ in range(60):
            first.run()
        for turn in range(30):
            second.run()
            first.run()
            same(y.get(), np.full(size, turn + 1, np.float32), f"turn {turn}")


@case(OWN_MEMORIES | {"MANYCL_DEVICE_MEMORY": "3300"})
def valid_copies_freed() -> None:
    """Prepared graphs take turns in little memory; one is divided by hand, 1 of 16 groups on the second device."""
    program, size = mc.Program(STEPS), 256
    first = np.random.default_rng(1).integers(0, 99, size).astype(np.int32)
    with mc.Queue("cpu/2") as queue:
        x, y = queue.array(first), queue.zeros(size, np.int32)
        cuts = Assignment(0, DeviceIndex(1), 0, 0.0, 0.0, 0, 0, 1), Assignment(0, DeviceIndex(0), 0, 0.0, 0.0, 0, 1, 15)
        queue.policy = mc.Plan(cuts, "by hand", queue.devices, 0.0)
        with queue.prepare() as hist:
            program.hist(queue, (size,), (16,), x, y)
        queue.policy = mc.Plan((Assignment(0, DeviceIndex(1), 0, 0.0, 0.0),), "by hand", queue.devices, 0.0)
        with queue.prepare() as copy:
            program.copy(queue, (size,), (16,), x, y)
        hist.run()
        y.set(np.arange(size, dtype=np.int32))
        hist.run()
        copy.run()
        y.set(np.zeros(size, np.int32))
        hist.run()
        want = np.bincount(first & 7, minlength=size)
        same(y.get(), want, "histogram")


def _applied(name: str, x: Any, y: Any) -> None:
    if name == "copy":
        y[:] = x
    elif name == "inc":
        x += 1
    elif name == "ring":
        y[:] = np.roll(x, -1) + 3 * x
    elif name == "some":
        y[x & 1 == 1] = x[x & 1 == 1] * 5
    else:
        np.add.at(y, x & 7, 1)


def _cuts(chance: random.Random, nodes: int, groups: int) -> tuple[Assignment, ...]:
    """Every launch whole on one of two devices, or cut somewhere."""
    made: list[Assignment] = []
    for node in range(nodes):
        first = chance.randrange(2)
        if chance.random() < 0.5:
            made.append(Assignment(node, DeviceIndex(first), 0, 0.0, 0.0))
        else:
            cut = chance.randrange(1, groups)
            made.append(Assignment(node, DeviceIndex(first), 0, 0.0, 0.0, 0, 0, cut))
            made.append(Assignment(node, DeviceIndex(1 - first), 0, 0.0, 0.0, 0, cut, groups - cut))
    return tuple(made)


def _session(program: mc.Program, seed: int) -> None:
    """A random sequence of graphs on one session, some prepared, launches cut at random, arrays set and read."""
    size, chance = 256, random.Random(seed)
    with mc.Queue("cpu/2") as queue:
        want = [np.arange(size, dtype=np.int32) * (i + 1) % 97 for i in range(4)]
        arrays = [queue.array(w.copy()) for w in want]
        graphs: list[tuple[Any, list[tuple[str, list[int]]]]] = []
        for _ in range(40):
            what = chance.choice(["make", "run", "run", "run", "run", "set", "get"])
            if what == "make" and len(graphs) < 5:
                steps = []
                with queue.prepare() as prepared:
                    for _ in range(chance.randint(1, 3)):
                        name = chance.choice(["copy", "inc", "ring", "some", "hist"])
                        used = chance.sample(range(4), 1 if name == "inc" else 2)
                        getattr(program, name)(queue, (size,), (16,), *(arrays[i] for i in used))
                        steps.append((name, used))
                    queue.policy = mc.Plan(_cuts(chance, len(steps), size // 16), "random", queue.devices, 1.0)
                graphs.append((prepared, steps))
            elif what == "run" and graphs:
                graph, steps = chance.choice(graphs)
                for _ in range(chance.randint(1, 3)):
                    graph.run()
                    for name, used in steps:
                        _applied(name, want[used[0]], want[used[-1]])
            elif what == "set":
                i = chance.randrange(4)
                want[i][:] = np.random.default_rng(chance.randrange(1 << 30)).integers(0, 99, size)
                arrays[i].set(want[i])
            elif what == "get":
                i = chance.randrange(4)
                same(arrays[i].get(), want[i], f"seed {seed}")
        for i in range(4):
            same(arrays[i].get(), want[i], f"seed {seed}, at the end")


def _sessions(first: int) -> None:
    program = mc.Program(STEPS)
    for seed in range(first, first + 60):
        _session(program, seed)


@case(OWN_MEMORIES)
def sessions_own_memories() -> None:
    """Sixty random sessions of prepared graphs, launches divided at random, memories of their own."""
    _sessions(0)


@case(OWN_MEMORIES | {"MANYCL_DEVICE_MEMORY": "3300"})
def sessions_little_memory() -> None:
    """Sixty random sessions in 3,300 bytes a device."""
    _sessions(1000)


@case()
def sessions_shared_memory() -> None:
    """Sixty random sessions on memory that devices share with the host."""
    _sessions(2000)


def _press(times: int, first: float, between: float) -> None:
    """Interrupts (Ctrl-C) in so many seconds."""

    def go() -> None:
        time.sleep(first)
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(between)

    threading.Thread(target=go).start()


def _settled() -> None:
    """Late interrupts are swallowed here."""
    for _ in range(40):
        try:
            time.sleep(0.01)
        except KeyboardInterrupt:
            continue


@case()
def double_interrupt() -> None:
    """A run is interrupted twice; the next one on the queue is another run."""
    program = mc.Program(STEPS)
    with mc.Queue("cpu/2#0") as queue:
        a, f = queue.zeros(64, np.float32), queue.zeros(64, np.float32)
        program.slow(queue, (64,), (64,), a, 1000)
        program.later(queue, (64,), (64,), queue.zeros(64, np.int32), f, 10)
        queue.finish()
        start = time.perf_counter()
        program.slow(queue, (64,), (64,), a, 2_000_000)
        queue.finish()
        second = int(2_000_000 / (time.perf_counter() - start))
        for _ in range(3):
            program.slow(queue, (64,), (64,), a, 3 * second)
            _press(2, 0.5, 0.5)
            try:
                queue.finish()
            except KeyboardInterrupt:
                _settled()
            seen: list[Any] = []
            b = queue.zeros(64, np.int32)
            a = queue.zeros(64, np.float32)
            program.later(queue, (64,), (64,), b, f, second)
            queue.call(lambda v, seen=seen: seen.append(v.copy()), b, writes=[])
            queue.finish()
            same(seen[0], np.full(64, 7), "what the host function saw")


@case(seconds=200)
def interrupts() -> None:
    """Random graphs interrupted once to three times: arrays are lost or right, and the next run is right."""
    program, size, chance = mc.Program(STEPS), 4096, random.Random(5)
    with mc.Queue("cpu/2", policy="eager") as queue:
        for turn in range(80):
            queue.policy = chance.choice(["eager", "mkmd", "balance", "auto", "clustering"])
            x = queue.zeros(size, np.float32)
            for _ in range(chance.randint(2, 6)):
                program.plus(queue, (size,), (64,), x, 20_000)
            _press(chance.randint(1, 3), chance.random() * 0.1, 0.002)
            with contextlib.suppress(KeyboardInterrupt):
                queue.finish()
            _settled()
            seen: list[Any] = []
            y = queue.zeros(size, np.float32)
            for _ in range(3):
                program.plus(queue, (size,), (64,), y, 100)
            queue.call(lambda v, seen=seen: seen.append(v.copy()), y, writes=[])
            queue.finish()
            same(seen[0], np.full(size, 3, np.float32), f"turn {turn}, the host function")
            same(y.get(), np.full(size, 3, np.float32), f"turn {turn}")


@case()
def threads_on_one_queue() -> None:
    """Four threads enqueue on one queue and read what they made."""
    sys.setswitchinterval(1e-5)
    program = mc.Program(STEPS)
    wrong: list[Any] = []
    errors: list[Exception] = []
    with mc.Queue("cpu/2") as queue:

        def work() -> None:
            try:
                for _ in range(200):
                    a = queue.zeros(1024, np.int32)
                    for _ in range(20):
                        program.inc(queue, (1024,), (64,), a)
                    if not (a.get() == 20).all():
                        wrong.append(a)
            except mc.ManyclError as error:
                if "thread" not in str(error):  # being refused with a reason is right, too
                    errors.append(error)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    expect(not wrong, f"{len(wrong)} of 800 arrays are wrong")
    expect(not errors, f"{len(errors)} strange errors: {errors[:1]}")


TURN = """kernel void turn(global float *out, global const float *in, int first, int width, int height) {
  int column = get_global_id(0) + first, row = get_global_id(1);
  if (column < width && row < height) out[(column - first) * height + row] = in[row * width + column];
}"""


@case()
def partition_round() -> None:
    """PySchedCL's partition_round(dataset, offset) at an offset of 0 %: the whole matrix is transposed."""
    task = {
        "id": 5, "src": "t.cl", "name": "turn", "partition": 10, "workDimension": 2, "globalWorkSize": [64, 64],
        "depends": [],
        "inputBuffers": [{"break": 0, "type": "float", "pos": 1, "size": "4096"}],
        "outputBuffers": [{"break": 1, "type": "float", "pos": 0, "size": "4096"}],
        "varArguments": [
            {"type": "int", "pos": 2, "value": "partition_round(dataset, offset_percent)"},
            {"type": "int", "pos": 3, "value": "64"},
            {"type": "int", "pos": 4, "value": "64"},
        ],
    }  # fmt: skip
    with files({"app.json": json.dumps([task]), "t.cl": TURN}) as folder:
        ended = manycl("run", "app.json", "--devices", "cpu/2", "--save", "out", "--quiet", folder=folder)
        expect(ended.returncode == 0, f"ended with {ended.returncode}: {ended.stderr}")
        saved = [np.load(file) for file in sorted((folder / "out").glob("*.npy"))]
        expect(saved and all(array.all() for array in saved), "nothing was transposed")
