"""No kind of command keeps anything: hundreds of each take no more memory and no more descriptors than a few."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

COUNT, NBYTES = 250, 1 << 16
MOST = COUNT * NBYTES // 2
"""Bytes more: half of what one array each time would be."""
OPEN = COUNT // 10
"""Descriptors more: what is compiled beside the commands has a few at a time."""

MEASURED = """
import gc, json, os, warnings
import numpy as np
warnings.simplefilter("ignore")  # kernels that are not compiled natively

def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def measured(kinds, device_bytes, count, warm=60):
    found = {}
    for name, command in kinds.items():
        for _ in range(warm):
            command()
        before = resident(), device_bytes(), len(os.listdir("/proc/self/fd"))
        for _ in range(count):
            command()
        after = resident(), device_bytes(), len(os.listdir("/proc/self/fd"))
        found[name] = [b - a for a, b in zip(before, after)]
    print(json.dumps(found))
"""

KERNELS = """
kernel void add(global int *x, int n) { x[get_global_id(0)] += n; }
kernel void apart(global int *x, int n) { if (n < 0) printf("never"); x[get_global_id(0)] += n; }
kernel void sum(global const int *x, global int *r) { atomic_add(r, x[get_global_id(0)]); }
kernel void fails(global int *x, constant int *c) { x[get_global_id(0) + (1 << 20)] = c[0]; }
kernel void scan(global int *x, local int *l) {
  int i = get_local_id(0), n = get_local_size(0);
  l[i] = x[get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int d = 1; d < n; d *= 2) {
    int v = i >= d ? l[i - d] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    l[i] += v;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  x[get_global_id(0)] = l[i];
}
"""

IN_PYTHON = """
import sys
import manycl as mc
program, n = mc.Program(sys.argv[1]), 1 << 14
queue = mc.Queue(sys.argv[3])
kept = queue.zeros(n, np.int32)
host = np.ones(n, np.int32)
with queue.prepare() as graph:
    program.add(queue, (n,), (64,), kept, 1)
    other = kept.copy()

def launch(name="add", *more):
    x = queue.array(host)
    getattr(program, name)(queue, (n,), (64,), x, *(more or (1,)))
    return x.get()[0]

def refused():
    x = queue.array(host)
    try:
        program.fails(queue, (n,), (64,), x, x)
        queue.finish()
    except mc.ManyclError as error:
        return str(error)
    raise AssertionError

def part():
    x = queue.array(host)
    program.add(queue, (n // 2,), (64,), x[n // 2 :], 1)
    return x.get()[-1]

def mapped():
    x = queue.zeros(n, np.int32)
    with x.map() as values:
        values[:] = 3
    program.add(queue, (n,), (64,), x, 1)
    queue.finish()

def called():
    x = queue.zeros(n, np.int32)
    queue.call(lambda values: values.fill(2), x)
    return x.get()[0]

def moved():
    x, y, out = queue.array(host), queue.empty(n, np.int32), np.empty_like(host)
    queue.copy(y, x)
    queue.fill(x, 5)
    queue.write(y, host)
    queue.read(x, out).wait()
    queue.finish()

def event():
    x = queue.array(host)
    event = program.add(queue, (n,), (64,), x, 1)
    event.wait()
    queue.finish()
    return event.status

kinds = {
    "launch": launch,
    "launch elsewhere": lambda: launch("apart"),
    "launch that is refused": refused,
    "scan": lambda: launch("scan", mc.LocalMemory(256)),
    "reduction": lambda: (queue.array(host) + 1).sum().get(),
    "copies": moved,
    "part": part,
    "map": mapped,
    "function": called,
    "event": event,
    "prepared graph": lambda: graph.run(),
}
measured(kinds, lambda: sum(m.arrays + m.results + m.kept for m in queue.session.memory().values()), int(sys.argv[2]))
"""

IN_EXEC = """
import sys
import pyopencl as cl
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
program, n, flags = cl.Program(context, sys.argv[1]).build(), 1 << 14, cl.mem_flags
host = np.ones(n, np.int32)
out = np.empty_like(host)
kernels = {name: cl.Kernel(program, name) for name in ("add", "apart", "sum", "scan")}

def buffer():
    return cl.Buffer(context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=host)

def launch(name="add", *more):
    x = buffer()
    kernels[name](queue, (n,), (64,), x, *(more or (np.int32(1),)))
    cl.enqueue_copy(queue, out, x)

def refused():
    x = buffer()
    try:
        kernels["add"](queue, (n,), (63,), x, np.int32(1))
        queue.finish()
    except cl.Error as error:
        return str(error)
    raise AssertionError

def mapped():
    x = buffer()
    values, event = cl.enqueue_map_buffer(queue, x, cl.map_flags.WRITE, 0, (n,), np.int32)
    event.wait()
    values[:] = 3
    values.base.release(queue)
    queue.finish()

def image():
    form = cl.ImageFormat(cl.channel_order.R, cl.channel_type.FLOAT)
    made = cl.Image(context, flags.READ_WRITE, form, shape=(128, 128))
    cl.enqueue_copy(queue, made, host, origin=(0, 0), region=(128, 128))
    cl.enqueue_copy(queue, out, made, origin=(0, 0), region=(128, 128))

def moved():
    x, y = buffer(), cl.Buffer(context, flags.READ_WRITE, host.nbytes)
    cl.enqueue_copy(queue, y, x)
    cl.enqueue_fill_buffer(queue, x, np.int32(5), 0, host.nbytes)
    cl.enqueue_copy(queue, out, y, is_blocking=False).wait()
    queue.finish()

def part():
    x = buffer()
    kernels["add"](queue, (n // 2,), (64,), x.get_sub_region(0, host.nbytes // 2), np.int32(1))
    cl.enqueue_copy(queue, out, x)

kinds = {
    "launch": launch,
    "launch elsewhere": lambda: launch("apart"),
    "launch that is refused": refused,
    "scan": lambda: launch("scan", cl.LocalMemory(256)),
    "reduction": lambda: launch("sum", cl.Buffer(context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=host)),
    "copies": moved,
    "part": part,
    "map": mapped,
    "image": image,
}
memory = queue.runtime.session.memory
measured(kinds, lambda: sum(m.arrays + m.results + m.kept for m in memory().values()), int(sys.argv[2]))
"""


def judge(told: str, kinds: int) -> None:
    found = json.loads(told.splitlines()[-1])
    assert len(found) == kinds
    grown = {name: more for name, more in found.items() if max(more[:2]) > MOST or more[2] > OPEN}
    assert not grown, f"bytes of the process and of arrays, and descriptors, more after {COUNT} of them"


@pytest.mark.parametrize("devices", ["cpu0", "cpu/2"])
def test_in_python(devices: str) -> None:
    command = [sys.executable, "-c", MEASURED + IN_PYTHON, KERNELS, str(COUNT), devices]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    judge(ended.stdout, 11)


@pytest.mark.parametrize("devices", ["cpu0", "cpu/2"])
def test_of_unmodified_programs(devices: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(MEASURED + IN_EXEC, encoding="utf-8")
    exec_ = [sys.executable, "-m", "manycl", "exec", "--devices", devices, "--", sys.executable]
    command = [*exec_, str(tmp_path / "program.py"), KERNELS, str(COUNT)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    judge(ended.stdout, 9)


UNWAITED = """
import sys
import manycl as mc
program, n = mc.Program(sys.argv[1]), 1 << 22
queue = mc.Queue(sys.argv[2])

def launch():
    x = queue.zeros(n, np.int32)
    event = program.add(queue, (n,), (64,), x, 1)
    if sys.argv[3] == "waited":
        event.wait()

measured({"launch": launch}, lambda: 0, 100, warm=20)
"""


@pytest.mark.parametrize("devices", ["cpu0", "cpu/2"])
@pytest.mark.parametrize("how", ["waited", "unwaited"])
def test_arrays_that_are_dropped_go_though_nobody_waits_for_all(devices: str, how: str) -> None:
    """Of a hundred arrays of 16 MiB a few are there at a time."""
    command = [sys.executable, "-c", MEASURED + UNWAITED, KERNELS, devices, how]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert json.loads(ended.stdout)["launch"][0] < 600 << 20
