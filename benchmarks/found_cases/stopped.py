"""What must never stop a run that one device could do: the engine, the analysis, models and planners."""

from __future__ import annotations

import random

import numpy as np

import manycl as mc
from found_cases.case import (
    OWN_MEMORIES,
    accepts,
    case,
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
