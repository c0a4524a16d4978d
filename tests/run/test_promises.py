"""Launches whose work-groups are only promised to be apart: divided on two memories, put together by difference,
checked against the undivided launch, and never divided again once the promise was broken."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.analysis import service
from manycl.analysis.known_launch import KnownLaunch
from manycl.graph.division import NotDivisibleError
from manycl.graph.reduction import PROMISES, Promises
from manycl.plan.plan import Assignment, Plan
from manycl.plan.splitting import Splits

N, GROUP, M = 512, 32, 4
SOURCE = """
kernel void scatter(global const int *p, global const float *x, global float *o) {
    int i = get_global_id(0); o[p[i]] = 2.0f * x[i];
}
kernel void flag(global int *changed, global const float *x, global float *o) {
    int i = get_global_id(0); o[i] = x[i] + 1.0f; if (x[i] > 0.75f) *changed = 1;
}
kernel void compact(global const float *x, global int *o, int m) {
    int i = get_global_id(0), c = 0; for (int j = 0; j < m; j++) if (x[i * m + j] > 0.5f) o[i * m + c++] = j + 1;
}
kernel void resize(global const float *x, global float *o, float s) {
    int i = get_global_id(0); o[convert_int_sat(sqrt(i * (float)i) * 1.0f)] = x[(int)(i * s)];
}
kernel void bfs(global const int *ends, global const int *to, global const uchar *front, global const uchar *seen,
                global uchar *next, global int *cost, global int *over, int n) {
    int t = get_global_id(0);
    if (t >= n || !front[t]) return;
    for (int e = ends[t]; e < ends[t + 1]; e++) {
        int v = to[e];
        if (!seen[v]) { cost[v] = cost[t] + 1; next[v] = 1; *over = 1; }
    }
}
kernel void bytes(global const int *p, global uint *o) { int i = get_global_id(0); ((global uchar *)o)[p[i]] = i; }
kernel void counted(global const int *p, global int *n, global int *o) {
    int i = get_global_id(0); o[p[i]] += 1; atomic_add(n, p[i]);
}
kernel void gotos(global const int *p, global const float *x, global float *o, int n) {
    int i = get_global_id(0), j = 0; float s = 0;
again:
    s += x[j]; j++;
    if (j < n) goto again;
    o[p[i]] = s + i;
}
kernel void ticket(global int *n, global int *o) { o[atomic_inc(n)] = get_global_id(0); }
kernel void chain(global const int *p, global float *x) { int i = get_global_id(0); x[p[i]] = x[p[i + 1]]; }
kernel void stencil(global float *x) { int i = get_global_id(0); x[i + 1] = x[i]; }
"""
WAITS = """
kernel void waits(global const int *p, volatile global int *o) { int i = get_global_id(0); o[p[i]] = i; }
"""
Random = np.random.default_rng(5)
Data = npt.NDArray[Any]


@pytest.fixture(scope="module")
def queue() -> Iterator[mc.Queue]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0")
        queue = mc.Queue("cpu/2#0-1")
    with queue:
        yield queue


class Folder(dict[bytes, object]):
    """What all processes find (in place of the user's folder)."""

    recall = dict.get
    note = dict.__setitem__


def forget() -> None:
    """Nothing is known of any kernel."""
    vars(PROMISES).update(vars(Promises()), others=Folder())


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    before = dict(vars(PROMISES))
    forget()
    yield
    vars(PROMISES).update(before)


class Case(NamedTuple):
    """A launch that is right to divide: its kernel, arguments, and what these are then."""

    kernel: str
    arguments: list[Any]
    expected: list[Data]


def scatter(n: int = N) -> Case:
    p, x = Random.permutation(n).astype(np.int32), Random.random(n, np.float32)
    o = np.zeros(n, np.float32)
    o[p] = 2 * x
    return Case("scatter", [p, x, np.zeros(n, np.float32)], [p, x, o])


def flag() -> Case:
    x = Random.random(N, np.float32)
    return Case("flag", [np.zeros(1, np.int32), x, 0 * x], [np.ones(1, np.int32), x, x + np.float32(1)])


def compact() -> Case:
    x = Random.random((N, M), np.float32)
    o = np.zeros((N, M), np.int32)
    for row, kept in zip(o, x > 0.5, strict=True):
        row[: kept.sum()] = np.flatnonzero(kept) + 1
    return Case("compact", [x, 0 * o, np.int32(M)], [x, o])


def resize() -> Case:
    x = Random.random(N, np.float32)
    return Case("resize", [x, 0 * x, np.float32(0.5)], [x, x[np.arange(N) // 2]])


def bfs() -> Case:
    ends, to = np.arange(0, 3 * N + 1, 3, np.int32), Random.integers(0, N, 3 * N).astype(np.int32)
    front, seen = (Random.random(N) < 0.2).astype(np.uint8), (Random.random(N) < 0.3).astype(np.uint8)
    seen |= front
    cost = np.where(front, 4, np.where(seen, 3, -1)).astype(np.int32)
    new = [v for t in np.flatnonzero(front) for v in to[ends[t] : ends[t + 1]] if not seen[v]]
    after, reached = cost.copy(), np.zeros(N, np.uint8)
    after[new], reached[new] = 5, 1
    given = [ends, to, front, seen, 0 * seen, cost, np.zeros(1, np.int32), np.int32(N)]
    return Case("bfs", given, [ends, to, front, seen, reached, after, np.ones(1, np.int32)])


def bytes_of_words() -> Case:
    p, o = Random.permutation(N).astype(np.int32), np.zeros(N, np.uint8)
    o[p] = np.arange(N)
    return Case("bytes", [p, np.zeros(N // 4, np.uint32)], [p, o.view(np.uint32)])


def counted() -> Case:
    p = Random.permutation(N).astype(np.int32)
    return Case("counted", [p, np.array([7], np.int32), p.copy()], [p, np.array([7 + p.sum()], np.int32), p + 1])


def gotos() -> Case:
    p, x, o = Random.permutation(N).astype(np.int32), np.ones(N, np.float32), np.zeros(N, np.float32)
    o[p] = 9 + np.arange(N)
    return Case("gotos", [p, x, 0 * x, np.int32(9)], [p, x, o])


CASES: list[Callable[[], Case]] = [scatter, flag, compact, resize, bfs, bytes_of_words, counted, gotos]


def kernel_of(name: str, source: str = SOURCE) -> mc.Kernel:
    """A kernel of whose written arguments work-groups are promised to be apart."""
    kernel: mc.Kernel = getattr(mc.Program(source), name)
    for argument in kernel.facts.arguments:
        if argument.kind == "buffer" and argument.writes:
            kernel.annotate(argument.name, apart=True)
    return kernel


def enqueued(queue: mc.Queue, kernel: mc.Kernel, arguments: list[Any], items: int = N) -> tuple[Any, list[Any]]:
    """A prepared launch, and its arrays."""
    given = [queue.array(a) if isinstance(a, np.ndarray) else a for a in arguments]
    with queue.prepare() as prepared:
        kernel(queue, (items,), (GROUP,), *given)
    return prepared, [a for a in given if not isinstance(a, np.generic)]


def parts(queue: mc.Queue, groups: int, cut: int) -> Plan:
    """One launch on two devices, each with memory of its own."""
    first = Assignment(0, 0, 0, 0.0, 0.0, 0, 0, cut)
    return Plan((first, first._replace(device=1, first=cut, groups=groups - cut)), "parts", queue.devices, 0.0)


def divided(queue: mc.Queue, case: Case, cut: int = N // GROUP // 2) -> tuple[Any, list[Data]]:
    """The result of a divided run, and what its arrays are then."""
    prepared, arrays = enqueued(queue, kernel_of(case.kernel), case.arguments)
    result = queue.session.run(prepared.graph, parts(queue, N // GROUP, cut))
    return result, [a.get() for a in arrays]


def methods(result: Any) -> list[str]:
    return [m.step.method for m in result.ranges(0)]


@pytest.mark.parametrize("make", CASES)
def test_the_first_run_is_the_undivided_one_and_others_are_divided(queue: mc.Queue, make: Callable[[], Case]) -> None:
    for turn in range(3):
        case = make()
        result, left = divided(queue, case)
        for name, (found, expected) in enumerate(zip(left, case.expected, strict=True)):
            assert found.tobytes() == expected.tobytes(), (turn, name)
        found = methods(result)
        assert len(found) == (2 if turn or make is flag else 0)  # (a flag needs no promise)
        assert make is flag or all("difference" in method for method in found)


TWICE = np.arange(N, dtype=np.int32) % (N // 2)
ONES = np.arange(N, dtype=np.float32) + 1


def test_a_promise_that_the_first_run_breaks_is_remembered_and_the_right_result_kept(queue: mc.Queue) -> None:
    kernel, half = kernel_of("scatter"), N // GROUP // 2
    prepared, (_, _, o) = enqueued(queue, kernel, [TWICE, ONES, 0 * ONES])
    assert 0 in Splits(prepared.graph)
    result = queue.session.run(prepared.graph, parts(queue, N // GROUP, half))
    assert not methods(result)
    left = o.get()
    assert np.isin(left[: N // 2], 2 * ONES).all()  # one of both values, as on one device
    assert not left[N // 2 :].any()
    # other arrays, and another process
    other = Promises()
    other.others = PROMISES.others
    for promises in (PROMISES, other):
        assert re.search("do not leave in o|of o$", promises.broken(kernel.program, kernel.facts))
    prepared, _ = enqueued(queue, kernel, scatter().arguments)
    assert "o" in Splits(prepared.graph).why(0)
    with pytest.raises(NotDivisibleError):
        queue.session.run(prepared.graph, parts(queue, N // GROUP, half))
    assert queue.session.run(prepared.graph, "balance").plan is not None  # policies run it whole
    # (without a promise nothing has changed)
    unpromised = mc.Program(SOURCE).scatter
    assert "promised to be apart" in Splits(enqueued(queue, unpromised, scatter().arguments)[0].graph).why(0)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    p=st.lists(st.integers(0, 15), min_size=16, max_size=16),
    old=st.lists(st.integers(0, 3), min_size=16, max_size=16),
    new=st.lists(st.integers(0, 3), min_size=16, max_size=16),
    cut=st.integers(1, 3),
)
def test_devices_that_write_different_values_to_an_element_are_found_in_later_runs(
    queue: mc.Queue, p: list[int], old: list[int], new: list[int], cut: int
) -> None:
    """Each byte of 16, written by 16 work-items in four groups."""
    kernel = LATER
    whole = np.arange(16, dtype=np.int32)
    results = []
    for places in (whole, np.array(p, np.int32)):
        given = [queue.array(a) for a in (places, np.array(new, np.int32), np.array(old, np.int32))]
        with queue.prepare() as prepared:
            kernel(queue, (16,), (4,), *given)
        results.append(queue.session.run(prepared.graph, parts(queue, 4, cut)))
    assert len(methods(results[-1])) == 2
    left = given[2].get()
    written = [{i // 4 >= cut: set() for i in (0, 15)} for _ in whole]
    for i, place in enumerate(p):
        written[place][i // 4 >= cut].add(new[i])
    for element, (first, second) in enumerate((w[False], w[True]) for w in written):
        assert left[element] in (first | second or {old[element]})
    # what a device leaves in an element is known where its work-items write one value only
    certain = [
        (*f, *s, o)
        for (f, s), o in zip(((w[False], w[True]) for w in written), old, strict=True)
        if len(f) == len(s) == 1
    ]
    if any(f != o and s != o and f != s for f, s, o in certain):
        assert PROMISES.broken(kernel.program, kernel.facts)
    elif all(len(w[False] | w[True]) < 2 for w in written):
        assert not PROMISES.broken(kernel.program, kernel.facts)
    forget()


LATER = kernel_of(
    "later",
    "kernel void later(global const int *p, global const int *x, global int *o) "
    "{ int i = get_global_id(0); o[p[i]] = x[i]; }",
)


@pytest.mark.parametrize(
    ("kernel", "source", "why"),
    [
        ("ticket", SOURCE, "atomic inc"),  # what one group does tells another one where to write
        ("stencil", SOURCE, "line"),  # groups certainly meet
        ("waits", WAITS, "line"),  # groups may wait for one another
    ],
)
def test_promises_that_cannot_be_true_or_checked_do_not_count(
    queue: mc.Queue, kernel: str, source: str, why: str
) -> None:
    found = kernel_of(kernel, source)
    buffers = [a for a in found.facts.arguments if a.kind == "buffer"]
    prepared, _ = enqueued(
        queue, found, [np.zeros(N + 1, np.int32).astype(np.float32 if a.base == "float" else np.int32) for a in buffers]
    )
    assert why in (reason := Splits(prepared.graph).why(0))
    assert "promised" not in reason


@pytest.mark.parametrize(
    ("statement", "is_right"),
    [
        ("if (x[i] > 9) *o = 7;", True),
        ("o[x[i] & 63] = 7; if (x[i] > 3) o[3] = 7;", True),
        ("*o = 7;", True),
        ("if (x[i] > 9) *o = v;", True),  # the same for all work-items
        ("((global uchar *)o)[x[i] & 31] = 0x7;", True),
        ("if (x[i] > 9) *o = 7; else *o = 8;", False),
        ("if (x[i] > 9) *o = i;", False),
        ("if (x[i] > 9) *o = x[i];", False),
        ("if (x[i] > 9) *o += 7;", False),  # reads what others write
        ("if (*o) o[x[i] & 63] = 0;", False),
        ("o[x[i] & 63] = 0x70007; ((global short *)o)[1] = 7;", False),  # elements that overlap
        ("*(global int *)((global char *)o + (x[i] & 15)) = 7;", False),
        ("int c = 7; for (int j = 0; j < x[i]; j++) c = c * 2; o[x[i] & 63] = c;", False),
    ],
)
def test_one_value_may_be_written_by_anybody_without_a_promise(queue: mc.Queue, statement: str, is_right: bool) -> None:
    source = f"kernel void k(global const int *x, global int *o, int v) {{ int i = get_global_id(0); {statement} }}"
    x, o = Random.integers(0, 64, N).astype(np.int32), np.full(64, -1, np.int32)
    prepared, (_, found) = enqueued(queue, mc.Program(source).k, [x, o, np.int32(7)])
    splits = Splits(prepared.graph)
    assert (0 in splits) is is_right, splits.why(0)
    if not is_right:
        return
    queue.session.run(prepared.graph, parts(queue, N // GROUP, 5))
    with mc.Queue("cpu/2#0") as alone:
        graph, (_, whole) = enqueued(alone, mc.Program(source).k, [x, o, np.int32(7)])
        graph.run()
        assert found.get().tobytes() == whole.get().tobytes()


def test_in_one_memory_nothing_is_copied() -> None:
    with mc.Queue("cpu/2#0-1") as queue:
        for _ in range(2):
            result, left = divided(queue, case := scatter())
            assert all(f.tobytes() == e.tobytes() for f, e in zip(left, case.expected, strict=True))
        assert methods(result) == ["in place", "in place"]


def test_the_environment_promises_it_of_all_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_APART", "1")
    promised = [a.name for a in mc.Program(SOURCE).bfs.annotations if a.apart]
    assert promised == ["next", "cost", "over"]


def test_launches_that_store_other_values_are_one_question() -> None:
    """What is stored counts only as far as it is the same."""
    source = (
        "kernel void k(global int *o, global int *p, int v, int w) { o[get_global_id(0)] = v; p[0] = v; p[0] = w; }"
    )
    program, found = mc.Program(source), []
    for values in ((3, 4), (5, 6), (7, 7)):
        scalars = {2 + i: np.int32(v).tobytes() for i, v in enumerate(values)}
        found.append(service.launched(program.facts, "k", KnownLaunch((N,), (GROUP,), (), scalars, {0: 4 * N, 1: 4})))
    assert [f.split(0).splittable for f in found] == [False, False, True]
    summary = found[0].summary
    assert [a.stored for a in summary.accesses] == [3, 3, 4]

    def touching(*stored: int) -> str:
        pairs = zip(summary.accesses, stored, strict=True)
        return replace(summary, accesses=tuple(replace(a, stored=value) for a, value in pairs)).touching

    assert summary.touching == touching(8, 8, 0) != touching(3, 3, 3)


MIXED = """
kernel void mixed(global const int *b, global int *sums, global int *marks, global int *own, global int *most, int n) {
    int i = get_global_id(0);
    local int base;
    if (get_local_id(0) == 0) base = 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i >= n) return;
    sums[b[i]] += base + i; marks[b[i]] = i; own[i] += 1; atomic_max(most, b[i]);
}
"""


def mixed(b: Data, given: list[Data]) -> list[Data]:
    """What the kernel leaves where its work-items run one after another."""
    sums, marks, own, most = (a.copy() for a in given)
    for i, place in enumerate(b):
        sums[place] += 1 + i
        marks[place] = i
        own[i] += 1
        most[0] = max(most[0], place)
    return [sums, marks, own, most]


@pytest.mark.parametrize("cut", [1, 5, N // GROUP - 1])
def test_a_conflict_in_a_later_run_has_the_launch_run_undivided_from_the_old_contents(cut: int) -> None:
    """Each device has one thread, so what the undivided launch leaves is known."""
    kernel, groups = kernel_of("mixed", MIXED), N // GROUP
    arrays = [Random.integers(0, 9, n).astype(np.int32) for n in (N, N, N, 1)]
    contents = [Random.permutation(N).astype(np.int32) for _ in range(2)]  # (the first run compares)
    contents.append(np.where(np.arange(N) == N - 1, contents[1][0], contents[1]).astype(np.int32))  # one element
    contents.append(Random.integers(0, N // 8, N).astype(np.int32))  # nearly all
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0")
        queue = mc.Queue(f"cpu/{os.environ['MANYCL_THREADS']}#0-1")
    with queue:
        for conflicting in (2, 3):
            forget()
            for b in (*contents[:2], contents[conflicting]):
                assert not PROMISES.broken(kernel.program, kernel.facts)
                prepared, (_, *found) = enqueued(queue, kernel, [b, *arrays, np.int32(N)])
                result = queue.session.run(prepared.graph, parts(queue, groups, cut))
                for array, expected in zip(found, mixed(b, arrays), strict=True):
                    assert array.get().tobytes() == expected.tobytes()
            assert len(methods(result)) == 2
            assert PROMISES.broken(kernel.program, kernel.facts)
