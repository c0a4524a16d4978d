"""Views of arrays (parts, other shapes): what there are, what kernels, reads and writes do with them, and that only
what meets is ordered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.errors import ArgumentError, LaunchError, ManyclError, ResultError
from manycl.plan.plan import Assignment, Plan
from tests.api.arrays.view_cases import MEMORIES, PROGRAM, N, session_with
from tests.graph.graph_judge import verify as verify_graph


@pytest.fixture(scope="module", params=MEMORIES)
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    with session_with(request.param) as session:
        yield session


# what there are views of


def test_parts_are_those_of_numpy(session: Any) -> None:
    queue = mc.Queue(session=session)
    want = np.arange(48, dtype=np.int32).reshape(2, 3, 8)
    a = queue.array(want)
    cases = [1, -1, (1, 2), (0, 1, 3), (0, 1, slice(2, 5)), slice(None), slice(1, 2), (1, slice(1, 3)), (..., 1, 2, 3)]
    cases += [np.int64(1), (slice(1, 2), slice(1, 2), slice(3, None)), (1, ...), slice(1, 2, 5)]
    for key in cases:
        view = a[key]  # type: ignore[index]
        found = np.asarray(want[key])  # type: ignore[index]
        assert (view.shape, view.size, view.nbytes, view.dtype) == (found.shape, found.size, found.nbytes, want.dtype)
        assert (view.get() == found).all()
        assert np.asarray(view).tobytes() == found.tobytes()
    assert (a.reshape(6, -1)[4].get() == want.reshape(6, 8)[4]).all()
    assert (a[1].reshape((4, 6))[1:3].get() == want[1].reshape(4, 6)[1:3]).all()
    with pytest.raises(IndexError):
        a[2]


NUMBERS = st.one_of(st.none(), st.integers(-5, 5))
PARTS = st.one_of(
    st.integers(-4, 4),
    st.builds(slice, NUMBERS, NUMBERS),
    st.builds(slice, NUMBERS, NUMBERS, st.sampled_from([1, 2, -1])),
    st.just(...),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.lists(PARTS, max_size=4), st.data())
def test_any_part_is_numpys_or_is_refused(session: Any, shape: list[int], key: list[Any], data: st.DataObject) -> None:
    """Also of a view: shape, and where it begins."""
    queue = mc.Queue(session=session)
    want: Any = np.arange(np.prod([2, *shape]), dtype=np.int16).reshape(2, *shape)
    a: Any = queue.array(want)
    if data.draw(st.booleans()):
        a, want = a[1], want[1]
    named: Any = key[0] if len(key) == 1 and data.draw(st.booleans()) else tuple(key)
    try:
        found = np.atleast_1d(want[named])
    except IndexError:
        with pytest.raises(IndexError):
            a[named]
        return
    if not found.size or not np.asarray(want[named]).flags.c_contiguous:
        with pytest.raises(LaunchError):
            a[named]
        return
    view = a[named]
    assert view.shape == np.shape(want[named])
    assert (view.offset, view.nbytes) == (2 * int(found.flat[0]), found.nbytes)
    assert view.owner is a.owner


def test_what_has_gaps_is_refused(session: Any) -> None:
    queue = mc.Queue(session=session)
    a = queue.zeros((4, 8), np.int32)
    for key in (slice(None, None, 2), slice(None, None, -1), (slice(None), 1), (slice(0, 2), slice(0, 4))):
        with pytest.raises(LaunchError, match="do not follow one another") as found:
            a[key]
        assert "a[i:j]" in found.value.hint
    with pytest.raises(LaunchError, match="has no elements"):
        a[2:2]
    for key in ([0, 1], np.array([1]), True, "x", 1.0, (0, [1])):
        with pytest.raises(LaunchError, match="named by integers and slices"):
            a[key]
    with pytest.raises(LaunchError, match="cannot reshape"):
        a.reshape(5, 5)
    with pytest.raises(LaunchError, match="a view cannot exchange"):
        a[0].exchange(a[1])


def test_a_view_is_of_what_its_array_has(session: Any) -> None:
    queue = mc.Queue(session=session)
    a, b = queue.array(np.arange(8, dtype=np.int32)), queue.array(np.arange(8, 16, dtype=np.int32))
    part = a[4:6]
    with queue.prepare() as prepared:
        PROGRAM.make(queue, (2,), (1,), part, 1)
    prepared.run()
    assert a.get().tolist() == [0, 1, 2, 3, 2, 3, 6, 7]
    a.exchange(b)
    assert part.get().tolist() == [12, 13]
    prepared.queue.copy(b[0:2], part)
    assert b.get().tolist() == [12, 13, 2, 3, 2, 3, 6, 7]
    del a, b
    part.set([1, 2])  # what it is a part of lives as long as it
    with part.map() as host:
        host += 1
    assert part.get().tolist() == [2, 3]


def test_what_is_written_elsewhere_stays_where_it_is(session: Any) -> None:
    queue = mc.Queue(session=session)
    a = queue.array(np.arange(8, dtype=np.int32))
    PROGRAM.make(queue, (8,), (1,), a, 1, device="cpu0.0")
    queue.finish()
    valid = session.directory.memories(a.buffer.key)
    a[2:4].set([70, 80])
    assert a[1:5].get().tolist() == [9, 70, 80, 12]
    if session.machine.memories > 1:
        assert {
            m for part in session.directory.valid_regions[a.buffer.key] for m in range(3) if part.mask >> m & 1
        } > valid
    assert a.get().tolist() == [8, 9, 70, 80, 12, 13, 14, 15]


# dependences


def test_only_what_meets_is_ordered(session: Any) -> None:
    queue = mc.Queue(session=session)
    a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    low, high = a[: N // 2], a[N // 2 :]
    with queue.prepare() as prepared:
        PROGRAM.make(queue, (N // 2,), (4,), low, 1)  # 0
        PROGRAM.make(queue, (N // 2,), (4,), high, 2)  # 1: of others
        PROGRAM.add(queue, (N // 2,), (4,), b[: N // 2], low)  # 2: after 0
        PROGRAM.add(queue, (8,), (4,), b[N // 2 : N // 2 + 8], a[N // 2 - 4 : N // 2 + 4])  # 3: after 0 and 1
        PROGRAM.make(queue, (N,), (4,), a, 3)  # 4: after all who read it
        queue.fill(a[:4], 0)  # 5
        queue.copy(a[4:8], b[:4])  # 6: after 2 and 4
        queue.read(a[8:])  # 7: after 4
        queue.write(a[:8], range(8))  # 8: after 5 and 6
    graph = prepared.graph
    verify_graph(graph)
    assert graph.predecessors == ((), (), (0,), (0, 1), (1, 2, 3), (4,), (2, 4), (4,), (5, 6))
    assert graph.parts == {a.buffer.key, b.buffer.key}


def test_whole_buffers_are_not_looked_at_in_parts(session: Any) -> None:
    queue = mc.Queue(session=session)
    a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    with queue.prepare() as prepared:
        queue.copy(a, b[:])
        PROGRAM.make(queue, (N,), (4,), a.reshape(2, -1), 1)
        b.fill(3)
        queue.read(a)
    graph = prepared.graph
    assert not graph.parts
    assert graph.predecessors == ((), (0,), (0,), (1,))


@pytest.mark.usefixtures("collected")
def test_different_parts_run_on_different_devices(session: Any) -> None:
    """Each where it is: nothing moves between the devices."""
    queue = mc.Queue(session=session)
    a = queue.empty(N, np.int32)
    for half, device in ((a[: N // 2], 0), (a[N // 2 :], 1)) * 2:
        PROGRAM.make(queue, (N // 2,), (4,), half, 1 + device)
    plan = tuple(Assignment(n, n % 2, 0, 0.0, 0.0) for n in range(4))
    queue.policy = Plan(plan, "by hand", queue.devices, 0.0)
    queue.finish()
    assert not [e for e in queue.trace.events if type(e).__name__ == "TransferEvent"]
    one = np.arange(N // 2)
    assert (a.get() == np.concatenate([one + N // 8, 2 * one + N // 8])).all()


# kernels


@pytest.mark.parametrize("policy", ["auto", "balance", "eager"])
def test_views_of_one_array_in_one_launch(session: Any, policy: str) -> None:
    """What overlaps is not divided, and its order within the kernel is kept; what does not may be divided."""
    queue = mc.Queue(session=session, policy=policy)
    want = np.arange(N, dtype=np.int32)
    a = queue.array(want)
    PROGRAM.serial(queue, (1,), (1,), a[33:97], a[32:96], 64)
    want[33:97] = want[32] + np.arange(1, 65)  # one element after another
    PROGRAM.add(queue, (64,), (4,), a[:64], a[64:128])
    want[:64] += 3 * want[64:128]
    PROGRAM.add(queue, (64,), (4,), a[7:71], a[7:71])
    want[7:71] *= 4
    assert (a.get() == want).all()


def test_what_overlaps_is_not_divided(session: Any) -> None:
    queue = mc.Queue(session=session)
    a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    with queue.prepare() as prepared:
        PROGRAM.add(queue, (64,), (4,), a[:64], a[60:124])  # 0
        PROGRAM.pairs(queue, (64,), (4,), b[:64], a[:64], a[1:65])  # 1: both only read
        PROGRAM.add(queue, (64,), (4,), a[:64], a[64:128])  # 2
        PROGRAM.bins(queue, (64,), (4,), a[:4], a[64:128])  # 3
    splits = session.problem(prepared.graph).splits
    assert "x, y are views that overlap, and the kernel writes x" in splits.why(0)
    assert not splits.why(1)
    assert not splits.why(2)
    assert "has other parts of it" in splits.why(3)


@pytest.mark.usefixtures("collected")
def test_what_leaves_a_view_is_refused(session: Any) -> None:
    queue = mc.Queue(session=session)
    a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    PROGRAM.make(queue, (16,), (4,), a[8:23], 1)
    with pytest.raises(LaunchError, match=r"x\[15\] .* which has 15 elements, 60 bytes"):
        queue.finish()
    PROGRAM.make(queue, (16,), (4,), b[8:24], 1)
    queue.finish()


def test_vectors_begin_where_they_may(session: Any) -> None:
    queue = mc.Queue(session=session)
    program = mc.Program("kernel void v(global float4 *x) { x[get_global_id(0)] += 1; }")
    a = queue.zeros(16, np.float32)
    program.v(queue, (2,), (1,), a[4:12])
    with pytest.raises(LaunchError, match="begins at multiples of 16 bytes; the view begins at byte 4"):
        program.v(queue, (2,), (1,), a[1:9])
    assert a.get().tolist() == [0] * 4 + [1] * 8 + [0] * 4


def test_what_cannot_be_moved_is_copied(session: Any) -> None:
    """Pointers that a kernel looks at, or to constants, to where no part of a buffer may begin."""
    queue = mc.Queue(session=session)
    want = np.arange(N, dtype=np.int32)
    a, b = queue.array(want), queue.zeros(N, np.int32)
    PROGRAM.looks(queue, (8,), (4,), b[1:9], a[3:11])
    PROGRAM.constants(queue, (8,), (4,), b[5:13], a[5:13])
    assert len(queue) == 6
    right = np.zeros(N, np.int32)
    right[1:9] = want[3:11] | 1
    right[5:13] ^= want[5:13]
    assert (b.get() == right).all()
    with pytest.raises(LaunchError, match="overlap, the kernel writes one of them"):
        PROGRAM.looks(queue, (8,), (4,), a[1:9], a[3:11])
    PROGRAM.looks(queue, (8,), (4,), a[1:9], a[1:9])
    want[1:9] |= 1
    assert (a.get()[9:] == want[9:]).all()


def test_several_versions_of_a_kernel_take_views(session: Any) -> None:
    source = "kernel void up(global int *x) {{ x[get_global_id(0)] += {}; }}"
    one, two = (mc.Program(source.format(n)).kernel("up") for n in ("1", "2 - 1"))
    one.add_version(two, "cpu")
    queue = mc.Queue(session=session)
    a = queue.zeros(N, np.int32)
    for first in (0, 32, 5):
        one(queue, (8,), (4,), a[first : first + 8])
    want = np.zeros(N, np.int32)
    for first in (0, 32, 5):
        want[first : first + 8] += 1
    assert (a.get() == want).all()


@pytest.mark.parametrize("level", ["4", "5"])
@pytest.mark.parametrize("policy", ["auto", "eager"])
def test_views_while_all_is_looked_at(monkeypatch: pytest.MonkeyPatch, level: str, policy: str) -> None:
    """Invariants are checked, and buffers have red zones: a view's part lies between those of its buffer."""
    monkeypatch.setenv("MANYCL_DEBUG", level)
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setenv("MANYCL_BOUNDS", "off")
    with mc.Queue("cpu/2", policy=policy) as queue:
        a = queue.zeros(N, np.int32)
        for part in (a[:32], a[32:64], a[N - 5 :]):
            PROGRAM.make(queue, (part.size,), (1,), part, 1)
        want = np.zeros(N, np.int32)
        want[:64], want[-5:] = np.tile(np.arange(32) + 32, 2), np.arange(5) + 5
        assert (a.get() == want).all()
        if level == "5":
            PROGRAM.make(queue, (6,), (1,), a[N - 5 :], 1)
            with pytest.raises(ManyclError, match="it wrote outside of argument 0"):
                queue.finish()


# reads and writes


def test_reads_and_writes_are_nodes(session: Any) -> None:
    queue = mc.Queue(session=session)
    a = queue.zeros(8, np.int32)
    given = np.arange(8, dtype=np.int32)
    out = np.empty((2, 4), np.int32)
    with queue.prepare() as prepared:
        queue.write(a, given, copy=False)
        PROGRAM.add(queue, (4,), (4,), a[4:], a[:4])
        event = queue.read(a[4:])
        queue.read(a.reshape(2, 4), out)
    assert [node.name for node in prepared.graph.nodes] == ["write", "add", "read", "read"]
    for turn in range(4):
        given[:] = np.arange(8) * turn
        prepared.run()
        assert event.out.tolist() == [turn * (4 + i + 3 * i) for i in range(4)]
        assert out.tolist() == [[turn * i for i in range(4)], event.out.tolist()]
    queue.write(a[:2], [5, 6])
    late = queue.read(a[:2])
    late.wait()
    assert late.out.tolist() == [5, 6]


def test_what_cannot_be_read_or_written_is_refused(session: Any) -> None:
    queue = mc.Queue(session=session)
    a = queue.zeros(8, np.int32)
    fixed = np.zeros(8, np.int32)
    fixed.flags.writeable = False
    for out, said in (
        (fixed, "read-only"),
        (np.zeros(7, np.int32), "out has shape"),
        (np.zeros(8), "and type float64"),
    ):
        with pytest.raises(ResultError, match=said):
            queue.read(a, out)
    with pytest.raises(ArgumentError, match="out is a NumPy array or None"):
        queue.read(a, [0] * 8)  # type: ignore[arg-type]
    with pytest.raises(ResultError, match="contents have shape"):
        queue.write(a[:4], [1, 2])
    with pytest.raises(ResultError, match="do not fit"):
        queue.write(a, np.full(8, 1 << 40))
    with pytest.raises(ResultError, match="copy=False needs"):
        queue.write(a, np.zeros(8, np.int64), copy=False)
    with pytest.raises(ArgumentError, match="array is an Array"):
        queue.read(np.zeros(8))  # type: ignore[arg-type]
    with a.map(), pytest.raises(LaunchError, match="write: the array is mapped"):
        queue.write(a[:2], [1, 2])
    assert not len(queue)


def test_what_is_overwritten_by_the_host_is_not_brought(session: Any) -> None:
    queue = mc.Queue(session=session, policy="in_order")
    a = queue.zeros(N, np.int32)
    PROGRAM.make(queue, (N,), (4,), a, 1)
    queue.write(a, np.ones(N, np.int32))
    PROGRAM.add(queue, (N,), (4,), a, a)
    queue.finish()
    assert not [e for e in queue.trace.events if type(e).__name__ == "TransferEvent" and e.target == "host"]
    assert (a.get() == 4).all()


def test_graphs_are_told_apart_by_the_parts_they_touch(session: Any) -> None:
    """A graph that is enqueued again and again is recognised, on other arrays; not if it is on other parts."""
    queue = mc.Queue(session=session, policy="in_order")
    for turn in range(24):
        first = turn % 3 * 32
        a = queue.zeros(N, np.int32)
        PROGRAM.make(queue, (32,), (4,), a[first : first + 32], turn)
        PROGRAM.add(queue, (32,), (4,), a[96:128], a[first : first + 32])
        want = np.zeros(N, np.int32)
        want[first : first + 32] = np.arange(32) * turn + 8
        want[96:128] = 3 * want[first : first + 32]
        assert (a.get() == want).all()
