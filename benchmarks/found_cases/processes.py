"""Lost processes, hangs and leaks: launches out of bounds, interrupts, lost devices, forks, dropped queues."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np

import manycl as mc
from found_cases.case import (
    OWN_MEMORIES,
    Silent,
    Wrong,
    accepts,
    case,
    error_of,
    expect,
    files,
    manycl,
    python,
    same,
    specification,
    told,
)

INC = "kernel void inc(global int *x) { x[get_global_id(0)] += 1; }"
HEAVY = """kernel void heavy(global float *x, int n) {
  int i = get_global_id(0);
  float s = x[i];
  for (int k = 0; k < n; k++) s = s * 0.5f + k;
  x[i] = s;
}"""
SPIN = "kernel void spin(global volatile int *a) { while (a[0] == 0) ; a[1] = 5; }"


def _run(queue: mc.Queue, kernel: Any, *words: Any) -> None:
    """Enqueue and wait: either may refuse."""
    kernel(queue, *words)
    queue.finish()


# --- launches out of bounds -------------------------------------------------------------------------------------------


@case()
def divisions_without_a_value() -> None:
    """By zero, and of the least integer by -1, on each of the processor's devices: nothing ends by SIGFPE."""
    text = "kernel void f(global TYPE *x, global const TYPE *y) { int i = get_global_id(0); x[i] OP y[i]; }"
    for device in ("native", "pocl"):
        with mc.Queue(device) as queue:
            kinds: dict[str, Any] = {"int": np.int32, "uint": np.uint32, "long": np.int64, "char": np.int8}
            for kind, dtype in kinds.items():
                least = int(np.iinfo(dtype).min)
                for op, want in (("/=", 3), ("%=", 1)):
                    x = queue.array(np.array([5, least, 7, 0] * 16, dtype))
                    y = queue.array(np.array([0, -1 if least else 0, 2, 0] * 16, dtype))
                    mc.Program(text, [f"-DTYPE={kind}", f"-DOP={op}"]).f(queue, (64,), None, x, y)
                    same(x.get()[2::4], np.full(16, want, dtype), f"7 {op} 2 of {kind} on {device}")


@case()
def local_memory_that_is_too_little() -> None:
    """Of two local arguments the first is indexed beyond its end, where the second lies."""
    text = """kernel void two(global float *y, local float *t, local float *u) {
      int l = get_local_id(0);
      u[l] = 7; barrier(CLK_LOCAL_MEM_FENCE);
      t[l] = l; barrier(CLK_LOCAL_MEM_FENCE);
      y[get_global_id(0)] = u[l];
    }"""
    with mc.Queue("cpu/2") as queue:
        y, two = queue.zeros(1024, np.float32), mc.Program(text).two
        local = (mc.LocalMemory(4), mc.LocalMemory(256))
        said = error_of(lambda: _run(queue, two, (1024,), (64,), y, *local))
        expect("line 4" in said and "argument 1 (t)" in said and "64 elements" in said, said)
        _run(queue, two, (1024,), (64,), y, mc.LocalMemory(256), mc.LocalMemory(256))
        same(y.get(), np.full(1024, 7, np.float32), "with enough")


@case()
def arrays_of_kernels_are_left() -> None:
    """A local and a private array, beyond their last elements."""
    texts = {
        "t[32] to t[63]": "local float t[32]; t[l] = x[i]; barrier(CLK_LOCAL_MEM_FENCE); x[i] = t[63 - l];",
        "t[4] to t[7]": "float t[4]; for (int k = 0; k < n; k++) t[k] = x[k]; x[i] = t[0] + t[n - 1];",
    }
    head = "kernel void f(global float *x, int n) { int i = get_global_id(0), l = get_local_id(0); "
    with mc.Queue("cpu/2") as queue:
        for words, text in texts.items():
            program, x = mc.Program(head + text + " }"), queue.zeros(1024, np.float32)
            said = error_of(lambda f=program.f, x=x: _run(queue, f, (1024,), (64,), x, 8))
            expect(words in said and "line 1" in said, said)


@case()
def recursion() -> None:
    """Refused where the program is built, with the place."""
    text = "int g(int n) { return n < 2 ? 1 : g(n - 1); }\nkernel void f(global int *x) { x[0] = g(9); }"
    said = error_of(lambda: mc.Program(text))
    expect("recursion" in said and ":1:35" in said, said)


@case()
def out_of_boundsspecification() -> None:
    """2^30 work-items on 64 ints, from the command line."""
    with files(specification(INC, "inc", 1 << 30, 64)) as folder:
        told(manycl("run", "app.json", "--devices", "cpu/2", "--quiet", folder=folder), "inc", "256 bytes", "line 1")


@case()
def out_of_bounds_far() -> None:
    """A subscript with 2^30 added to it."""
    program = mc.Program("kernel void k(global int *a, int far) { a[get_global_id(0) + far] = 1; }")
    with mc.Queue("cpu/2") as queue:
        a = queue.zeros(64, np.int32)
        message = error_of(lambda: _run(queue, program.k, (64,), (16,), a, 1 << 30))
        expect("k" in message and "256 bytes" in message, message)


@case()
def out_of_bounds_by_one() -> None:
    """One element past the end, and the same launch where there is room."""
    program = mc.Program("kernel void k(global int *a) { a[get_global_id(0) + 1] = 1; }")
    with mc.Queue("cpu/2") as queue:
        message = error_of(lambda: _run(queue, program.k, (64,), (16,), queue.zeros(64, np.int32)))
        expect("260" in message or "65" in message, f"the size that would do is not in: {message}")
        a = queue.zeros(65, np.int32)
        program.k(queue, (64,), (16,), a)
        same(a.get(), [0] + [1] * 64, "with room")


@case()
def out_of_bounds_guard() -> None:
    """A guard by an argument that is larger than the buffer."""
    source = "kernel void f(global float *x, int n) { int i = get_global_id(0); if (i < n) x[i] = 7.0f; }"
    program = mc.Program(source)
    with mc.Queue("cpu/2") as queue:
        x = queue.zeros(64, np.float32)
        error_of(lambda: _run(queue, program.f, (4096,), (64,), x, 4096))
        program.f(queue, (4096,), (64,), x, 64)
        same(x.get(), np.full(64, 7, np.float32), "guarded rightly")


# --- kernels that end the process -------------------------------------------------------------------------------------

FAULTS = """
import sys, numpy as np, manycl as mc
queue = mc.Queue(sys.argv[2])
program = mc.Program('''
kernel void far(global const int *at, global float *x) { x[(long)at[get_global_id(0)] * 1000000000000] = 1; }
kernel void own(global const int *at, global float *x) {
  float t[4];
  for (int i = 0; i < at[6]; ++i) t[i] = x[i];
  x[get_global_id(0)] = t[0] + t[at[5]];
}
kernel void shared(global const int *at, global float *x) {
  local float t[32];
  int l = get_local_id(0);
  t[at[l]] = x[get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  x[get_global_id(0)] = t[at[63 - l]];
}
''')
x = queue.zeros(1024, np.float32)
getattr(program, sys.argv[1])(queue, (1024,), (64,), queue.array(np.arange(1024, dtype=np.int32)), x)
x.get()
"""


def _last_words(kernel: str, device: str) -> None:
    ended = python(FAULTS, kernel, device)
    expect(ended.returncode != 0, f"{kernel} on {device} ends well")
    if f"kernel {kernel}" not in ended.stderr or "MANYCL_CHECK=bounds" not in ended.stderr:
        raise Silent(ended.stderr[-500:])


@case(seconds=600)
def faults_in_kernels() -> None:
    """A segmentation fault far away, and what ends behind a private and a local array: in the process, and in one of
    the device's own."""
    for kernel in ("far", "own", "shared"):
        for device in ("cpu0", "cpu/2", "cpu/2@process"):
            _last_words(kernel, device)


@case(seconds=200)
def local_array_that_ends() -> None:
    """Of a local array that is certainly too small: whatever comes, it comes to an end."""
    python("""
import numpy as np, manycl as mc
queue = mc.Queue("cpu/2")
program = mc.Program("kernel void f(global float *x) { local float t[32]; int l = get_local_id(0);"
    " t[l] = x[get_global_id(0)]; barrier(CLK_LOCAL_MEM_FENCE); x[get_global_id(0)] = t[63 - l]; }")
x = queue.zeros(1024, np.float32)
program.f(queue, (1024,), (64,), x)
x.get()
""")


# --- interrupts -------------------------------------------------------------------------------------------------------

LAZY = """
import importlib.abc, importlib.machinery, os, signal, sys
import numpy as np, manycl as mc
class Hook(importlib.abc.MetaPathFinder):
    done = False
    def find_spec(self, name, path, target=None):
        if name != "islpy._isl" or Hook.done:
            return None
        Hook.done = True
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        real = spec.loader.exec_module
        def exec_module(module):
            real(module)
            os.kill(os.getpid(), signal.SIGINT)
        spec.loader.exec_module = exec_module
        return spec
sys.meta_path.insert(0, Hook())
program = mc.Program("kernel void inc(global int *x) { x[get_global_id(0)] += 1; }")
queue = mc.Queue("cpu/2", policy="mkmd")
a = queue.zeros(1 << 16, np.int32)
program.inc(queue, (1 << 16,), (64,), a)
try:
    a.get()
except KeyboardInterrupt:
    pass
a = queue.zeros(1 << 16, np.int32)
program.inc(queue, (1 << 16,), (64,), a)
sys.exit(0 if (a.get() == 1).all() else 3)
"""


@case()
def interrupted_import() -> None:
    """Ctrl-C while islpy is imported; planning again."""
    ended = python(LAZY)
    expect(ended.returncode == 0, f"ended with {ended.returncode}: {ended.stderr[-300:]}")


@case()
def endless_kernel() -> None:
    """An endless kernel: the first Ctrl-C says what is waited for, the second leaves."""
    with files(specification(SPIN, "spin", 1, 1)) as folder:
        command = [sys.executable, "-m", "manycl", "run", "app.json", "--devices", "cpu/2", "--quiet"]
        running = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
        try:
            time.sleep(8)
            running.send_signal(signal.SIGINT)
            time.sleep(2)
            running.send_signal(signal.SIGINT)
            try:
                _, said = running.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                raise Wrong("it still runs 20 s after the second Ctrl-C") from None
        finally:
            running.kill()
    expect("spin" in said, f"the kernel is not named: {said[-300:]}")


@case()
def long_finite_kernels() -> None:
    """Forty long kernels are enqueued: Ctrl-C comes back when those that were given ahead have run, not all."""
    program, events = mc.Program(HEAVY), list[mc.Event]()
    with mc.Queue("cpu/2#0") as queue:
        a = queue.zeros(256, np.float32)
        for n in (1000, 200_000):
            start = time.perf_counter()
            program.heavy(queue, (256,), (16,), a, n)
            queue.finish()
        half = int(200_000 * 0.5 / (time.perf_counter() - start))
        threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            for _ in range(40):
                events.append(program.heavy(queue, (256,), (16,), a, half))
            queue.finish()
        except KeyboardInterrupt:
            ran = sum(event.status == mc.CommandStatus.COMPLETE for event in events)
            expect(ran < 20, f"{ran} kernels of 40 had run, of which 4 take 2 s")
        else:
            raise Wrong("Ctrl-C was not heard")
        fresh = queue.zeros(64, np.int32)
        other = mc.Program(INC)
        other.inc(queue, (64,), (16,), fresh)
        same(fresh.get(), np.ones(64, np.int32), "afterwards")


# --- devices, processes, threads --------------------------------------------------------------------------------------


@case(OWN_MEMORIES)
def lost_device() -> None:
    """From a moment on every command of one device fails; later runs use the other one."""
    import pyopencl as cl

    from manycl.drivers.opencl import copies, driver

    dead, size = [False], 1 << 16
    program = mc.Program(INC)
    with mc.Queue("opencl/2", policy="eager") as queue:
        other: Any = queue.session.backend.drivers[1]
        second = other.context

        def failing(call: Any) -> Any:
            def called(*words: Any, **more: Any) -> Any:
                if dead[0] and words[0].context == second:
                    raise cl.RuntimeError("clEnqueue failed: DEVICE_NOT_AVAILABLE")
                return call(*words, **more)

            return called

        driver._enqueue = failing(driver._enqueue)
        copies.read_buffer, copies.write_buffer = failing(copies.read_buffer), failing(copies.write_buffer)
        arrays = [queue.zeros(size, np.int32) for _ in range(4)]

        def go() -> None:
            for a in arrays:
                for _ in range(3):
                    program.inc(queue, (size,), (64,), a)
            queue.finish()

        go()
        dead[0] = True
        for _ in range(3):
            with contextlib.suppress(mc.ManyclError):
                go()
        for a in arrays:
            a.set(np.zeros(size, np.int32))
        for _ in range(5):
            go()
        for a in arrays:
            same(a.get(), np.full(size, 15, np.int32), "on the device that is left")


def _in_child(_: int) -> str:
    try:
        with mc.Queue("cpu/2") as queue:
            a = queue.zeros(64, np.int32)
            mc.Program(INC).inc(queue, (64,), (16,), a)
            return str(int(a.get().sum()))
    except mc.ManyclError as error:
        return str(error)


@case(seconds=60)
def forked_pool() -> None:
    """A pool of forked processes after the parent used manycl: a clear error, or a result, never a hang."""
    expect(_in_child(0) == "64", "the parent")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for said in pool.map(_in_child, range(2)):
            expect(said == "64" or "spawn" in said, said)


@case()
def dropped_queues() -> None:
    """Queues that are dropped without closing give their threads back."""
    program = mc.Program(INC)

    def once() -> None:
        queue = mc.Queue("cpu/2")
        a = queue.zeros(64, np.int32)
        program.inc(queue, (64,), (16,), a)
        a.get()

    once()
    before = threading.active_count()
    for _ in range(40):
        once()
    time.sleep(1)
    more = threading.active_count() - before
    expect(more <= 4, f"{more} threads more after 40 queues")


@case()
def shared_session_closed() -> None:
    """Leaving a queue of a shared session leaves the session open."""
    program = mc.Program(INC)
    with mc.Queue("cpu/2") as first:
        a = first.zeros(64, np.int32)
        with mc.Queue(session=first.session) as second:
            program.inc(second, (64,), (16,), a)
            second.finish()
        program.inc(first, (64,), (16,), a)
        same(a.get(), np.full(64, 2), "after the second queue was left")


@case()
def kernels_elsewhere_keep_their_arrays() -> None:
    """A kernel that is not compiled natively, launched again and again on new arrays of 16 MiB: its error was kept, and
    with it the arrays of each launch."""
    program = mc.Program(
        'kernel void k(global int *a, int n) { if (n < 0) printf("never"); a[get_global_id(0)] += n; }'
    )
    with mc.Queue("cpu0") as queue:
        for _ in range(12):
            a = queue.zeros(1 << 22, np.int32)
            program.k(queue, (1 << 22,), (64,), a, 1)
            a.get()
            del a
        held = sum(use.arrays + use.kept for use in queue.session.memory().values())
    expect(held < 100 << 20, f"{held >> 20} MiB of arrays are held, where 16 were used at a time")


@case()
def dropped_arrays_nobody_waits_for() -> None:
    """A loop that launches on new arrays and waits for nothing: they were kept until its end."""
    program = mc.Program(INC)
    with mc.Queue("cpu0") as queue:
        for _ in range(60):
            program.inc(queue, (1 << 22,), (64,), queue.zeros(1 << 22, np.int32))
        held = sum(use.arrays + use.kept for use in queue.session.memory().values())
    expect(held < 600 << 20, f"{held >> 20} MiB of arrays are held of 960 that were used")


@case()
def cache_folder_of_others() -> None:
    """Answers that somebody else could have written are not read; nothing fails."""
    with files({"sources/nothing": ""}) as folder:
        (folder / "sources").chmod(0o777)
        os.environ["MANYCL_CACHE"] = str(folder)
        accepts("kernel void planted(global int *a) { a[0] = 1; }")
        expect(os.listdir(folder / "sources") == ["nothing"], "something was kept where others may write")


@case()
def killed_helper() -> None:
    """The analysis' process is killed while it reads: the source is read by the next one."""
    from manycl.analysis import service

    mc.Program(INC)
    kernel = (
        "kernel void k%d(global int *a, global float *b, int n) { for (int i = 0; i < n; ++i) a[i] += (int)b[i * %d]; }"
    )
    large = "\n".join(kernel % (i, i) for i in range(300))
    worker = service._worker().process.pid
    threading.Timer(0.05, os.kill, (worker, signal.SIGKILL)).start()
    accepts(large)


@case(seconds=200)
def killed_device() -> None:
    """The process of a device is killed while it computes: the run goes on without it, or says that it cannot."""
    program, want = mc.Program(HEAVY + INC), np.full(1 << 16, 6, np.int32)
    with mc.Queue("cpu/2@process") as queue:
        busy, counted = queue.zeros(256, np.float32), queue.zeros(want.size, np.int32)
        for turn in range(6):
            program.heavy(queue, (256,), (16,), busy, 200_000)
            program.inc(queue, (want.size,), (64,), counted)
            if turn == 3:
                victim: Any = queue.session.backend.drivers[0]
                os.kill(victim.pid, signal.SIGKILL)
        try:
            same(counted.get(), want, "without the device")
        except mc.ManyclError as error:
            expect("cpu" in str(error), f"the device is not named: {error}")
        left = queue.zeros(64, np.int32)
        program.inc(queue, (64,), None, left)
        same(left.get(), np.ones(64, np.int32), "afterwards")
