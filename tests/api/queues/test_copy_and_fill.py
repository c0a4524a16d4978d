"""Copies and fills that are enqueued do what NumPy does, on any device and in any memory, also when they are played
again; what does not fit is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.errors import ArgumentError, LaunchError, ResultError, RunError
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policy import names
from manycl.run.simulation.foresee import foresee
from manycl.trace import KernelEvent

N = 64
LARGE = 1 << 20  # elements: launches, and copies, that take long enough for planners to think about
PROGRAM = mc.Program(
    "kernel void inc(global int *x) { x[get_global_id(0)] += 1; }"
    "kernel void add(global int *x, int by) { x[get_global_id(0)] += by; }"
    "kernel void same(global const int *x, global int *y) { y[get_global_id(0)] = x[get_global_id(0)]; }"
    "kernel void odd(global int *y) { if (get_global_id(0) % 2) y[get_global_id(0)] = 3; }"
)


DEVICES = {"shared": "native/2", "own": "opencl/2", "slowed": "cpu/2#0,cpu/2#1@2"}


@pytest.fixture(scope="module", params=DEVICES)
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "1" if request.param == "shared" else "0")
        queue = mc.Queue(DEVICES[request.param])
    yield queue.session
    queue.session.close()


def by_hand(queue: mc.Queue, *devices: int) -> Plan:
    """Each node on a device."""
    return Plan(tuple(Assignment(n, d, 0, 0.0, 0.0) for n, d in enumerate(devices)), "by hand", queue.devices, 0.0)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(["i1", "u2", "i4", "f4", "f8", "c8", "c16", "?", "S4"]))
def test_as_numpy_does(session: Any, data: Any, dtype: str) -> None:
    """Some copies and fills one after another, each on any device; three times, as a graph that is prepared."""
    queue, chance = mc.Queue(session=session), np.random.default_rng(data.draw(st.integers(0, 99)))
    size = np.dtype(dtype).itemsize
    want = [chance.integers(0, 2, (4, N // 4)).astype(dtype) for _ in range(3)]
    arrays = [queue.array(contents) for contents in want]
    works = []
    with queue.prepare() as prepared:
        for _ in range(data.draw(st.integers(1, 5))):
            to, of = data.draw(st.permutations(range(3)))[:2]
            count = data.draw(st.just(N) | st.integers(1, N))
            first, begin = (data.draw(st.integers(0, N - count)) for _ in range(2))
            if data.draw(st.booleans()):
                works.append((to, of, first, begin, count))
                at = {"byte_count": size * count, "src_offset": size * begin, "dst_offset": size * first}
                queue.copy(arrays[to], arrays[of], **(at if count < N else {}))
            else:
                value = want[of].reshape(-1)[begin].copy()
                works.append((to, value, first, 0, count))
                if count < N:
                    queue.fill(arrays[to], value, offset=size * first, size=size * count)
                else:
                    arrays[to].fill(value)
        queue.policy = by_hand(queue, *(data.draw(st.integers(0, 1)) for _ in works))
    for _ in range(3):
        prepared.run()
        for to, source, first, begin, count in works:
            flat = want[source].reshape(-1)[begin : begin + count] if isinstance(source, int) else source
            want[to].reshape(-1)[first : first + count] = flat
    for array, contents in zip(arrays, want, strict=True):
        assert array.get().tobytes() == contents.tobytes()


@pytest.mark.parametrize("policy", sorted(names()))
def test_policies_run_them_beside_kernels(session: Any, policy: str) -> None:
    """Whatever goes wrong in one is a warning, which fails the test."""
    queue = mc.Queue(session=session, policy=policy)
    x, y, z = queue.empty(LARGE, np.int32), queue.empty(LARGE, np.int32), queue.zeros(2 * LARGE, np.int32)
    for _ in range(2):
        x.fill(7)
        PROGRAM.inc(queue, (LARGE,), (64,), x)
        queue.copy(y, x)
        x.fill(0)
        PROGRAM.inc(queue, (LARGE,), (64,), y)
        queue.copy(z, y, byte_count=4 * LARGE, dst_offset=2 * LARGE)
        assert (y.get() == 9).all()
        assert (x.get() == 0).all()
        assert (z.get() == np.repeat([0, 9, 0], [LARGE // 2, LARGE, LARGE // 2])).all()


def test_what_is_copied_within_an_array_may_not_overlap(session: Any) -> None:
    queue = mc.Queue(session=session)
    x = queue.array(np.arange(N, dtype=np.int32))
    queue.copy(x, x, byte_count=2 * N, dst_offset=2 * N)
    assert (x.get() == np.tile(np.arange(N // 2), 2)).all()
    with pytest.raises(LaunchError, match="source and target overlap"):
        queue.copy(x, x, byte_count=2 * N, dst_offset=2 * N - 4)


def test_traces_show_them_and_nothing_is_learned_of_them(session: Any) -> None:
    queue = mc.Queue(session=session, policy="in_order")
    x, y = queue.zeros(N, np.int32), queue.empty(N, np.int32)
    with queue.prepare() as prepared:
        queue.fill(x, 3, name="threes")
        queue.copy(y, x)
    graph = prepared.graph
    known = {(kernel, device) for kernel, device, _ in session.models.history.items()}
    result = session.run(graph, "in_order")
    found = [(e.name, e.kernel, e.global_size) for e in result.trace.events if isinstance(e, KernelEvent)]
    assert found == [("threes", "fill", ()), ("copy", "copy", ())]
    assert {(kernel, device) for kernel, device, _ in session.models.history.items()} == known
    problem = session.problem(graph)
    seconds = {e.name: e.end - e.start for e in foresee(problem, result.plan).events if isinstance(e, KernelEvent)}
    a = {problem.graph.nodes[a.node].name: problem.estimates.launch(a.node, a.device) for a in result.plan.assignments}
    assert seconds == pytest.approx(a)


def test_what_does_not_fit_is_refused(session: Any) -> None:
    queue = mc.Queue(session=session)
    x, y, odd = queue.zeros(N, np.int32), queue.zeros(N, np.int16), queue.zeros(4, "S3")
    for wrong in ((lambda: queue.copy(x, y)), (lambda: queue.copy(x, y, byte_count=4 * N))):
        with pytest.raises(LaunchError, match="copy: "):
            wrong()
    for value in (1.5, 1 << 40, [1, 2]):
        with pytest.raises(LaunchError, match="is no value of an array of int32"):
            x.fill(value)
    with pytest.raises(LaunchError, match="no multiples of the pattern's 4"):
        queue.fill(x, 1, offset=2)
    with pytest.raises(LaunchError, match="a pattern of 3 bytes"):
        odd.fill(b"abc")
    with pytest.raises(ArgumentError, match="source is an Array, not array"):
        queue.copy(x, np.zeros(N, np.int32))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        queue.copy(x, x, byte_count=8.0, dst_offset=8)  # type: ignore[arg-type]
    with x.map(), pytest.raises(LaunchError, match="fill: the array is mapped"):
        x.fill(1)
    assert not len(queue)


@pytest.mark.parametrize("policy", ["in_order", "eager", "auto"])
def test_the_host_copies_what_no_device_holds(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """A kernel would run in ranges; a fill of one array fits where a copy of two does not."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setenv("MANYCL_DEVICE_MEMORY", str(6 * N))
    with mc.Queue("cpu/2", policy=policy) as queue:
        x, y = queue.array(np.arange(N, dtype=np.int32)), queue.array(np.zeros(N, np.int32))
        y.fill(4)
        queue.copy(y, x, byte_count=40, dst_offset=8)
        queue.fill(x, 7, offset=4, size=8)
        queue.copy(x, x, byte_count=12, src_offset=0, dst_offset=4 * N - 12)
        assert list(y.get()) == [4, 4, *range(10), *[4] * (N - 12)]
        assert list(x.get()) == [0, 7, 7, *range(3, N - 3), 0, 7, 7]


def test_the_host_fills_what_no_device_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setenv("MANYCL_DEVICE_MEMORY", str(2 * N))
    with mc.Queue("cpu/2") as queue:
        x = queue.array(np.arange(N, dtype=np.int16).astype(np.int32))
        queue.fill(x, -3, offset=16, size=24)
        expected = np.arange(N)
        expected[4:10] = -3
        assert (x.get() == expected).all()
        x.fill(1 << 20)
        assert (x.get() == 1 << 20).all()


# what heals


def boom(_: Any) -> None:
    raise ValueError("no more")


def after_boom(queue: mc.Queue) -> mc.Array:
    """An array whose contents are unknown, as a host function that may change it has failed."""
    y = queue.array(np.full(N, -1, np.int32))
    queue.call(boom, y)
    with pytest.raises(RunError, match="no more"):
        queue.finish()
    return y


HEALS: dict[str, Callable[[mc.Queue, Any, Any], Any]] = {
    "fill": lambda q, y, x: q.fill(y, 3),
    "write": lambda q, y, x: q.write(y, x),
    "write in place": lambda q, y, x: q.write(y, x, copy=False),
    "copy": lambda q, y, x: q.copy(y, q.array(x)),
    "set": lambda q, y, x: y.set(x),
    "a scalar": lambda q, y, x: y.__setitem__(slice(None), 3),
    "NumPy's": lambda q, y, x: y.__setitem__(slice(None), x),
    "an array": lambda q, y, x: y.__setitem__(slice(None), q.array(x)),
    "an array of another type": lambda q, y, x: y.__setitem__(slice(None), q.array(x.astype(np.int64))),
    "a kernel": lambda q, y, x: PROGRAM.same(q, y.shape, None, q.array(x), y),
    "a host function": lambda q, y, x: q.call(lambda place: place.fill(3), y, overwrites=[y]),
}


@pytest.mark.parametrize("memories", ["1", "0"])
@pytest.mark.parametrize("devices", ["cpu/2#0", "cpu/2"])
@pytest.mark.parametrize("how", HEALS)
def test_whatever_overwrites_an_array_heals_it(
    how: str, devices: str, memories: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a whole, or one part after the other; of what is not overwritten it is told that it is unknown."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", memories)
    x = np.full(N, 3, np.int32)
    with mc.Queue(devices) as queue:
        y = after_boom(queue)
        with pytest.raises(ResultError, match="unknown: host function boom"):
            y.get()
        HEALS[how](queue, y, x)
        assert (y.get() == 3).all()
        z = after_boom(queue)
        HEALS[how](queue, z[: N // 2], x[: N // 2])
        assert (z[: N // 2].get() == 3).all()
        for unknown in (z, z[N // 2 :], z[N // 2 - 1 : N // 2 + 1]):
            with pytest.raises(ResultError, match="unknown"):
                unknown.get()
        HEALS[how](queue, z[N // 2 :], x[N // 2 :])
        assert (z.get() == 3).all()


@pytest.mark.parametrize("devices", ["cpu/2#0", "cpu/2"])
def test_what_may_leave_some_of_it_as_it_was_does_not_heal(devices: str) -> None:
    with mc.Queue(devices) as queue:
        y = after_boom(queue)
        reads = (
            lambda: PROGRAM.add(queue, (N,), None, y, 1),
            lambda: PROGRAM.odd(queue, (N,), None, y),
            lambda: queue.call(lambda place: place.fill(3), y),
            lambda: queue.copy(queue.empty(N, np.int32), y),
            lambda: queue.read(y),
        )
        for read in reads:
            with pytest.raises(ResultError, match="unknown"):  # noqa: PT012
                read()
                queue.finish()
        queue.fill(y, 1)
        PROGRAM.add(queue, (N,), None, y, 2)  # in the same run
        assert (y.get() == 3).all()


@pytest.mark.parametrize("devices", ["cpu/2#0", "cpu/2"])
@pytest.mark.parametrize("what", [KeyboardInterrupt, ValueError])
def test_a_prepared_graph_that_begins_with_a_fill_runs_again(devices: str, what: type[BaseException]) -> None:
    fails = [False, False, True, True, False, False]
    with mc.Queue(devices) as queue:
        y = queue.zeros(N, np.int32)

        def host(place: Any) -> None:
            place += 1
            if fails.pop(0):
                raise what

        with queue.prepare() as prepared:
            queue.fill(y, 1)
            PROGRAM.add(queue, (N,), None, y, 1)
            queue.call(host, y)
        for is_failing in list(fails):
            if is_failing:
                with pytest.raises((KeyboardInterrupt, RunError)):
                    prepared.run()
                with pytest.raises(ResultError, match="unknown"):
                    y.get()
            else:
                prepared.run()
                assert (y.get() == 3).all()
