"""Texts that a preprocessor, a compiler or the arithmetic of integers may take for something else."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import manycl as mc
from found_cases.case import case, expect, files, manycl, natively, same

KERNEL = "\nkernel void k(global int *y) { int a = 0; M(a); y[get_global_id(0)] = a; }"


def _leaves(source: str, want: int) -> None:
    natively(source, "k", np.full(64, want, np.int32), np.zeros(64, np.int32))


@case()
def comments_in_macros() -> None:
    """A comment in a macro's body may span lines, continued or not, and text may stand behind it."""
    for body, want in (
        ("do { x = 1; \\\n   /* old: \\\n   x = 2; */ \\\n  } while (0)", 1),
        ("do { \\\n  x = 1; /* one\n  two */ \\\n } while (0)", 1),
        ("do { \\\n  x = 1; /* one \\\n  two */ } while (0)", 1),
        ("\\\n  /* one \\\n  two */ x = 3", 3),
    ):
        _leaves(f"#define M(x) {body}{KERNEL}", want)


@case()
def statements_behind_comments_in_macros() -> None:
    """What stands behind a comment of several lines belongs to the macro."""
    source = """kernel void k(global int *y) { int a = 1;
#define STEP a += 1; /* a note \\
                        that goes on */ a *= 2;
  STEP
  STEP
  y[get_global_id(0)] = a; }"""
    _leaves(source, 10)


@case()
def line_comments_that_go_on() -> None:
    """A comment whose line ends with a backslash has the next line, too."""
    _leaves("#define M(x) x = 1; // a folder C:\\temp\\\n  x = 2;" + KERNEL, 1)


@case()
def macros_that_are_put_aside() -> None:
    """``#pragma push_macro`` and ``pop_macro``."""
    around = '#pragma push_macro("N")\n#undef N\n#define N 4\n#pragma pop_macro("N")'
    _leaves(f"#define N 3\n{around}\n#define M(x) x = N{KERNEL}", 3)


@case()
def integers_at_their_edges() -> None:
    """Shifts by more bits than there are, overflow, saturation: as OpenCL C and GPUs have them."""
    least, i = -(2**31), np.arange(64)
    saturated = np.where(i < 4, least, np.where(i > 4, 2**31 - 1, 0))
    for text, want in (
        ("(i + 1) << s", (i + 1) << 1),
        ("-1000 >> s", np.full(64, -500)),
        ("rotate(i + 1, s)", (i + 1) << 1),
        ("convert_int_sat(1e20f * (i - 4))", saturated),
        ("(int)mul_hi(2147483647, i)", (i * (2**31 - 1)) >> 32),
        ("(int)abs_diff(-2147483647 - 1, 2147483647)", np.full(64, -1)),
        ("hadd(2147483647, 2147483647) + popcount(i)", np.array([least + n.bit_count() - 1 for n in i.tolist()])),
        ("i ? 10 / i : 0", np.where(i > 0, 10 // np.maximum(i, 1), 0)),
    ):
        source = f"kernel void k(global int *y, int s) {{ int i = get_global_id(0); y[i] = {text}; }}"
        wanted = np.array(want, np.int64).astype(np.int32)
        wanted[0] = wanted[0] if "popcount" not in text else 2**31 - 1
        natively(source, "k", wanted, np.zeros(64, np.int32), np.int32(33))


@case()
def races_run_whole() -> None:
    """Kernels whose work-items read what others write are not divided, and the run says why."""
    source = """kernel void relax(global float *x, int n) { int i = get_global_id(0);
        if (i > 0 && i < n - 1) x[i] = 0.5f * (x[i - 1] + x[i + 1]); }
        kernel void count(global int *c, global const float *x) { if (x[get_global_id(0)] > 0.5f) c[0] = c[0] + 1; }"""
    program, n = mc.Program(source), 1 << 16
    with mc.Queue("cpu/2", policy="balance") as queue:
        x, c = queue.array(np.ones(n, np.float32)), queue.zeros(1, np.int32)
        program.relax(queue, (n,), (64,), x, n)
        program.count(queue, (n,), (64,), c, x)
        same(x.get(), np.ones(n, np.float32), "of ones")
        said = str(queue.trace.summary())
    expect("not divided: relax" in said and "not divided: count" in said, f"nothing is said: {said}")


SCANS = """
import gc, numpy as np, pyopencl as cl
ctx = cl.create_some_context(interactive=False); q = cl.CommandQueue(ctx); size = 1 << 20
p = cl.Program(ctx, "kernel void up(global int *x) { x[get_global_id(0)] += 1; }").build()
a, sizes = np.arange(size, dtype=np.int32), []
for turn in range(120):
    b = cl.Buffer(ctx, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=a)
    p.up(q, (size,), None, b); q.finish(); del b; gc.collect()
    if turn % 30 == 29:
        sizes.append(next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmRSS")) >> 10)
print(*sizes)
"""


@case(seconds=200)
def dropped_buffers_of_programs() -> None:
    """Buffers that an unmodified program drops take no memory any more, but for some 64 MiB that an eager stream may
    keep for the next ones."""
    with files({"program.py": SCANS}) as folder:
        ended = manycl("exec", "--devices", "cpu/2", "--", sys.executable, "program.py", folder=folder)
    found: Any = [int(word) for word in ended.stdout.split()]
    expect(len(found) == 4 and found[3] - found[0] < 80, f"{found} MiB after 30, 60, 90 and 120 buffers of 4 MiB")
