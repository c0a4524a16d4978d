"""The Python API on real devices: shared memory, memories of their own, a slowed part; every policy."""

from __future__ import annotations

import gc
import threading
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.errors import DeviceError, LaunchError, PolicyError, ResultError, RunError, SourceError
from manycl.run.session.session import Session

SOURCE = """
__kernel void combine(__global const int *a, __global const int *b, __global int *c, int m) {
  int i = get_global_id(0); c[i] = a[i] * m + b[i];
}
__kernel void inc(__global int *x, int by) { x[get_global_id(0)] += by; }
__kernel void part(__global const int *a, __global int *c, int from, int to) {
  int i = get_global_id(0); if (i >= from && i < to) c[i] = a[i] - 1;
}
__kernel void scatter(__global const int *a, __global int *c, int n) {
  int i = get_global_id(0); if (i % 2 == 0) c[n - 1 - i] = a[i];
}
__kernel void grouped(__global const int *a, __global int *c, __local int *tmp) {
  int l = get_local_id(0);
  tmp[l] = a[get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  c[get_global_id(0)] = tmp[get_local_size(0) - 1 - l];
}
"""
N = 64
POLICIES = ["auto", "in_order", "eager", "heft", "clustering"]
PROGRAM = mc.Program(SOURCE)
PLACES = {"shared": ("cpu/2", "1"), "own": ("opencl/3", "0"), "slowed": ("cpu/2#0,cpu/2#1@3", "1")}


@pytest.fixture(scope="module", params=PLACES)
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    devices, zero_copy = PLACES[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", zero_copy)
        queue = mc.Queue(devices)
    memories = queue.session.machine.memories
    assert memories == (4 if request.param == "own" else 1)
    yield queue.session
    queue.session.close()


@pytest.fixture(params=POLICIES)
def queue(request: pytest.FixtureRequest, session: Any) -> mc.Queue:
    return mc.Queue(session=session, policy=request.param)


def test_nothing_runs_until_a_result_is_asked_for(queue: mc.Queue) -> None:
    called: list[int] = []
    x = queue.array(np.zeros(N, np.int32))
    queue.call(lambda v: called.append(int(v[0])), x, writes=[])
    PROGRAM.inc(queue, (N,), (16,), x, 5)
    assert len(queue) == 2
    assert called == []
    assert (x.get() == 5).all()
    assert called == [0]
    assert len(queue) == 0


def test_fork_and_join(queue: mc.Queue) -> None:
    a = np.arange(N, dtype=np.int32)
    x = queue.array(a)
    branches = [queue.empty(N, np.int32) for _ in range(4)]
    for k, b in enumerate(branches):
        PROGRAM.combine(queue, (N,), (16,), x, x, b, k)
    total = queue.zeros(N, np.int32)
    for b in branches:
        PROGRAM.combine(queue, (N,), (16,), b, total, total, 1)
    assert (total.get() == sum(a * (k + 1) for k in range(4))).all()
    assert {k.node for k in queue.trace.kernels()} == set(range(8))


def test_local_memory(queue: mc.Queue) -> None:
    a = queue.array(np.arange(N, dtype=np.int32))
    c = queue.empty(N, np.int32)
    PROGRAM.grouped(queue, (N,), (16,), a, c, mc.LocalMemory(64))
    assert (c.get() == np.arange(N).reshape(-1, 16)[:, ::-1].ravel()).all()


# programs of kernels, host functions and host writes, against NumPy

OPERATIONS = st.one_of(
    st.tuples(st.just("combine"), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(-3, 3)),
    st.tuples(st.just("inc"), st.integers(0, 3), st.integers(-9, 9)),
    st.tuples(st.just("part"), st.integers(0, 3), st.integers(0, 3), st.integers(0, N), st.integers(0, N)),
    st.tuples(st.just("scatter"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("host"), st.integers(0, 3), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("set"), st.integers(0, 3), st.integers(0, 99), st.sampled_from(["set", "borrow", "map"])),
    st.tuples(st.just("look"), st.integers(0, 3)),
)


def interpret(operation: tuple[Any, ...], arrays: list[np.ndarray]) -> None:
    """One operation in NumPy."""
    i = np.arange(N)
    match operation:
        case ("combine", a, b, c, m):
            arrays[c] = (arrays[a] * np.int32(m) + arrays[b]).astype(np.int32)
        case ("inc", x, by):
            arrays[x] = arrays[x] + np.int32(by)
        case ("part", a, c, first, last):
            inside = (i >= first) & (i < last)
            arrays[c] = np.where(inside, arrays[a] - 1, arrays[c]).astype(np.int32)
        case ("scatter", a, c):
            if a != c:
                out = arrays[c].copy()
                out[N - 1 - i[i % 2 == 0]] = arrays[a][i % 2 == 0]
                arrays[c] = out
        case ("host", a, b, _):
            arrays[b] = arrays[a][::-1].copy()
        case ("set", x, value, _):
            arrays[x] = np.full(N, value, np.int32) + i.astype(np.int32)


def enqueue(operation: tuple[Any, ...], queue: mc.Queue, arrays: list[mc.Array], kept: list[Any]) -> None:
    """The same operation on the devices."""
    size = ((N,), (16,))
    match operation:
        case ("combine", a, b, c, m):
            PROGRAM.combine(queue, *size, arrays[a], arrays[b], arrays[c], m)
        case ("inc", x, by):
            PROGRAM.inc(queue, *size, arrays[x], np.int32(by))
        case ("part", a, c, first, last):
            PROGRAM.part(queue, *size, arrays[a], arrays[c], first, last)
        case ("scatter", a, c):
            if a != c:
                PROGRAM.scatter(queue, *size, arrays[a], arrays[c], N)
        case ("host", a, b, precise):
            queue.call(reverse, arrays[a], arrays[b], writes=[arrays[b]] if precise else None)
        case ("set", x, value, how):
            data = np.full(N, value, np.int32) + np.arange(N, dtype=np.int32)
            kept.append(data)
            if how == "map":
                with arrays[x].map() as host:
                    host[:] = data
            else:
                arrays[x].set(data, copy=how == "set")
        case ("look", x):
            arrays[x].get()


def reverse(a: np.ndarray, b: np.ndarray) -> None:
    b[:] = a[::-1].copy()


@settings(max_examples=30)
@given(st.lists(OPERATIONS, max_size=25), st.sampled_from(POLICIES), st.integers(0, 4))
def test_any_program_gives_what_numpy_gives(
    session: Any, operations: list[tuple[Any, ...]], policy: str, prepared_runs: int
) -> None:
    queue = mc.Queue(session=session, policy=policy)
    start = [np.arange(N, dtype=np.int32) * (k + 1) for k in range(4)]
    expected = [s.copy() for s in start]
    arrays = [queue.array(s) for s in start]
    kept: list[Any] = []
    for operation in operations:
        enqueue(operation, queue, arrays, kept)
        interpret(operation, expected)
    for array, wanted in zip(arrays, expected, strict=True):
        assert array.get().tobytes() == wanted.tobytes()
    # the same, prepared: what has no host writes in it can run again and again
    again = [o for o in operations if o[0] not in ("set", "look")]
    if not again or not prepared_runs:
        return
    with queue.prepare() as prepared:
        for operation in again:
            enqueue(operation, queue, arrays, kept)
    for turn in range(prepared_runs):
        if turn % 2:
            enqueue(("set", turn % 4, turn, ("set", "borrow", "map")[turn % 3]), queue, arrays, kept)
            interpret(("set", turn % 4, turn, "set"), expected)
        prepared.run()
        for operation in again:
            interpret(operation, expected)
        extra = queue.array(np.ones(N, np.int32))  # buffers come and go between the runs
        PROGRAM.inc(queue, (N,), (16,), extra, 1)
        assert (extra.get() == 2).all()
        del extra
    for array, wanted in zip(arrays, expected, strict=True):
        assert array.get().tobytes() == wanted.tobytes()


def test_a_prepared_graph_is_recorded_and_still_follows_the_data(session: Any) -> None:
    queue = mc.Queue(session=session, policy="auto")
    x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    with queue.prepare() as prepared:
        for _ in range(5):
            PROGRAM.inc(queue, (N,), (16,), x, 1)
            PROGRAM.combine(queue, (N,), (16,), x, y, y, 1)
    expected_x, expected_y = 0, 0
    for turn in range(8):
        if turn == 5:
            x.set(np.full(N, 100, np.int32))
            expected_x = 100
        prepared.run()
        for _ in range(5):
            expected_x += 1
            expected_y += expected_x
        assert (x.get() == expected_x).all()
        assert (y.get() == expected_y).all()
    assert prepared.plan is not None


def test_arrays_may_be_dropped_while_they_are_enqueued(session: Any) -> None:
    queue = mc.Queue(session=session)
    out = queue.empty(N, np.int32)
    for k in range(20):
        temporary = queue.array(np.full(N, k, np.int32))
        PROGRAM.combine(queue, (N,), (16,), temporary, temporary, out, 1)
    del temporary
    gc.collect()
    assert (out.get() == 38).all()


def test_borrowed_memory_is_never_written(session: Any) -> None:
    queue = mc.Queue(session=session)
    data = np.zeros(N, np.int32)
    data.flags.writeable = False
    x = queue.array(data, copy=False)
    PROGRAM.inc(queue, (N,), (16,), x, 7)
    assert (x.get() == 7).all()
    assert (data == 0).all()


def test_components_and_events(session: Any) -> None:
    queue = mc.Queue(session=session, policy="clustering")
    arrays = [queue.zeros(N, np.int32) for _ in range(3)]
    for a in arrays:
        with queue.component():
            for _ in range(4):
                event = PROGRAM.inc(queue, (N,), (16,), a, 1)
    event.wait()
    assert all((a.get() == 4).all() for a in arrays)
    for c in range(3):
        assert len({k.device for k in queue.trace.kernels() if k.component == c}) == 1
    with queue.component(), pytest.raises(LaunchError, match="do not nest"), queue.component():
        pass


def test_wait_for_orders_what_no_buffer_orders(session: Any) -> None:
    queue = mc.Queue(session=session)
    seen: list[str] = []
    x = queue.zeros(N, np.int32)
    first = queue.call(lambda: seen.append("first"))
    PROGRAM.inc(queue, (N,), (16,), x, 1, wait_for=[first])
    queue.call(lambda _: seen.append("last"), x, writes=[])
    queue.finish()
    assert seen == ["first", "last"]


# what is wrong is said


@pytest.fixture
def plain(session: Any) -> mc.Queue:
    return mc.Queue(session=session)


def test_launch_errors(plain: mc.Queue) -> None:
    x = plain.zeros(N, np.int32)
    f = plain.zeros(N, np.float32)
    size = ((N,), (16,))
    wrong: list[tuple[str, Any]] = [
        ("takes 2 arguments", lambda: PROGRAM.inc(plain, *size, x)),
        ("not divisible", lambda: PROGRAM.inc(plain, (N + 1,), (16,), x, 1)),
        ("points to int", lambda: PROGRAM.inc(plain, *size, f, 1)),
        ("needs an array", lambda: PROGRAM.inc(plain, *size, 3, 1)),
        ("out of range", lambda: PROGRAM.inc(plain, *size, x, 2**31)),
        ("needs an integer", lambda: PROGRAM.inc(plain, *size, x, 1.5)),
        ("is no buffer", lambda: PROGRAM.inc(plain, *size, x, x)),
        ("needs LocalMemory", lambda: PROGRAM.grouped(plain, *size, x, x, "much")),
        ("must be positive", lambda: PROGRAM.inc(plain, (0,), None, x, 1)),
        ("Python objects", lambda: plain.array([object()])),
        ("another queue", lambda: PROGRAM.inc(plain, *size, mc.Queue("cpu").zeros(N, np.int32), 1)),
        ("not among the arguments", lambda: plain.call(print, x, writes=[f])),
    ]
    for words, call in wrong:
        with pytest.raises(LaunchError, match=words):
            call()
    assert len(plain) == 0
    with pytest.raises(AttributeError, match="no kernel 'nope'"):
        PROGRAM.nope  # noqa: B018
    with x.map(), pytest.raises(LaunchError, match="mapped"):
        PROGRAM.inc(plain, *size, x, 1)
    with pytest.raises(ResultError, match="shape"):
        x.get(out=np.zeros(N + 1, np.int32))
    with pytest.raises(ResultError, match="shape"):
        x.set(np.zeros(3, np.int32))
    with pytest.raises(ResultError, match="do not fit"):
        x.set(np.full(N, 0.5))


def test_compile_errors_have_a_place() -> None:
    with pytest.raises(SourceError) as caught:
        mc.Program("__kernel void f(__global int *a) {\n  a[0] = nothing;\n}")
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.line, diagnostic.column) == (2, 10)
    assert "nothing" in diagnostic.text


def test_a_host_function_that_raises(plain: mc.Queue) -> None:
    x, y = plain.zeros(N, np.int32), plain.zeros(N, np.int32)

    def boom(_: np.ndarray) -> None:
        raise ValueError("no more")

    PROGRAM.inc(plain, (N,), (16,), x, 1)
    plain.call(boom, y, name="boom")
    PROGRAM.combine(plain, (N,), (16,), x, y, y, 1)
    # the launch before may have been given to a device as it was enqueued: it is the first node, or apart
    with pytest.raises(RunError, match=r"host function boom \(node [01]\) failed on host: ValueError: no more"):
        plain.finish()
    assert any(e.event == "failure" for e in plain.trace.events)
    with pytest.raises(ResultError, match="unknown"):
        y.get()
    y.set(np.zeros(N, np.int32))
    assert (y.get() == 0).all()
    z = plain.zeros(N, np.int32)
    PROGRAM.inc(plain, (N,), (16,), z, 3)
    assert (z.get() == 3).all()


def test_a_launch_that_no_device_takes(plain: mc.Queue) -> None:
    x = plain.zeros(1 << 16, np.int32)
    with pytest.raises(LaunchError, match=r"kernel inc cannot have work-groups of 65536 .* where cpu[01].* at most"):
        PROGRAM.inc(plain, (1 << 16,), (1 << 16,), x, 1)
    assert not x.get().any()


# PoCL defines this macro and the analysis does not: it compiles natively and not there
NOT_THERE = "#ifdef POCL_DEVICE_ADDRESS_BITS\n#error not here\n#endif\n__kernel void f(__global int *x) { x[0] = 1; }"
LIKE_A_FUNCTION = "__kernel void step(__global int *x) { x[0] = 1; }"
NOWHERE = "int nowhere(int x);\n__kernel void f(__global int *x) { x[0] = nowhere(1); }"


@pytest.mark.parametrize("zero_copy", ["1", "0"])
@pytest.mark.parametrize(
    ("devices", "source", "words"),
    [
        ("opencl/2", NOT_THERE, "does not build on cpu1[^$]*not here"),
        ("opencl/2", LIKE_A_FUNCTION, "kernel step cannot be used on cpu1"),
        ("native/2", NOWHERE, "kernel f cannot be used on cpu0[^$]*symbol: nowhere[^$]*and elsewhere: [^$]*nowhere"),
    ],
)
def test_a_kernel_that_does_not_build_on_a_device(
    devices: str, source: str, words: str, zero_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)
    program = mc.Program(source)
    (name,) = program.facts.kernels
    with mc.Queue(devices) as queue:
        x = queue.zeros(N, np.int32)
        program.kernel(name)(queue, (N,), (16,), x)
        with pytest.raises(SourceError, match=words):
            queue.finish()
        assert (x.get() == 0).all()  # nothing ran


def test_a_kernel_that_the_first_device_does_not_build_runs_on_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where commands are given to a device as they are enqueued."""
    monkeypatch.setattr(Session, "guessed_first", lambda session, launch: 0.0)
    program = mc.Program(NOT_THERE)
    for devices in ("opencl/2#0,native/2#1", "native/2#1,opencl/2#0"):
        with mc.Queue(devices) as queue, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            x = queue.zeros(N, np.int32)
            for _ in range(3):
                program.f(queue, (N,), (16,), x)
                assert x.get().tolist() == [1] + [0] * (N - 1)


@pytest.mark.parametrize("source", [NOT_THERE, LIKE_A_FUNCTION])
def test_what_pocl_refuses_is_compiled_natively(source: str) -> None:
    program = mc.Program(source)
    (name,) = program.facts.kernels
    with mc.Queue("native/2") as queue:
        x = queue.zeros(N, np.int32)
        program.kernel(name)(queue, (N,), (16,), x)
        assert x.get().tolist() == [1] + [0] * (N - 1)


def test_a_buffer_that_is_too_large(plain: mc.Queue) -> None:
    limit = max(d.max_allocation for d in plain.session.machine.devices)
    program = mc.Program("__kernel void g(__global uchar *x) { x[0] = 1; }")
    if limit + 4096 > plain.session.buffers.most:  # than all memory
        with pytest.raises(LaunchError, match="no memory has more than"):
            plain.empty(limit + 4096, np.uint8)
        return
    x = plain.empty(limit + 4096, np.uint8)
    program.g(plain, (1,), (1,), x)
    with pytest.raises(
        (PolicyError, RunError), match=f"too little memory for its {limit + 4096} bytes|allocates at most"
    ):
        plain.finish()


def test_a_closed_session() -> None:
    queue = mc.Queue("cpu")
    x = queue.zeros(4, np.int32)
    queue.session.close()
    with pytest.raises(DeviceError, match="closed"):
        queue.zeros(4)
    with pytest.raises(DeviceError, match="closed"):
        x.get()


def test_several_threads_each_with_a_queue() -> None:
    wrong: list[str] = []

    def work(number: int) -> None:
        try:
            run(number)
        except BaseException:
            wrong.append(f"thread {number}:\n{traceback.format_exc()}")

    def run(number: int) -> None:
        queue = mc.Queue("cpu/2", policy=POLICIES[number])
        for turn in range(5):
            xs = [queue.zeros(N, np.int32) for _ in range(6)]
            for x in xs:
                for _ in range(5):
                    PROGRAM.inc(queue, (N,), (16,), x, number + turn)
            if not all((x.get() == 5 * (number + turn)).all() for x in xs):
                wrong.append(f"{number} {turn}")
        queue.session.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=120)
    assert not wrong, "\n".join(wrong)
    assert not any(t.is_alive() for t in threads)
