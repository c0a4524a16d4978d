"""Versions of kernels that are functions of Python: what they are given, what may go wrong, and that they give what the
kernel gives, whole and divided, in loops and prepared graphs, in the host's memory and others."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.errors import ArgumentError, LaunchError, ManyclError, PolicyError, RunError, VersionError
from manycl.graph.graph import Launch
from manycl.plan.plan import Assignment, Plan
from manycl.plan.splitting import ONE_WORK_GROUP, split_of

SOURCE = """
typedef struct { int a; float b; } pair;
kernel void gemm(global const float *a, global const float *b, global float *c, int k) {
  int j = get_global_id(0), i = get_global_id(1), n = get_global_size(0);
  float s = 0;
  for (int t = 0; t < k; t++) s += a[i * k + t] * b[t * n + j];
  c[i * n + j] = s;
}
kernel void add(global const int *x, global int *y, int n) {
  int i = get_global_id(0);
  if (i < n) y[i] += x[i];
}
kernel void all_kinds(global const int *x, global int *y, float f, int4 v, pair p, local int *t, uchar u) {
  y[get_global_id(0)] = x[0] + (int)f + v.s0 + p.a + u;
}
"""


def product(rows: slice, a: Any, b: Any, c: Any, k: Any) -> None:
    c[rows] = a[rows] @ b


def whole_product(a: Any, b: Any, c: Any, k: Any) -> None:
    np.matmul(a, b, out=c)


def add(items: slice, x: Any, y: Any, n: Any) -> None:
    y[items] += x[items]


def kernel_with(name: str, function: Callable[..., Any], divide: int | None = None) -> Any:
    kernel = mc.Program(SOURCE).kernel(name)
    kernel.add_version(function, "host", divide=divide)
    return kernel


@pytest.fixture(scope="module", params=["shared", "own"])
def queue(request: pytest.FixtureRequest) -> Iterator[mc.Queue]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "1" if request.param == "shared" else "0")
        with mc.Queue("native/2") as queue:
            yield queue


def matrices(seed: int = 0) -> tuple[Any, Any]:
    """Of small integers: every order of additions gives the same."""
    numbers = np.random.default_rng(seed)
    return numbers.integers(-9, 9, (32, 24)).astype(np.float32), numbers.integers(-9, 9, (24, 16)).astype(np.float32)


def test_functions_get_arrays_and_numbers_as_they_were_passed(queue: mc.Queue) -> None:
    seen: list[Any] = []

    def all_kinds(x: Any, y: Any, f: Any, v: Any, p: Any, t: Any, u: Any) -> None:
        seen.append([(x.shape, x.dtype, x.flags.writeable, y.shape, y.flags.writeable), f, v.copy(), p, t, u])
        y[:] = x[0, 0] + int(f) + v[0] + np.frombuffer(p, np.int32)[0] + u

    kernel = kernel_with("all_kinds", all_kinds)
    x, y = queue.array(np.full((4, 2), 5, np.int32)), queue.zeros((2, 4), np.int32)
    pair = np.array([3, 0], np.int32).tobytes()
    kernel(queue, (8,), (8,), x, y, 2.5, (1, 2, 3, 4), pair, mc.LocalMemory(32), 7)
    assert (y.get() == 5 + 2 + 1 + 3 + 7).all()
    ((form, f, v, p, t, u),) = seen
    assert form == ((4, 2), np.dtype(np.int32), False, (2, 4), True)
    assert (f, type(f), p, t, u, type(u)) == (2.5, np.float32, pair, None, 7, np.uint8)
    assert (v == [1, 2, 3, 4]).all()
    assert [e.kernel for e in queue.trace.kernels()] == ["all_kinds"]


@settings(max_examples=20)
@given(cuts=st.sets(st.integers(1, 7), max_size=3), data=st.data())
def test_ranges_in_any_version_give_the_whole(queue: mc.Queue, cuts: set[int], data: Any) -> None:
    kernel = kernel_with("gemm", product, 1)
    a, b = matrices(len(cuts))
    c = queue.empty((32, 16), np.float32)
    with queue.prepare() as prepared:
        kernel(queue, (16, 32), (4, 4), queue.array(a), queue.array(b), c, 24)
    ends = [0, *sorted(cuts), 8]
    ranges = [
        Assignment(0, d, 0, 0.0, 0.0, 1, first, end - first, version)
        for first, end in itertools.pairwise(ends)
        for d, version in [data.draw(st.tuples(st.integers(0, 1), st.integers(0, 1)))]
    ]
    result = queue.session.run(prepared.graph, Plan(tuple(ranges), "by hand", queue.devices, 0.0))
    assert (c.get() == a @ b).all()
    assert {e.first: e.kernel for e in result.trace.kernels()} == {
        r.first: ("gemm", "product")[r.version] for r in ranges
    }


def test_along_another_dimension_it_is_not_divided(queue: mc.Queue) -> None:
    a, b = matrices()
    for function, divide, why in (
        (product, 1, "is divided along dimension 1 only"),
        (whole_product, None, "is not divided"),
    ):
        c = queue.empty((32, 16), np.float32)
        with queue.prepare() as prepared:
            kernel_with("gemm", function, divide)(queue, (16, 32), (4, 4), queue.array(a), queue.array(b), c, 24)
        ranges = tuple(Assignment(0, d, 0, 0.0, 0.0, 0, 2 * d, 2, 1) for d in (0, 1))
        with pytest.raises(mc.ManyclError, match=f"a function of Python, {why}"):
            queue.session.run(prepared.graph, Plan(ranges, "by hand", queue.devices, 0.0))
        prepared.run()
        assert (c.get() == a @ b).all()


def test_the_last_range_may_end_behind_the_arrays(queue: mc.Queue) -> None:
    kernel, n = kernel_with("add", add, 0), 61
    x, y = queue.array(np.arange(n, dtype=np.int32)), queue.zeros(n, np.int32)
    for turn in range(1, 9):  # a loop
        kernel(queue, (64,), (8,), x, y, n)
        if turn % 3 == 0:
            assert (y.get() == turn * np.arange(n)).all()
    assert (y.get() == 8 * np.arange(n)).all()


def test_views_offsets_and_other_shapes(queue: mc.Queue) -> None:
    def plus(items: slice, x: Any, y: Any, n: Any) -> None:
        y.reshape(-1)[items] += x.reshape(-1)[items]

    kernel = kernel_with("add", plus, 0)
    base, y = queue.array(np.arange(40, dtype=np.int32)), queue.zeros((4, 4), np.int32)
    kernel(queue, (16,), (4,), base[3:19], y, 16)
    kernel(queue, (8,), (4,), base[7:23].reshape(4, 4), y, 16, global_offset=(8,))
    expected = np.arange(3, 19)
    expected[8:] += np.arange(7, 23)[8:]
    assert (y.get().reshape(-1) == expected).all()
    kernel(queue, (12,), (4,), base[20:32], y.reshape(16)[1:13], 12)
    expected[1:13] += np.arange(20, 32)
    assert (y.get().reshape(-1) == expected).all()


def test_errors_name_the_kernel_the_version_and_the_line(queue: mc.Queue) -> None:
    def stops(x: Any, y: Any, n: Any) -> None:
        y[:] = 0
        raise ValueError("not today")

    line = stops.__code__.co_firstlineno + 2
    kernel, x = kernel_with("add", stops), queue.zeros(8, np.int32)
    kernel(queue, (8,), (8,), x, queue.zeros(8, np.int32), 8)
    with pytest.raises(RunError) as caught:
        queue.finish()
    words = f"version stops of kernel add failed: ValueError: not today ({__file__}, line {line})"
    assert words in str(caught.value)
    x, y = queue.array(np.arange(8, dtype=np.int32)), queue.zeros(8, np.int32)
    kernel_with("add", add, 0)(queue, (8,), (8,), x, y, 8)
    assert (y.get() == np.arange(8)).all(), "the devices go on"


def test_what_the_kernel_only_reads_cannot_be_written(queue: mc.Queue) -> None:
    def writes(x: Any, y: Any, n: Any) -> None:
        x[0] = 1

    kernel_with("add", writes)(queue, (8,), (8,), queue.zeros(8, np.int32), queue.zeros(8, np.int32), 8)
    with pytest.raises(RunError, match=r"version writes of kernel add failed: ValueError: .*read-only"):
        queue.finish()


def test_a_launch_of_one_work_group_is_not_divided_whatever_its_versions(queue: mc.Queue) -> None:
    kernel = kernel_with("add", lambda x, y, n: None, divide=0)
    with queue.prepare() as prepared:
        kernel(queue, (8,), (8,), queue.zeros(8, np.int32), queue.zeros(8, np.int32), 8)
    sizes = {key: buffer.nbytes for key, buffer in prepared.graph.buffers.items()}
    (launch,) = prepared.graph.nodes
    assert isinstance(launch, Launch)
    assert split_of(launch, sizes) == ONE_WORK_GROUP


def test_functions_cannot_wait_for_what_they_are_part_of(queue: mc.Queue) -> None:
    other = queue.zeros(8, np.int32)

    def asks(x: Any, y: Any, n: Any) -> None:
        other.get()

    kernel_with("add", asks)(queue, (8,), (8,), queue.zeros(8, np.int32), queue.zeros(8, np.int32), 8)
    with pytest.raises(RunError, match="a host function asked for an array"):
        queue.finish()


@pytest.mark.usefixtures("collected")
def test_other_drivers_run_the_kernel() -> None:
    a, b = matrices()
    with mc.Queue("opencl/2") as queue:
        c = queue.empty((32, 16), np.float32)
        kernel_with("gemm", whole_product)(queue, (16, 32), (4, 4), queue.array(a), queue.array(b), c, 24)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert (c.get() == a @ b).all()
        assert any("OpenCL's drivers call no functions of Python" in str(w.message) for w in told)
        assert [e.kernel for e in queue.trace.kernels()] == ["gemm"]


def test_what_a_device_cannot_run_is_not_planned_for_again() -> None:
    """Ranges run a certain version: where that cannot run, the launch runs whole, in another one."""
    with mc.Queue("opencl/2", policy="balance") as queue:
        x, y = queue.array(np.arange(16, dtype=np.int32)), queue.zeros(16, np.int32)
        with queue.prepare() as prepared:
            kernel_with("add", add, 0)(queue, (16,), (4,), x, y, 16)
        ranges = tuple(Assignment(0, d, 0, 0.0, 0.0, 0, 2 * d, 2, d) for d in (0, 1))
        with pytest.raises(PolicyError, match="a version of a kernel, add, cannot run on"):
            queue.session.run(prepared.graph, Plan(ranges, "by hand", queue.devices, 0.0))
        assert queue.session.problem(prepared.graph).version(0, 1) == 0, "it is known now"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            prepared.run()
        assert (y.get() == np.arange(16)).all()


@pytest.mark.parametrize(
    ("given_", "options", "why"),
    [
        (product, {"kinds": "gpu"}, "a function of Python is a version for 'host', not for gpu"),
        (product, {"kinds": ()}, "not for any device"),
        (7, {"kinds": "host"}, "other is a Kernel or a function, not 7"),
        (product, {"kinds": "host", "divide": 3}, "divide=3 is no dimension"),
        (product, {"kinds": "host", "divide": True}, "divide is an integer of 64 bits or None, not True"),
        (product, {"kinds": "host", "ndrange": lambda g, w: (g, w)}, "has the NDRange of the call"),
        ("gemm", {"kinds": "host"}, "are functions of Python, not kernels"),
        ("gemm", {"kinds": "cpu", "divide": 0}, "divide is for functions"),
    ],
)
def test_versions_that_cannot_be_declared(given_: Any, options: Any, why: str) -> None:
    kernel = mc.Program(SOURCE).gemm
    other = mc.Program(SOURCE).gemm if given_ == "gemm" else given_
    with pytest.raises((LaunchError, ArgumentError), match=why):
        kernel.add_version(other, **options)


def test_a_dimension_that_the_launch_lacks(queue: mc.Queue) -> None:
    x = queue.zeros(8, np.int32)
    with pytest.raises(LaunchError, match="is divided along dimension 1, which the NDRange"):
        kernel_with("add", add, 1)(queue, (8,), (8,), x, x.copy(), 8)


# the judge


def all_of_it(rows: slice, a: Any, b: Any, c: Any, k: Any) -> None:
    c[:] = a @ b


def one_wrong(a: Any, b: Any, c: Any, k: Any) -> None:
    c[:] = a @ b
    c[3, 5] += 1


def nothing(rows: slice, a: Any, b: Any, c: Any, k: Any) -> None:
    pass


def past_locks(a: Any, b: Any, c: Any, k: Any) -> None:
    c[:] = a @ b
    data = (np.ctypeslib.ctypes.c_float * a.size).from_address(a.ctypes.data)
    data[0] += 1


@pytest.mark.parametrize(
    ("function", "divide", "why"),
    [
        (all_of_it, 1, r"version all_of_it of kernel gemm, work-groups .* on cpu.*argument c: 256 of 512 elements"),
        (
            one_wrong,
            None,
            r"version one_wrong of kernel gemm, all of it on .*: 1 of 512 elements, the first is number 53",
        ),
        (nothing, 1, "version nothing of kernel gemm, all of it"),
        (past_locks, None, "argument a, which the kernel does not write: 1 of 768 elements, the first is number 0"),
    ],
)
def test_versions_that_do_something_else_are_found(queue: mc.Queue, function: Any, divide: Any, why: str) -> None:
    if function is past_locks and queue.session.machine.memories > 1:
        pytest.skip("the device's copy is nobody else's")
    a, b = (queue.array(m) for m in matrices())
    c = queue.zeros((32, 16), np.float32)
    with pytest.raises(VersionError, match=why):
        queue.check_versions(kernel_with("gemm", function, divide), (16, 32), (4, 4), a, b, c, 24)
    assert (a.get() == matrices()[0]).all(), "it works on copies"
    assert not c.get().any()


def test_versions_that_do_the_same_pass(queue: mc.Queue) -> None:
    a, b = (queue.array(m) for m in matrices())
    c = queue.empty((32, 16), np.float32)
    checked = queue.check_versions(kernel_with("gemm", product, 1), (16, 32), (4, 4), a, b, c, 24)
    by = {(v.version, v.device, v.groups and v.groups.dimension) for v in checked}
    assert {("product", d, g) for d in queue.devices for g in (None, 1)} <= by
    assert not {(version, g) for version, _, g in by} & {("product", 0)}
    assert queue.check_versions(mc.Program(SOURCE).gemm, (16, 32), (4, 4), a, b, c, 24) == []


def test_a_tolerance_is_for_what_is_written(queue: mc.Queue) -> None:
    def nearly(a: Any, b: Any, c: Any, k: Any) -> None:
        c[:] = (a @ b) * np.float32(1 + 1e-5)

    a, b = (queue.array(m) for m in matrices())
    c, kernel = queue.empty((32, 16), np.float32), kernel_with("gemm", nearly)
    with pytest.raises(VersionError):
        queue.check_versions(kernel, (16, 32), (4, 4), a, b, c, 24)
    assert queue.check_versions(kernel, (16, 32), (4, 4), a, b, c, 24, rtol=1e-4)
    assert isinstance(VersionError("x"), ManyclError)
