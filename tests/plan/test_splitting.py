"""How launches may be split, as a person reads it from the kernels; ranges stay within their linear regions."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manycl.analysis import parse_program, service
from manycl.analysis.annotations import annotation
from manycl.analysis.launched import LaunchFacts
from manycl.analysis.service import launched
from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.division import divide
from manycl.graph.graph import BufferArg, BufferKey, Graph, HostTask, Launch
from manycl.graph.known import known_launch
from manycl.graph.reduction import Reduction
from manycl.graph.work_groups import ungathered, with_work_groups
from manycl.group_range import GroupRange
from manycl.plan import splitting
from manycl.plan.split import LinearRegion, Split
from manycl.plan.splitting import LATER, Splits, split_of
from manycl.plan.tuning import PLANNING

N = 64
SOURCE = """
kernel void gemm(global const float *a, global const float *b, global float *c, int n) {
    int i = get_global_id(0), j = get_global_id(1);
    float s = 0;
    for (int k = 0; k < n; k++) s += a[j * n + k] * b[k * n + i];
    c[j * n + i] = s;
}
kernel void stencil(global const float *a, global float *b, int n) {
    int i = get_global_id(0), j = get_global_id(1);
    if (i > 0 && j > 0 && i < n - 1 && j < n - 1) b[j * n + i] = a[(j - 1) * n + i] + a[(j + 1) * n + i];
}
kernel void columns(global const float *a, global float *b, int n) {
    for (int j = 0; j < n; j++) b[j * n + get_global_id(0)] = a[j * n + get_global_id(0)];
}
kernel void twice(global float *x) { x[get_global_id(0)] *= 2; }
kernel void histogram(global const uchar *s, global int *bins) { atomic_inc(&bins[s[get_global_id(0)] & 15]); }
kernel void scatter(global const int *to, global float *x) { x[to[get_global_id(0)]] = 1; }
kernel void scatter_all(global const int *to, global float *x, global float *y) {
    int i = get_global_id(0);
    if (y[i] > 0) x[to[i]] = 1;
    y[i] = 0;
}
kernel void shift(global float *x) { x[get_global_id(0)] = x[get_global_id(0) + 1]; }
kernel void bits(global const uchar *s, global float *bins) {
    atomic_inc((volatile global int *)&bins[s[get_global_id(0)] & 15]);
}
kernel void unsigned_least(global const uchar *s, global int *bins) {
    atomic_min((volatile global uint *)&bins[s[get_global_id(0)] & 15], s[get_global_id(0)]);
}
kernel void wide(global const uchar *s, global int *bins) {
    atom_add((volatile global long *)&bins[s[get_global_id(0)] & 14], (long)s[get_global_id(0)]);
}
kernel void unsigned_count(global const uchar *s, global int *bins) {
    atomic_inc((volatile global uint *)&bins[s[get_global_id(0)] & 15]);
}
"""
PROGRAM = parse_program(SOURCE)
ONE_GROUP = "it has one work-group"
GROUPED = parse_program("kernel void grouped(global float *x) { x[get_global_id(0)] = get_local_size(0); }")
ROW, AREA = 4 * N, 4 * N * N


def launch(name: str, size: tuple[int, ...], local: tuple[int, ...] | None, *args: object) -> Launch:
    program = GROUPED if name == "grouped" else PROGRAM
    facts = program.kernels[name]
    given = tuple(BufferArg(a) if isinstance(a, int) else np.int32(int(str(a))).tobytes() for a in args)
    of = {a.key: facts.arguments[i] for i, a in enumerate(given) if isinstance(a, BufferArg)}
    reads = tuple(k for k, f in of.items() if f.reads)
    return Launch(name, program, facts, size, local, given, reads, tuple(k for k, f in of.items() if f.writes))


def annotated(given: Launch) -> Launch:
    """With the promise that the elements of ``to`` all differ."""
    return replace(given, annotations=(annotation(given.kernel, "to", distinct=True),))


GEMM = launch("gemm", (N, N), (4, 8), 0, 1, 2, f"{N}")
STENCIL = launch("stencil", (N, N), (4, 8), 0, 1, f"{N}")
COLUMNS = launch("columns", (N,), (8,), 0, 1, f"{N}")
TWICE = launch("twice", (N * N,), (16,), 0)


def test_rows_are_preferred_and_what_all_groups_read_has_no_slice() -> None:
    assert split_of(GEMM, dict.fromkeys(range(3), AREA)) == Split(
        1, 8, {0: LinearRegion(8 * ROW, 8 * ROW), 2: LinearRegion(8 * ROW)}
    )


def test_a_stencil_reads_a_halo() -> None:
    found = split_of(STENCIL, dict.fromkeys(range(2), AREA))
    assert isinstance(found, Split)
    assert (found.dimension, found.groups, found.merge) == (1, 8, Reduction.NONE)
    # all but the ends of a row
    assert found.regions[0] == LinearRegion(8 * ROW, 10 * ROW - 8, 4 - ROW)
    assert found.regions[1] == LinearRegion(8 * ROW, 0, 4)


def test_columns_count_as_many_bytes_as_they_are() -> None:
    found = split_of(COLUMNS, dict.fromkeys(range(2), AREA))
    assert found == Split(0, 8, {1: LinearRegion(AREA // 8)})


def test_what_is_read_and_written_moves_with_its_groups() -> None:
    assert split_of(TWICE, {0: AREA}) == Split(0, 256, {0: LinearRegion(64)})


@pytest.mark.parametrize(
    ("items", "groups"),
    [(4096, 16), (48, 3), (8, ONE_GROUP), (1000, 4), (257, 257), (63, ONE_GROUP)],
)
def test_work_groups_that_the_kernel_cannot_tell_are_chosen(items: int, groups: int | str) -> None:
    found = split_of(launch("twice", (items,), None, 0), {0: 4 * items})
    assert (found.groups if isinstance(found, Split) else found) == groups


def test_what_nothing_merges_is_not_split() -> None:
    """Planned as lowering would have it: the same launch is refused there."""
    task, sizes = launch("bits", (1024,), (64,), 0, 1), {0: 1024, 1: 64}
    reason = "atomic operations on elements of type float cannot be merged"
    assert split_of(task, sizes) == reason
    with pytest.raises(PolicyError, match=reason):
        divide(task, 0, sizes)


@pytest.mark.parametrize("name", ["unsigned_least", "wide"])
def test_atomics_of_another_type_than_the_array_s_are_not_merged(name: str) -> None:
    found = split_of(launch(name, (1024,), (64,), 0, 1), {0: 1024, 1: 64})
    assert isinstance(found, str)
    assert "writes elements that other groups write too" in found
    counted = split_of(launch("unsigned_count", (1024,), (64,), 0, 1), {0: 1024, 1: 64})
    assert isinstance(counted, Split)
    assert counted.merge is Reduction.DIFFERENCE


def test_atomics_and_what_nobody_knows_are_merged() -> None:
    histogram = launch("histogram", (1024,), (64,), 0, 1)
    assert split_of(histogram, {0: 1024, 1: 64}) == Split(0, 16, {0: LinearRegion(64, 64)}, Reduction.DIFFERENCE)
    distinct = annotated(launch("scatter", (64,), (16,), 0, 1))
    assert split_of(distinct, {0: 256, 1: 256}) == Split(0, 4, {0: LinearRegion(64, 64)}, Reduction.SCATTER)
    distinct = annotated(launch("scatter_all", (64,), (16,), 0, 1, 2))
    assert split_of(distinct, {0: 256, 1: 256, 2: 256}) == Split(0, 4, {0: LinearRegion(64, 64)}, Reduction.DIFFERENCE)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (launch("shift", (64,), (16,), 0), "x: line 23 reads elements that line 23 writes of other groups"),
        (launch("scatter", (64,), (16,), 0, 1), "x: line 17 writes elements that other groups write too"),
        (launch("twice", (64,), (64,), 0), "it has one work-group"),
        (
            launch("grouped", (64,), None, 0),
            "its local size is left to the driver, and the kernel may tell which it is: line 1 calls get_local_size",
        ),
    ],
)
def test_why_not(given: Launch, why: str) -> None:
    found = split_of(given, {0: 260, 1: 256})
    assert isinstance(found, str)
    assert found.startswith(why)


@pytest.mark.parametrize("given", [GEMM, STENCIL, COLUMNS, TWICE])
def test_every_range_stays_within_its_slices(given: Launch) -> None:
    sizes = dict.fromkeys(range(3), AREA)
    split = split_of(given, sizes)
    assert isinstance(split, Split)
    split.check(given.reads, given.writes)
    facts = launched(PROGRAM, given.name, known_launch(given, sizes))
    for key, part in split.regions.items():
        if part == LinearRegion(AREA // 8):
            continue  # columns: not where they are, only how many
        for first in range(split.groups):
            for count in {1, 2, split.groups - first} & set(range(1, split.groups - first + 1)):
                low, high = part.bounds(first, count, AREA)
                kinds = ("read", "write")
                groups = GroupRange(split.dimension, first, count)
                rectangles = [b for kind in kinds for b in facts.region(key, kind, groups).rectangles]
                assert all(low <= b.offset and b.end <= high for b in rectangles)


def test_of_a_graph_only_what_is_asked_for_is_analysed(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = GraphBuilder()
    for _ in range(3):
        builder.buffer(AREA)
    for node in (GEMM, TWICE, HostTask("host", print, (), (0,), (0,)), launch("shift", (64,), (16,), 0)):
        builder.add(node)
    graph = builder.build()
    asked: list[str] = []

    def counted(task: Launch, sizes: dict[int, int], *more: Any) -> Split | str:
        asked.append(task.name)
        return split_of(task, sizes, *more)

    monkeypatch.setattr("manycl.plan.splitting.split_of", counted)
    splits = Splits(graph)
    assert splits.get(1) == Split(0, 256, {0: LinearRegion(64)})
    assert asked == ["twice"]
    assert 7 not in splits
    assert list(splits) == [0, 1]
    assert len(splits) == 2
    assert splits.why(2) == "it is a host function"
    assert splits.why(3).startswith("x: line")
    assert splits.why(0) == ""
    with pytest.raises(KeyError):
        splits[3]
    assert sorted(asked) == ["gemm", "shift", "twice"]


def values_of(body: str, values: range) -> Graph:
    """Launches of a kernel that differ in a scalar only."""
    program = parse_program(f"kernel void k(global float *x, int n) {{ int i = get_global_id(0); {body} }}")
    builder = GraphBuilder()
    builder.buffer(AREA)
    for n in values:
        args = BufferArg(0), np.int32(n).tobytes()
        builder.add(Launch("k", program, program.kernels["k"], (64,), (16,), args, (0,), (0,)))
    return builder.build()


def test_of_values_of_a_scalar_a_plan_waits_for_as_many_as_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing holds for all values of the first kernel; the second one's accesses only move."""
    graph = values_of("x[i ^ n] = 1; /* how a plan waits */", range(1, 13))
    first = 4
    monkeypatch.setattr(splitting, "PLANNING", PLANNING._replace(first_values=first))
    splits = Splits(graph, seconds=lambda node: 0.0)
    assert list(splits) == [*range(first)]
    assert splits.why(first) == LATER
    assert list(Splits(graph, seconds=lambda node: 0.1 * (node == 11))) == [*range(first), 11]
    assert list(Splits(graph)) == [*range(12)]
    assert list(Splits(graph, seconds=lambda node: 0.0)) == [*range(12)]  # they are known
    moving = values_of("if (i + n < 1000) x[i + n] = 1;", range(16))
    assert list(Splits(moving, seconds=lambda node: 0.0)) == [*range(16)]


def test_a_value_takes_a_few_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranges that linear regions are told by are asked about together; the answers are those of single ones."""
    asked: list[object] = []
    answer = service._answer

    def counted(question: Any, seconds: float) -> Any:
        if not isinstance(question, tuple):  # else it is a source
            asked.append(question.what)
        return answer(question, seconds)

    monkeypatch.setattr(service, "_answer", counted)
    body = "if (i < 1 << 9) { int at = i / n * 2 * n + i % n; x[at] += x[at + n]; x[at + n] = 1; } /* asked for once */"
    found = [split_of(graph.nodes[0], {0: AREA}) for n in (3, 5) for graph in [values_of(body, range(n, n + 1))]]  # type: ignore[arg-type]
    assert all(isinstance(split, Split) for split in found)
    assert asked == ["split", "sub_kernel", "several", "several", "split", "several", "several"]  # (halves are apart)
    monkeypatch.setattr(LaunchFacts, "foresee", lambda facts, regions: None)
    graph = values_of(body.replace("= 1;", "= 2;"), range(5, 6))
    assert split_of(graph.nodes[0], {0: AREA}) == found[1]  # type: ignore[arg-type]
    assert asked.count("region") > 2


def test_threads_that_ask_the_same_have_one_find_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = values_of("x[(i ^ n) + 1] = 1;", range(5, 6))
    answers: list[Split | str] = []
    asked: list[object] = []
    found_out = splitting._found_out
    second = threading.Thread(target=lambda: answers.append(split_of(graph.nodes[0], {0: AREA})))  # type: ignore[arg-type]

    def found(question: Any, sizes: Any) -> Split | str:
        asked.append(question)
        if len(asked) == 1:
            second.start()
            second.join(0.2)  # it waits for this thread
        return found_out(question, sizes)

    monkeypatch.setattr(splitting, "_found_out", found)
    mine = split_of(graph.nodes[0], {0: AREA})  # type: ignore[arg-type]
    second.join()
    assert answers == [mine]
    assert len(asked) == 1


def test_a_merge_that_reads_is_by_difference() -> None:
    Split(0, 4, {}, Reduction.DIFFERENCE).check((1,), (1,))
    with pytest.raises(PolicyError, match="merged by difference"):
        Split(0, 4, {}, Reduction.SCATTER).check((1,), (1,))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("x[get_global_id(0)] = get_group_id(0);", "line 2 calls get_group_id"),
        ("x[get_global_id(0)] = 1; barrier(CLK_GLOBAL_MEM_FENCE); x[1] += 1;", "line 2 calls barrier"),
        ("float t = x[1]; barrier(CLK_GLOBAL_MEM_FENCE); x[get_global_id(0)] = t;", "line 2 calls barrier"),
        ("for (int i = 0; i < 2; i++) barrier(CLK_GLOBAL_MEM_FENCE);", "line 2 calls barrier"),
        ("put(x); barrier(CLK_GLOBAL_MEM_FENCE); put(x + 1);", "line 2 calls barrier"),
        ("global float *y = *(global float **)x; barrier(CLK_GLOBAL_MEM_FENCE); y[0] = 1;", "line 2 calls barrier"),
        ("atomic_work_item_fence(0, 0, 0); barrier(CLK_GLOBAL_MEM_FENCE); x[1] = 1;", "line 2 calls barrier"),
        ("float t, u = twice(&t); barrier(CLK_GLOBAL_MEM_FENCE); x[get_global_id(0)] = t + u;", ""),
        ("x[get_global_id(0)] = 1; barrier(CLK_GLOBAL_MEM_FENCE);", ""),
        ("local float t; t = 1; x[get_global_id(0)] = t;", "line 2 has local memory"),
        ("x[get_global_id(0)] = helper();", "line 3 of helper.h calls get_num_groups"),
        ("x[get_global_id(0)] = work_group_reduce_add(1);", "line 2 calls work_group_reduce_add"),
        ("x[get_global_id(0)] = get_global_size(0) + get_global_offset(0);", ""),
        ("int barrier_id = get_global_id(0); x[barrier_id] = local_group(2);", ""),
        ("/* barrier(), get_local_id(0) */ x[get_global_id(0)] = 1;", ""),
    ],
)
def test_by_what_a_kernel_tells_its_groups(body: str, why: str, tmp_path: Path) -> None:
    """What is said in comments, by names of the program's own, or by other kernels, says nothing; what a function
    says that is included does."""
    (tmp_path / "helper.h").write_text(
        "int local_group(int a) { return a; }\n\nint helper() { return get_num_groups(0); }\n"
        "float twice(float *p) { *p = 2; return *p + *p; }\nvoid put(global float *p) { *p = 1; }\n"
    )
    other = "kernel void other(global float *x) { x[get_local_id(0)] = 0; }"
    source = f"kernel void k(global float *x) {{ {body} }}\n{other}\n"
    program = parse_program(f'#include "helper.h"\n{source}', options=("-cl-std=CL2.0", f"-I{tmp_path}"))
    facts = program.kernels["k"]
    assert facts.sees_groups == why
    given = Launch("k", program, facts, (1000,), None, (BufferArg(0),), (), (0,))
    assert (with_work_groups(given).local_size is None) == bool(why)


@pytest.mark.parametrize(("args", "is_one"), [((0, 1), False), ((0, 0), True)])
def test_barriers_between_two_buffers_order_nothing_unless_they_are_one(args: tuple[int, ...], is_one: bool) -> None:
    program = parse_program(
        "kernel void k(global float *x, global float *y) {"
        " float t = y[get_global_id(0) ^ 1]; barrier(CLK_GLOBAL_MEM_FENCE); x[get_global_id(0)] = t; }"
    )
    facts = program.kernels["k"]
    assert (facts.sees_groups, facts.sees_groups_shared) == ("", "line 1 calls barrier")
    keys = tuple(map(BufferKey, args))
    given = Launch("k", program, facts, (1000,), None, tuple(map(BufferArg, keys)), keys[1:], keys[:1])
    assert (with_work_groups(given).local_size is None) == is_one
    assert (ungathered(given).local_size is None) == is_one


def test_local_memory_tells_groups() -> None:
    facts = parse_program("kernel void k(global float *x, local float *t) { x[get_global_id(0)] = 0; }").kernels["k"]
    assert facts.sees_groups == "argument t is local memory"
