"""What must never stop a run that one device could do: the engine, the analysis, models and planners."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import numpy as np

import manycl as mc
from found_cases.case import (
    OWN_MEMORIES,
    accepts,
    case,
    error_of,
    expect,
    files,
    manycl,
    same,
)

HEAVY = """kernel void heavy(global float *x, int n) {
  int i = get_global_id(0);
  float s = x[i];
  for (int k = 0; k < n; k++) s = s * 0.5f + k;
  x[i] = s;
}"""


MANY = """
kernel void three(global const int *a, global const int *b, global int *c) {
  int i = get_global_id(0);
  c[i] = a[i] + 3 * b[i];
}
kernel void four(global const int *a, global const int *b, global const int *c, global int *d) {
  int i = get_global_id(0);
  d[i] = a[i] + b[i] - c[i];
}
"""


@case(OWN_MEMORIES | {"MANYCL_DEVICE_MEMORY": "48000", "MANYCL_THREADS": "4"}, seconds=200)
def engine_waits() -> None:
    """Dynamic policies, little memory, launches that do not all fit: runs end, right or with a reason."""
    program = mc.Program(MANY)
    with mc.Queue("cpu/3") as first:
        right = sum(_runs(program, first, seed) for seed in range(80))
    expect(right >= 20, f"only {right} of 80 graphs ran")


def _runs(program: mc.Program, first: mc.Queue, seed: int) -> bool:
    """A random graph of launches on three or four of up to eight arrays; whether all of them fit."""
    chance = random.Random(seed)
    size = chance.choice([1504, 2400, 3008, 3600])  # of the last, four do not fit into a device
    count = chance.randint(3, 8)
    queue = mc.Queue(session=first.session, policy=("eager", "heft", "clustering")[seed % 3])
    want = [np.arange(size, dtype=np.int32) * (i + 1) % 97 for i in range(count)]
    arrays = [queue.array(w.copy()) for w in want]
    steps = [chance.sample(range(count), chance.choice([3, min(4, count)])) for _ in range(chance.randint(2, 14))]
    with queue.prepare() as prepared:
        for step in steps:
            kernel = program.three if len(step) == 3 else program.four
            kernel(queue, (size,), (16,), *(arrays[i] for i in step))
    try:
        for _ in range(3):
            prepared.run()
            for a, b, c, *d in steps:
                if d:
                    want[d[0]][:] = want[a] + want[b] - want[c]
                else:
                    want[c][:] = want[a] + 3 * want[b]
    except mc.ManyclError as error:
        expect("48,000" in str(error) or "fit" in str(error), f"another reason: {error}")
        return False
    for array, contents in zip(arrays, want, strict=True):
        same(array.get(), contents, f"seed {seed}, {queue.policy}")
    return True


LEHMER = """kernel void f(global const int *in, global int *out) {
  int x = in[get_global_id(0)];
  for (int j = 0; j < 12; j++) {
    int k = x / 127773;
    x = 16807 * (x - k * 127773) - 2836 * k;
    if (x < 0) x += 2147483647;
  }
  out[get_global_id(0)] = x;
}"""


@case()
def cost_too_large() -> None:
    """Park and Miller's generator, whose cost is an expression without end, under every policy."""
    program = mc.Program(LEHMER)
    first = np.arange(1, 4097, dtype=np.int32)
    want = first.astype(np.int64)
    for _ in range(12):
        want = want * 16807 % 2147483647
    for policy in ("auto", "in_order", "balance", "heft", "adaptive", "mkmd", "eager"):
        with mc.Queue("cpu/2", policy=policy) as queue:
            x, y = queue.array(first), queue.zeros(4096, np.int32)
            program.f(queue, (4096,), (64,), x, y)
            same(y.get(), want, policy)
    with files({"k.cl": LEHMER}) as folder:
        manycl("analyze", "k.cl", "f", "--global", "64", "--local", "8", folder=folder)


@case({"POCL_MAX_PTHREAD_COUNT": "4"})
def few_groups() -> None:
    """``adaptive`` where a launch has fewer work-groups than a device has cores."""
    program = mc.Program(HEAVY)
    for groups in (1, 2, 3, 4):
        with mc.Queue("cpu/2", policy="adaptive") as queue:
            x = queue.zeros(16 * groups, np.float32)
            for _ in range(8):
                program.heavy(queue, (16 * groups,), (16,), x, 300_000)
                queue.finish()


@case()
def valid_sources() -> None:
    """What drivers build."""
    accepts(
        "#define N 4\nkernel void f(global float *y) {\n#pragma unroll N\n  for (int k = 0; k < N; k++) y[k] = k;\n}"
    )
    accepts('# 1 "kernel.cl"\nkernel void f(global float *y, int n) { int i = get_global_id(0); if (i < n) y[i] = 1; }')
    accepts("kernel void f(global uint2 *in, global uint *out) { global uint *p = in; out[get_global_id(0)] = p[0]; }")
    accepts("kernel void f(global float *a, int n) { int i = get_global_id(0); if (0 < i < n) a[i] = 1; }")
    accepts("kernel void f(global int *a, int n) { a[get_global_id(0)] = SQ(n); }", ["-DSQ(x)=((x)*(x))"])
    accepts("kernel void f(global int *x, int a, int b, int c) { if (a > b >= c) x[0] = 1; }")
    accepts("kernel void f(global int *x) { int p = x; x[0] = p & 0; }")


@case()
def function_like_option() -> None:
    """A function-like macro in build options is used, not ignored."""
    program = mc.Program("kernel void f(global int *a, int n) { a[get_global_id(0)] = SQ(n); }", ["-DSQ(x)=((x)*(x))"])
    with mc.Queue("cpu/2") as queue:
        a = queue.zeros(64, np.int32)
        program.f(queue, (64,), (16,), a, 7)
        same(a.get(), np.full(64, 49), "squares")


COUNTS = """kernel void heavy(global int *y, global const int *x, int m) {
  int s = x[get_global_id(0)];
  for (int k = 0; k < 3000; k++) s = s * 1664525 + 1013904223;
  atomic_add(&y[((uint)s) % (uint)m], 1);
}"""


@case(OWN_MEMORIES | {"MANYCL_DEVICE_MEMORY": "300000"})
def memory_of_merging() -> None:
    """Putting ranges' results together needs more memory than there is: the launch runs whole."""
    program, size = mc.Program(COUNTS), 32_000
    for policy in ("balance", "mkmd", "adaptive", "auto"):
        with mc.Queue("cpu/2", policy=policy) as queue:
            x, y = queue.array(np.arange(size, dtype=np.int32)), queue.zeros(size, np.int32)
            for _ in range(6):
                program.heavy(queue, (size,), (64,), y, x, size)
                queue.finish()
            expect(int(y.get().sum()) == 6 * size, policy)


@case()
def launches_without_local_size() -> None:
    """Kernels without a local size are divided where they cannot tell, whatever their size, with includes too."""
    body = "kernel void heavy(global float *x, int n) { int i = get_global_id(0); if (i < n) { float s = x[i]; "
    body += "for (int k = 0; k < 3000; k++) s = s * 0.999f + 0.001f * k; x[i] = s; } }"
    with files({"empty.h": ""}) as folder:
        for source, size in ((body, 65536), (body, 65537), (body, 60_000), ('#include "empty.h"\n' + body, 65536)):
            program = mc.Program(source, f"-I {folder}")
            with mc.Queue("cpu/2", policy="balance") as queue:
                x = queue.zeros(size, np.float32)
                for _ in range(3):
                    program.heavy(queue, (size,), None, x, np.int32(size))
                    queue.finish()
                ranges = [e for e in queue.trace.kernels() if e.role == "range"]
                expect(len(ranges) > 1, f"{size} work-items are not divided")


ONES = """
kernel void one(global float *y) { y[get_global_id(0)] = 1; }
kernel void inc(global float *y) { y[get_global_id(0)] += 1; }
"""


@case()
def refused_launches_keep_contents() -> None:
    """A launch that no device can run is refused by the call; its array has what it had."""
    program, size = mc.Program(ONES), 1 << 14
    for devices in ("cpu", "cpu/2"):
        with mc.Queue(devices) as queue:
            y = queue.array(np.arange(size, dtype=np.float32))
            program.inc(queue, (size,), None, y)
            said = error_of(lambda q=queue, y=y: program.inc(q, (size,), (size,), y))
            expect("has at most" in said, said)
            same(y.get(), np.arange(size) + 1, devices)


@case()
def whatever_overwrites_heals() -> None:
    """An array that a failure has left unknown is known again when something has overwritten it."""
    program, ones = mc.Program(ONES), np.ones(64, np.float32)

    def boom(_: object) -> None:
        raise ValueError("boom")

    heals: dict[str, Callable[[mc.Queue, mc.Array], object]] = {
        "kernel": lambda q, y: program.one(q, (64,), None, y),
        "fill": lambda q, y: q.fill(y, 1.0),
        "write": lambda q, y: q.write(y, ones),
        "set": lambda q, y: y.set(ones),
        "copy": lambda q, y: q.copy(y, q.array(ones)),
        "scalar": lambda q, y: y.__setitem__(slice(None), 1.0),
        "contents": lambda q, y: y.__setitem__(slice(None), ones),
        "host": lambda q, y: q.call(lambda place: place.fill(1), y, overwrites=[y]),
    }
    with mc.Queue("cpu/2") as queue:
        for name, heal in heals.items():
            y = queue.zeros(64, np.float32)
            queue.call(boom, y)
            error_of(y.get)
            heal(queue, y)
            same(y.get(), ones, name)


@case()
def prepared_graphs_run_after_failures() -> None:
    """A prepared graph that begins with a fill runs again when one of its runs was stopped."""
    program, fails = mc.Program(ONES), [True]
    with mc.Queue("cpu/2") as queue:
        y = queue.zeros(64, np.float32)

        def host(_: object) -> None:
            if fails:
                fails.clear()
                raise ValueError("once")

        with queue.prepare() as graph:
            queue.fill(y, 1.0)
            program.inc(queue, (64,), None, y)
            queue.call(host, y)
        error_of(graph.run)
        graph.run()
        same(y.get(), np.full(64, 2), "the run after it")


PROGRAM = """
import numpy as np, pyopencl as cl
ctx = cl.create_some_context(interactive=False); q = cl.CommandQueue(ctx); F = cl.mem_flags.READ_WRITE
p = cl.Program(ctx, "kernel void f(global int *x, local int *t) { t[0] = 1; x[get_global_id(0)] = t[0]; }").build()
b = cl.Buffer(ctx, F, 4096)
for call in (lambda: p.f(q, (1 << 20,), (1 << 20,), b, cl.LocalMemory(64)), lambda: cl.Buffer(ctx, F, 1 << 45),
             lambda: p.f(q, (64,), (16,), b, cl.LocalMemory(1 << 40)), lambda: b.get_sub_region(0, 8192),
             lambda: cl.Program(ctx, "kernel void g() {}").build(options=["--bogus"])):
    try: call(); print("accepted")
    except cl.Error as e: print(cl.status_code.to_string(e.code), e.routine)
"""


@case()
def programs_are_refused_in_opencls_words() -> None:
    """What cannot be is refused by the call, with OpenCL's own status and the routine's name."""
    with files({"program.py": PROGRAM}) as folder:
        ended = manycl("exec", "--devices", "cpu/2", "--", sys.executable, "program.py", folder=folder)
    expect(
        ended.stdout.splitlines()
        == [
            "INVALID_WORK_GROUP_SIZE clEnqueueNDRangeKernel",
            "INVALID_BUFFER_SIZE create_buffer",
            "OUT_OF_RESOURCES clEnqueueNDRangeKernel",
            "INVALID_VALUE clCreateSubBuffer",
            "INVALID_BUILD_OPTIONS clBuildProgram",
        ],
        ended.stdout,
    )
