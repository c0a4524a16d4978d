"""Nodes that touch parts of buffers, against sets of bytes: just those that meet are ordered."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.analysis import parse_program
from manycl.errors import GraphError, LaunchError
from manycl.graph.access import needed, touched
from manycl.graph.copies import Place, copy_task, fill_task, read_task, write_task
from manycl.graph.dependences import GraphBuilder
from manycl.graph.division import NotDivisibleError, divide
from manycl.graph.graph import Buffer, BufferArg, Graph, Launch, Node
from manycl.graph.known import known_launch, shared_memory
from manycl.graph.rename import renamed
from manycl.region import NOTHING, Region
from tests.graph.graph_judge import verify

PROGRAM = parse_program("""
kernel void k(global int *a, global const int *b, global int *c) { a[0] = b[0]; c[0] += 1; }
kernel void each(global int *a, global const int *b) { a[get_global_id(0)] = b[get_global_id(0)] + 1; }
kernel void count(global int *a, global const int *b) { atomic_add(a, b[get_global_id(0)]); }
""")
SIZE = 24  # bytes
BUFFERS = {key: Buffer(key, SIZE) for key in range(2)}
SIZES = dict.fromkeys(BUFFERS, SIZE)
WHOLE = frozenset(range(SIZE))


class Made(NamedTuple):
    """A node, and the (buffer, byte) pairs that it reads and writes."""

    node: Node
    reads: frozenset[tuple[int, int]]
    writes: frozenset[tuple[int, int]]


@st.composite
def arguments(draw: Any) -> tuple[BufferArg, frozenset[tuple[int, int]]]:
    key = draw(st.integers(0, 1))
    if draw(st.booleans()):
        return BufferArg(key), frozenset((key, byte) for byte in WHOLE)
    first, count = draw(st.integers(0, SIZE // 4 - 1)), draw(st.integers(1, SIZE // 4))
    low, high = 4 * first, min(4 * (first + count), SIZE)
    return BufferArg(key, low, high - low), frozenset((key, byte) for byte in range(low, high))


@st.composite
def nodes(draw: Any) -> Made:
    kind = draw(st.sampled_from(["launch", "launch", "copy", "fill", "read", "write"]))
    (one, ours), (two, theirs), (three, others) = (draw(arguments()) for _ in range(3))
    places = [Place(BUFFERS[a.key], a.offset, a.size(SIZES)) for a in (one, two)]
    if kind == "fill":
        return Made(fill_task(places[0], b"\0\0\0\0"), frozenset(), ours)
    if kind == "copy":
        count = min(p.nbytes for p in places)
        if ours & theirs:
            return Made(read_task(one, None), ours, frozenset())  # type: ignore[arg-type]
        of = [frozenset((p.buffer.key, p.low + byte) for byte in range(count)) for p in places]
        return Made(copy_task(places[0], places[1], count), of[1], of[0])
    if kind == "read":
        return Made(read_task(one, None), ours, frozenset())  # type: ignore[arg-type]
    if kind == "write":
        return Made(write_task(one, None), frozenset(), ours)  # type: ignore[arg-type]
    kernel = PROGRAM.kernels["k"]
    reads = tuple(dict.fromkeys((two.key, three.key)))
    writes = tuple(dict.fromkeys((one.key, three.key)))
    launch = Launch("k", PROGRAM, kernel, (1,), None, (one, two, three), reads, writes)
    return Made(launch, theirs | others, ours | others)


def closed(edges: list[set[int]]) -> list[set[int]]:
    """All that each comes after."""
    out: list[set[int]] = []
    for before in edges:
        out.append(before.union(*(out[p] for p in before)))
    return out


@given(st.lists(nodes(), min_size=1, max_size=8), st.booleans())
def test_just_what_meets_is_ordered(given_nodes: list[Made], late: bool) -> None:
    """``late``: how large buffers are is not known when nodes are added."""
    builder = GraphBuilder()
    for buffer in () if late else BUFFERS.values():
        builder.adopt(buffer)
    for made in given_nodes:
        builder.add(made.node)
    for buffer in BUFFERS.values() if late else ():
        builder.adopt(buffer)
    graph = builder.build()
    verify(graph)
    meets: list[set[int]] = []
    for at, b in enumerate(given_nodes):
        before = ((i, a) for i, a in enumerate(given_nodes[:at]))
        meets.append({i for i, a in before if a.writes & (b.reads | b.writes) or a.reads & b.writes})
    assert closed([set(p) for p in graph.predecessors]) == closed(meets)
    for key in BUFFERS:
        touched_bytes = [{byte for k, byte in part if k == key} for made in given_nodes for part in made[1:]]
        views = [a for m in given_nodes for a in m.node.args if isinstance(a, BufferArg) and a.key == key and a.nbytes]
        partly = any(found and found != WHOLE for found in touched_bytes) or any(a.nbytes != SIZE for a in views)
        assert (key in graph.parts) <= partly
        assert (key in graph.parts) >= any(found and found != WHOLE for found in touched_bytes)


def bytes_of(regions: dict[int, Region]) -> set[tuple[int, int]]:
    return {(k, byte) for k, found in regions.items() for low, high in found.intervals for byte in range(low, high)}


@given(nodes())
def test_what_a_node_touches(made: Made) -> None:
    reads, writes = touched(made.node, SIZES)
    assert bytes_of(reads) == made.reads
    assert bytes_of(writes) == made.writes
    found = bytes_of(needed(made.node, SIZES))
    overwrites = not isinstance(made.node, Launch)
    assert found == (made.reads if overwrites else made.reads | made.writes)


@given(nodes(), nodes())
def test_the_judge_sees_what_is_not_ordered(one: Made, two: Made) -> None:
    graph = Graph((one.node, two.node), BUFFERS, ((), ()))
    if one.writes & (two.reads | two.writes) or one.reads & two.writes:
        with pytest.raises(GraphError, match="neither waits for the other"):
            verify(graph)
    else:
        verify(graph)


def test_many_parts_become_one_again() -> None:
    builder = GraphBuilder()
    big = builder.buffer(4096)
    for i in range(1024):
        builder.add(fill_task(Place(Buffer(big, 4096), 4 * i, 4), b"\0"))
    whole = builder.add(fill_task(Buffer(big, 4096), b"\0"))
    after = builder.add(fill_task(Place(Buffer(big, 4096), 8, 4), b"\0"))
    graph = builder.build()
    assert graph.predecessors[whole] == tuple(range(1024))
    assert graph.predecessors[after] == (whole,)


# launches


def each(kernel: str, *args: BufferArg, size: int = 4) -> Launch:
    found = PROGRAM.kernels[kernel]
    reads = tuple(a.key for a, f in zip(args, found.arguments, strict=True) if f.reads)
    writes = tuple(a.key for a, f in zip(args, found.arguments, strict=True) if f.writes)
    return Launch(kernel, PROGRAM, found, (size,), (1,), args, reads, writes)


def test_arguments_that_share_memory() -> None:
    args = {0: BufferArg(0), 1: BufferArg(0, 8, 8), 2: BufferArg(0, 8, 8), 3: BufferArg(1, 0, 8), 5: BufferArg(1, 8, 8)}
    same, overlapping = shared_memory(args, {i: a.size(SIZES) for i, a in args.items()})
    assert same == {2: 1}
    assert overlapping == {0, 1, 2}
    known = known_launch(each("each", BufferArg(0, 0, 16), BufferArg(0, 4, 16)), SIZES)
    assert (known.sizes, known.same, known.overlapping) == ({0: 16, 1: 16}, {}, {0, 1})


def test_ranges_touch_what_lies_behind_the_beginning_of_a_view() -> None:
    division = divide(each("each", BufferArg(0, 8, 16), BufferArg(1, 4, 16)), 0, SIZES)
    found = division.access(division.range(1, 2))
    assert (found[0].writes, found[0].reads, found[0].overwrites) == (Region.span(12, 20), NOTHING, True)
    assert found[1].reads == Region.span(8, 16)
    hull = division.hull(division.range(1, 2))
    assert hull is not None
    assert hull[0].writes == Region.span(12, 20)
    assert division.extent(0) == (8, 24)
    assert division is not divide(each("each", BufferArg(0, 4, 16), BufferArg(1, 4, 16)), 0, SIZES)


def test_what_cannot_be_divided() -> None:
    with pytest.raises(NotDivisibleError, match="a, b are views that overlap, and the kernel writes a"):
        divide(each("each", BufferArg(0, 0, 16), BufferArg(0, 4, 16)), 0, SIZES)
    with pytest.raises(NotDivisibleError, match="has other parts of it"):
        divide(each("count", BufferArg(0, 0, 4), BufferArg(0, 4, 16)), 0, SIZES)
    assert divide(each("each", BufferArg(0, 0, 8), BufferArg(0, 8, 8), size=2), 0, SIZES).groups == 2


def test_the_same_on_another_buffer() -> None:
    builder = GraphBuilder()
    for buffer in BUFFERS.values():
        builder.adopt(buffer)
    builder.add(each("each", BufferArg(0, 8, 16), BufferArg(1)))
    graph = renamed(builder.build(), {0: 1, 1: 0})
    assert graph.nodes[0].args == (BufferArg(1, 8, 16), BufferArg(0))
    assert graph.parts == {1}


def test_what_a_view_does_not_have_is_not_copied() -> None:
    a, b = Place(BUFFERS[0], 4, 8), Place(BUFFERS[1], 0, 12)
    with pytest.raises(LaunchError, match=r"copy: bytes 0 to 12 of the target, which has 8"):
        copy_task(a, b, 12)
    with pytest.raises(LaunchError, match="12 bytes from byte 0 on, the target 8"):
        copy_task(a, b)
    with pytest.raises(LaunchError, match=r"fill: bytes 4 to 12 of the target, which has 8"):
        fill_task(a, b"\0", 8, target_offset=4)
    task = copy_task(a, b, source_offset=4)
    assert (task.target_offset, task.source_offset, task.nbytes, task.overwrites) == (4, 4, 8, ())
