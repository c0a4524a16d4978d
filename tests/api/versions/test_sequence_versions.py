"""Versions of a kernel that are several kernels with temporary arrays: they leave what the kernel leaves, on all
devices, in loops and prepared graphs; models learn them as a whole; what touches something else is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.drivers.driver import DriverError
from manycl.errors import LaunchError, VersionError
from manycl.graph.graph import Launch
from manycl.graph.versions.sequence import is_sequence
from manycl.model.history.history import identity, kernel_key

N = 128
SOURCE = """
kernel void centred(global const int *x, global int *y, int n) {
  int i = get_global_id(0), s = 0;
  for (int k = 0; k < n; k++) s += x[k];
  y[i] = n * x[i] - s;
}
kernel void total(global const int *x, global int *t, int n) {
  int s = 0;
  for (int k = 0; k < n; k++) s += x[k];
  t[0] = s;
}
kernel void minus(global const int *x, global const int *t, global int *y, int n) {
  int i = get_global_id(0);
  y[i] = n * x[i] - t[0];
}
kernel void spoil(global int *x) { x[get_global_id(0)] = 1; }
"""
PARTS = mc.Program(SOURCE)


def two(queue: Any, size: Any, local: Any, x: Any, y: Any, n: Any) -> None:
    t = queue.empty(1, np.int32)
    PARTS.total(queue, (1,), (1,), x, t, n)
    PARTS.minus(queue, size, local, x, t, y, n)


def kernel_with(function: Callable[..., None], kinds: Any = "cpu") -> Any:
    kernel = mc.Program(SOURCE).centred
    kernel.add_sequence(function, kinds)
    return kernel


def expected(x: Any) -> Any:
    return len(x) * x - x.sum()


@pytest.fixture(scope="module", params=["native/2", "native/2 own", "opencl/2", "native"])
def queue(request: pytest.FixtureRequest) -> Iterator[mc.Queue]:
    devices, _, own = request.param.partition(" ")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0" if own else "1")
        with mc.Queue(devices) as queue:
            yield queue


@pytest.fixture(autouse=True)
def nothing_is_known(queue: mc.Queue) -> None:
    """Before something is measured, devices run what is meant for them."""
    queue.finish()
    queue.session.models.forget()


def names(queue: mc.Queue) -> list[str]:
    return [event.kernel for event in queue.trace.kernels()]


def test_it_runs_in_place_of_the_kernel(queue: mc.Queue) -> None:
    kernel, data = kernel_with(two), np.arange(N, dtype=np.int32)
    for turn in range(6):  # a loop, on arrays of its own each time
        x, y = queue.array(data + turn), queue.empty(N, np.int32)
        kernel(queue, (N,), (16,), x, y, N)
        assert (y.get() == expected(data + turn)).all()
        assert names(queue) == ["total", "minus"]
        assert [e.node for e in queue.trace.kernels()] == [0, 0]


def test_prepared_graphs_and_views(queue: mc.Queue) -> None:
    kernel, data = kernel_with(two), np.arange(3 * N, dtype=np.int32) % 37
    x, y, z = queue.array(data), queue.zeros(2 * N, np.int32), queue.zeros(N, np.int32)
    with queue.prepare() as prepared:
        kernel(queue, (N,), (16,), x[3 : N + 3], y[N:], N)
        kernel(queue, (N,), (16,), y[N:], z, N)
        kernel(queue, (N,), (16,), x[2 * N :], y[:N], N)
    for _ in range(7):
        prepared.run()
    first = expected(data[3 : N + 3])
    assert (y.get() == np.concatenate([expected(data[2 * N :]), first])).all()
    assert (z.get() == expected(first)).all()
    assert sorted(names(queue)) == ["minus"] * 3 + ["total"] * 3


def test_sequences_of_other_sizes_take_turns(queue: mc.Queue) -> None:
    def wide(queue: Any, size: Any, local: Any, x: Any, y: Any, n: Any) -> None:
        t = queue.empty(64, np.int32)
        PARTS.total(queue, (1,), (1,), x, t[5:6], n)
        PARTS.minus(queue, size, local, x, t[5:], y, n)

    one, other, data = kernel_with(two), kernel_with(wide), np.arange(N, dtype=np.int32)
    x = queue.array(data)
    results = [queue.empty(N, np.int32) for _ in range(6)]
    for i, y in enumerate(results):
        (one, other)[i % 2](queue, (N,), (16,), x, y, N)
    assert all((y.get() == expected(data)).all() for y in results)


def test_models_learn_it_as_a_whole_and_the_faster_one_is_chosen(queue: mc.Queue) -> None:
    kernel, data = kernel_with(two), np.arange(N, dtype=np.int32)
    x, y, session = queue.array(data), queue.empty(N, np.int32), queue.session
    for _ in range(4):
        queue.check_versions(kernel, (N,), (16,), x, y, N)
    session.devices.learn()
    with queue.prepare() as prepared:
        kernel(queue, (N,), (16,), x, y, N)
    (task,) = prepared.graph.nodes
    assert isinstance(task, Launch)
    assert [is_sequence(v) for v in task.versions] == [False, True]
    problem = session.problem(prepared.graph)
    for device, found in session.machine.numbered():
        known = [session.models.history.on(kernel_key(v), identity(found)) for v in task.versions]
        assert known[1] is not None
        times = [[s.typical for s in k.series.values()] if k is not None else [] for k in known]
        assert len(times[1]) == 1
        if problem.version(0, device) == 0:
            assert times[0], "measured, and faster"
    assert problem.splits.get(0) is None


@pytest.mark.parametrize("enough", [True, False])
def test_where_there_is_no_memory_the_kernel_runs(queue: mc.Queue, enough: bool) -> None:
    def large(queue: Any, size: Any, local: Any, x: Any, y: Any, n: Any) -> None:
        t = queue.empty(777 if enough else 778, np.int32)
        PARTS.total(queue, (1,), (1,), x, t, n)
        PARTS.minus(queue, size, local, x, t, y, n)

    kernel, data = kernel_with(large), np.arange(N, dtype=np.int32)
    x, y = queue.array(data), queue.empty(N, np.int32)
    kernel(queue, (N,), (16,), x, y, N)
    with pytest.MonkeyPatch.context() as patch:
        for driver in queue.session.backend.drivers if not enough else ():

            def allocate(nbytes: int, host: Any = None, before: Any = driver.allocate) -> Any:
                if nbytes == 4 * 778:
                    raise DriverError("there is no more")
                return before(nbytes, host)

            patch.setattr(driver, "allocate", allocate)
        if enough:
            assert (y.get() == expected(data)).all()
        else:
            with pytest.warns(RuntimeWarning, match="large needs temporary memory that .* has not: there is no more"):
                assert (y.get() == expected(data)).all()
    assert names(queue) == (["total", "minus"] if enough else ["centred"])


def nothing(queue: Any, size: Any, local: Any, x: Any, y: Any, n: Any) -> None:
    pass


def filled(queue: Any, size: Any, local: Any, x: Any, y: Any, n: Any) -> None:
    queue.fill(y, 0)


def writes_x(queue: Any, size: Any, local: Any, x: Any, y: Any, n: Any) -> None:
    PARTS.spoil(queue, size, local, x)


def unwritten(queue: Any, size: Any, local: Any, x: Any, y: Any, n: Any) -> None:
    PARTS.minus(queue, size, local, x, queue.empty(1, np.int32), y, n)


def reads_y(queue: Any, size: Any, local: Any, x: Any, y: Any, n: Any) -> None:
    PARTS.minus(queue, size, local, y, y, queue.empty(N, np.int32), n)


def zeros(queue: Any, size: Any, local: Any, x: Any, y: Any, n: Any) -> None:
    t = queue.zeros(1, np.int32)
    PARTS.total(queue, (1,), (1,), x, t, n)
    PARTS.minus(queue, size, local, x, t, y, n)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (nothing, "its version nothing enqueues no kernel"),
        (filled, "its version filled enqueues something else than kernels"),
        (writes_x, "kernel spoil writes x, which the kernel does not"),
        (unwritten, "kernel minus reads a temporary array, which the kernel does not and nothing before it has"),
        (reads_y, "kernel minus reads y, which the kernel does not and nothing before it has written"),
        (zeros, "uses an array that is neither an argument nor made by it with queue.empty"),
    ],
)
def test_what_is_no_version_is_refused(queue: mc.Queue, function: Any, why: str) -> None:
    x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    with pytest.raises(LaunchError, match=why):
        kernel_with(function)(queue, (N,), (16,), x, y, N)
    queue.finish()


def test_arrays_of_others_are_refused(queue: mc.Queue) -> None:
    table = queue.empty(1, np.int32)

    def with_table(queue: Any, size: Any, local: Any, x: Any, y: Any, n: Any) -> None:
        PARTS.total(queue, (1,), (1,), x, table, n)
        PARTS.minus(queue, size, local, x, table, y, n)

    with pytest.raises(LaunchError, match="uses an array that is neither an argument nor made by it"):
        kernel_with(with_table)(queue, (N,), (16,), queue.zeros(N, np.int32), queue.zeros(N, np.int32), N)


def test_the_judge_finds_what_leaves_something_else(queue: mc.Queue) -> None:
    def wrong(queue: Any, size: Any, local: Any, x: Any, y: Any, n: Any) -> None:
        t = queue.empty(1, np.int32)
        PARTS.total(queue, (1,), (1,), x, t, n - 1)
        PARTS.minus(queue, size, local, x, t, y, n)

    x, y = queue.array(np.arange(1, N + 1, dtype=np.int32)), queue.zeros(N, np.int32)
    with pytest.raises(VersionError, match=f"version wrong of kernel centred, all of it .*argument y: {N} of {N}"):
        queue.check_versions(kernel_with(wrong), (N,), (16,), x, y, N)
    assert any(c.version == "two" for c in queue.check_versions(kernel_with(two), (N,), (16,), x, y, N))


def test_it_is_for_the_devices_that_it_is_for(queue: mc.Queue) -> None:
    data = np.arange(N, dtype=np.int32)
    x, y = queue.array(data), queue.empty(N, np.int32)
    kernel_with(two, "gpu")(queue, (N,), (16,), x, y, N)
    assert (y.get() == expected(data)).all()
    assert set(names(queue)) == {"centred"}
    with pytest.raises(LaunchError, match="is no kind of device"):
        kernel_with(two, "abacus")
