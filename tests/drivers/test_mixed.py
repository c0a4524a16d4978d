"""Devices of different kinds of drivers in one run: an OpenCL device beside host functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from random import Random
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.errors import ManyclError, ResultError, RunError, SourceError
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.run.executor.command_buffer import recorded
from tests.drivers.host_functions import HostDriver, HostFunctions, NDRange

N, GROUP = 1024, 64
PROGRAM = mc.Program("""
kernel void inc(global uint *x, uint m) { x[get_global_id(0)] = x[get_global_id(0)] * 1664525u + m; }
kernel void mixup(global const uint *a, global const uint *b, global uint *c, uint m) {
    int i = get_global_id(0);
    c[i] = a[i] * m + (b[i] >> 3);
}
kernel void sten(global const uint *a, global uint *c, int n) {
    int i = get_global_id(0);
    if (i > 0 && i < n - 1) c[i] = a[i - 1] + a[i + 1];
}
""")
FUNCTIONS = HostFunctions()


def words(data: Any) -> Any:
    return data.view(np.uint32)


def number(value: bytes) -> Any:
    return np.frombuffer(value, np.uint32)[0]


@FUNCTIONS.kernel
def inc(over: NDRange, x: Any, m: bytes) -> None:
    mine = words(x)[over.items()]
    mine *= np.uint32(1664525)
    mine += number(m)


@FUNCTIONS.kernel
def mixup(over: NDRange, a: Any, b: Any, c: Any, m: bytes) -> None:
    mine = over.items()
    words(c)[mine] = words(a)[mine] * number(m) + (words(b)[mine] >> np.uint32(3))


@FUNCTIONS.kernel
def sten(over: NDRange, a: Any, c: Any, n: bytes) -> None:
    mine = over.items()
    low, high = max(1, mine.start), min(int(number(n)) - 1, mine.stop)
    words(c)[low:high] = words(a)[low - 1 : high - 1] + words(a)[low + 1 : high + 1]


@pytest.fixture(params=["own", "shared", "mixed"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Memories: each its own; both the host's; OpenCL's the host's, the other its own."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0" if request.param == "own" else "1")
    FUNCTIONS.add(monkeypatch)
    return "cpu0/2#0," + ("host functions cpu" if request.param == "shared" else "accelerator")


@pytest.fixture
def queue(where: str) -> Iterator[mc.Queue]:
    with mc.Queue(where, policy="eager") as made:
        yield made


def host_driver(queue: mc.Queue) -> HostDriver:
    driver = queue.session.backend.drivers[1]
    assert isinstance(driver, HostDriver)
    return driver


def on(queue: mc.Queue, *devices: int) -> Plan:
    """Each node on one."""
    return Plan(tuple(Assignment(n, d, 0, 0.0, 0.0) for n, d in enumerate(devices)), "on", queue.devices, 0.0)


class World:
    """Random steps on arrays, and what they do by NumPy."""

    def __init__(self, queue: mc.Queue, seed: int) -> None:
        self.queue, self.r = queue, Random(seed)
        self.values = [np.arange(N, dtype=np.uint32) * np.uint32(k + 3) for k in range(4)]
        self.arrays = [queue.array(value) for value in self.values]
        self.steps = [
            (self.r.choice(["inc", "mixup", "sten", "host"]), self.r.sample(range(4), 3), self.r.randrange(1, 1 << 32))
            for _ in range(10)
        ]

    def enqueue(self) -> None:
        for kind, (a, b, c), m in self.steps:
            x, y, z = (self.arrays[k] for k in (a, b, c))
            if kind == "inc":
                PROGRAM.inc(self.queue, (N,), (GROUP,), x, m)
            elif kind == "mixup":
                PROGRAM.mixup(self.queue, (N,), (GROUP,), x, y, z, m)
            elif kind == "sten":
                PROGRAM.sten(self.queue, (N,), (GROUP,), x, z, N)
            else:
                self.queue.call(lambda p, q: np.copyto(q, p[::-1]), x, z, writes=[z])

    def reckon(self) -> None:
        for kind, (a, b, c), m in self.steps:
            v, by = self.values, np.uint32(m)
            if kind == "inc":
                v[a] = v[a] * np.uint32(1664525) + by
            elif kind == "mixup":
                v[c] = v[a] * by + (v[b] >> np.uint32(3))
            elif kind == "sten":
                v[c] = np.concatenate([v[c][:1], v[a][:-2] + v[a][2:], v[c][-1:]])
            else:
                v[c] = v[a][::-1].copy()

    def check(self) -> None:
        for array, value in zip(self.arrays, self.values, strict=True):
            assert (array.get() == value).all()

    def divided(self) -> Plan:
        """Every launch in a range on each device, of other sizes each time."""
        out: list[Assignment] = []
        for n, (kind, _, _) in enumerate(self.steps):
            if kind == "host":
                out.append(Assignment(n, ON_HOST, 0, 0.0, 0.0))
                continue
            cut = self.r.randrange(1, N // GROUP)
            for device, first, count in ((0, 0, cut), (1, cut, N // GROUP - cut)):
                out.append(Assignment(n, device, 0, 0.0, 0.0, 0, first, count))
        return Plan(tuple(out), "divided", self.queue.devices, 0.0)


@pytest.mark.parametrize("policy", ["eager", "heft", "clustering", "auto", "balance", "mkmd", "divided"])
def test_results_are_right_whoever_makes_them(queue: mc.Queue, policy: str) -> None:
    for seed in range(4):
        world = World(queue, seed)
        queue.policy = world.divided() if policy == "divided" else policy
        for _ in range(2):
            world.enqueue()
            queue.finish()
            world.reckon()
        world.check()


def test_both_really_work_in_one_run_and_are_timed(queue: mc.Queue) -> None:
    world = World(queue, 1)
    queue.policy = world.divided()
    before = len(host_driver(queue).ran)
    world.enqueue()
    queue.finish()
    launches = sum(kind != "host" for kind, _, _ in world.steps)
    kernels = [k for k in queue.trace.kernels() if not k.role or k.role == "range"]
    assert {k.device for k in kernels} == set(queue.devices)
    assert len(host_driver(queue).ran) - before == launches
    assert all(0 <= k.start <= k.end <= queue.trace.makespan for k in kernels)
    world.reckon()
    world.check()
    if queue.session.machine.memories == 3:
        moved = {(t.source, t.target) for t in queue.trace.transfers()}
        assert {("host", queue.devices[1]), (queue.devices[0], "host")} <= moved
        assert host_driver(queue).copied


@pytest.mark.parametrize("launches_only", [False, True])
def test_prepared_graphs(queue: mc.Queue, launches_only: bool) -> None:
    world = World(queue, 5)
    if launches_only:
        world.steps = [("inc", [k % 2, 2, 3], 7 + k) for k in range(8)]
        queue.policy = on(queue, *[0, 1] * 4)
    with queue.prepare() as prepared:
        world.enqueue()
    for _ in range(8):
        prepared.run()
        world.reckon()
    world.check()
    if launches_only:
        prepared.run()
        shortest = [recorded(queue.session.backend, kept.command_graph) for kept in prepared._prepared._commands]
        assert any(shortest), "it is not played the shortest way"


def test_what_a_function_raises_is_told(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def inc(over: NDRange, x: Any, m: bytes) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setitem(FUNCTIONS.functions, "inc", inc)
    x, y = queue.zeros(N, np.uint32, name="ex"), queue.zeros(N, np.uint32)
    PROGRAM.inc(queue, (N,), (GROUP,), x, 1)
    PROGRAM.inc(queue, (N,), (GROUP,), y, 1)
    queue.policy = on(queue, 1, 0)
    with pytest.raises(RunError, match=r"(?s)kernel inc .*failed on .*ZeroDivisionError: by nothing"):
        queue.finish()
    with pytest.raises(ResultError, match="the contents of ex are unknown"):
        x.get()
    x.set(np.zeros(N, np.uint32))
    PROGRAM.inc(queue, (N,), (GROUP,), x, 1)
    queue.policy = on(queue, 0)
    assert (x.get() == 1).all()


def test_a_program_without_a_function_does_not_build(queue: mc.Queue) -> None:
    x = queue.zeros(N, np.uint32)
    one = mc.Program("kernel void alone(global uint *x) { x[get_global_id(0)] += 1; }")
    one.alone(queue, (N,), (GROUP,), x)
    with pytest.raises(SourceError, match=r"does not build on .*\n.*there is no function for alone"):
        queue.finish()


def test_a_device_of_functions_that_is_lost(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its driver does nothing right any more: it is left out, and the other one goes on."""
    driver, world = host_driver(queue), World(queue, 3)
    copy = driver.copy

    def dead(*given: Any) -> Any:
        copied = copy(*given)
        copied[-1].fault = "it is dead"
        return copied

    def broken(*given: Any) -> Any:
        raise RuntimeError("it is dead")

    monkeypatch.setattr(driver, "copy", dead)
    for name in list(FUNCTIONS.functions):
        monkeypatch.setitem(FUNCTIONS.functions, name, broken)
    x = queue.zeros(N, np.uint32)
    PROGRAM.inc(queue, (N,), (GROUP,), x, 1)
    queue.policy, name = on(queue, 1), queue.devices[1]
    # what was to be changed in the only memory is gone; elsewhere the version before is still there
    ends = pytest.raises(ManyclError) if queue.session.machine.memories == 1 else nullcontext()
    with pytest.warns(RuntimeWarning, match=rf"{name} does not work any more \(it is dead\)"), ends:
        queue.finish()
    assert queue.devices == ("cpu0.0",)
    if queue.session.machine.memories > 1:
        assert (x.get() == 1).all()
    for array, value in zip(world.arrays, world.values, strict=True):
        array.set(value)
    queue.policy = "eager"
    world.enqueue()
    queue.finish()
    world.reckon()
    world.check()


def test_kinds_are_chosen_by_name(where: str) -> None:
    with mc.Queue("opencl") as queue:
        assert not [d for d in queue.session.backend.drivers if isinstance(d, HostDriver)]
    with mc.Queue("host functions") as queue:
        assert [type(d) for d in queue.session.backend.drivers] == [HostDriver] * 2
    with mc.Queue("accelerator/1+3") as queue:
        assert [d.compute_units for d in queue.session.machine.devices] == [1, 3]
        assert [d.name for d in queue.session.machine.devices] == ["accelerator0.0", "accelerator0.1"]


def test_parts_of_arrays(queue: mc.Queue) -> None:
    """Each device is given parts as it can take them, wherever they begin."""
    want = [np.arange(N, dtype=np.uint32) * np.uint32(k + 3) for k in range(3)]
    a, b, c = (queue.array(value) for value in want)
    for turn in range(2):
        for device in (0, 1):
            first = 128 * device + 3 * turn
            x, y, z = slice(first, first + 64), slice(511, 575), slice(640 + first, 704 + first)
            PROGRAM.inc(queue, (64,), (GROUP,), a[x], 7)
            PROGRAM.mixup(queue, (64,), (GROUP,), a[x], b[y], c[z], 5)
            want[0][x] = want[0][x] * np.uint32(1664525) + np.uint32(7)
            want[2][z] = want[0][x] * np.uint32(5) + (want[1][y] >> np.uint32(3))
        queue.policy = on(queue, 0, 0, 1, 1)
        queue.finish()
    for array, value in zip((a, b, c), want, strict=True):
        assert (array.get() == value).all()
