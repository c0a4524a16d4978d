"""Which step comes after which: against what steps of different rounds do to the same pieces. Into which pieces buffers
fall."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.graph.access import Access
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Buffer, BufferArg, Launch, Piece
from manycl.machine import HOST, Device, DeviceIndex, Link, Machine
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion, Split
from manycl.region import NOTHING, Rectangle, Region, holders, partition, union
from manycl.run.data.coherence import Directory, ValidRegion
from manycl.run.lowering.lower import lower
from manycl.run.lowering.partition import Cut, Order, chunks
from tests.run.chaos.test_state import Unit

N = 64

pieces = st.frozensets(st.integers(0, 3), max_size=3)
regions = st.sets(st.tuples(st.integers(0, N), st.integers(0, N)), max_size=6).map(
    lambda ends: Region.of(np.array([a for a, _ in ends], np.int64), np.array([b for _, b in ends], np.int64))
)
rounds = st.lists(st.lists(st.tuples(pieces, pieces), min_size=1, max_size=3), min_size=1, max_size=5)


@given(rounds)
def test_steps_wait_for_those_of_earlier_rounds_that_they_meet_and_for_no_others(
    given_rounds: list[list[tuple[frozenset[int], frozenset[int]]]],
) -> None:
    order = Order()
    steps: list[tuple[int, frozenset[int], frozenset[int]]] = []
    for number, members in enumerate(given_rounds):
        order.begin()
        for reads, writes in members:
            order.add(len(steps), sorted(reads), sorted(writes), ())
            steps.append((number, reads, writes))
        order.end()
    assert len(order.predecessors) == len(steps)
    before: list[set[int]] = []
    for step, (number, reads, writes) in enumerate(steps):
        direct = order.predecessors[step]
        assert list(direct) == sorted(set(direct))
        before.append({*direct, *(p for d in direct for p in before[d])})
        for other, (earlier, other_reads, other_writes) in enumerate(steps[:step]):
            if other in direct:
                assert earlier < number
                assert (reads | writes) & (other_reads | other_writes)
            if earlier < number and (other_writes & (reads | writes) or writes & other_reads):
                assert other in before[step], f"{step} does not wait for {other}"


@given(st.lists(st.sets(st.integers(0, 20)), min_size=1, max_size=4))
def test_what_is_said_to_come_before_does(given_before: list[set[int]]) -> None:
    order = Order()
    for number, before in enumerate(given_before):
        order.begin()
        order.add(30 + number, (), (), before)
        order.end()
    assert [set(p) for p in order.predecessors] == given_before


@given(st.integers(0, 40), st.integers(1, 80), st.integers(0, 40), st.sampled_from(["", "named"]))
def test_what_is_used_as_a_whole_stays_whole_and_pieces_say_what_they_are_of(
    most: int, nbytes: int, low: int, name: str
) -> None:
    """However large it is; else nothing is much larger than asked for, and all of it is there once."""
    buffers = {1: Buffer(1, nbytes, "whole"), 2: Buffer(2, nbytes, name)}
    everything, part = Region.span(0, nbytes), Region.span(min(low, nbytes), nbytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("manycl.run.lowering.partition.PAGE", 1)
        cut = Cut(dict.fromkeys(buffers, nbytes), Directory(), most)
        cut.add({key: Access(everything, NOTHING, False) for key in buffers})
        cut.add({2: Access(everything, part, False)})
        cut.make(buffers)
    assert cut.of({1: Access(everything, everything, True)}) == ((1,), (1,), (1,))
    assert cut.buffers[1] is buffers[1]
    found, written, gone = cut.of({2: Access(everything, part, False)})
    assert set(written) <= set(found)
    assert gone == ()
    assert cut.of({1: Access(NOTHING, NOTHING, True), 2: Access(NOTHING, part, True)}) == ((), written, written)
    if 0 < low < nbytes:
        made = [cut.buffers[key] for key in found]
        assert all(isinstance(b, Piece) and b.whole == 2 and b.name == (name or "buffer 2") for b in made)
        assert sorted(i for b in made for i in range(*bounds(b))) == list(range(nbytes))
        assert all(b.nbytes == bounds(b)[1] - bounds(b)[0] < (2 * most or nbytes) for b in made)
        assert {i for k in written for i in range(*bounds(cut.buffers[k]))} == set(range(low, nbytes))
        assert cut.cut == {2: {k: cut.buffers[k].region for k in found}}  # type: ignore[attr-defined]
    else:
        assert found == (2,)
        assert not cut.cut


def bounds(buffer: Buffer) -> tuple[int, int]:
    assert isinstance(buffer, Piece)
    (interval,) = buffer.region.intervals
    return interval


@settings(max_examples=200)
@given(st.integers(0, 99), st.integers(1, 60_000), st.integers(0, 9), st.integers(1, 30), st.integers(5000, 30_000))
def test_large_pieces_fall_into_chunks(offset: int, width: int, gap: int, rows: int, most: int) -> None:
    region = Region.of_rectangles([Rectangle(offset, width, width + gap, rows)])
    found = chunks(region, most)
    assert union(found) == region
    assert sum(f.nbytes for f in found) == region.nbytes
    width = region.rectangles[0].width
    assert all(len(f.rectangles) == 1 and f.nbytes <= 2 * most + max(4096, width) for f in found)
    assert len(found) > 1 or region.nbytes < 2 * most or len(region.intervals) == 1


@settings(max_examples=200)
@given(st.lists(regions, max_size=4), st.lists(st.integers(0, 7), min_size=16, max_size=16), st.data())
def test_a_directory_comes_back_from_pieces_as_it_was(
    sets: list[Region], masks: list[int], data: st.DataObject
) -> None:
    directory = Directory()
    start, _ = partition(N, sets)
    groups: dict[int, list[Any]] = {}
    for region, places in zip(start, masks, strict=False):
        groups.setdefault(places, []).append(region)
    if len(groups) > 1:
        directory.valid_regions[0] = tuple(ValidRegion(union(g), m) for m, g in groups.items())
    elif places := next(iter(groups)):
        directory.valid[0] = places
    held = {m: bytes_of(union(g)) for m, g in groups.items()}
    directory.validate(3)
    cut = Cut({0: N}, directory)
    for other in data.draw(st.lists(regions, max_size=3)):
        cut.add({0: Access(other, NOTHING, False)})
    cut.make({0: Buffer(0, N)})
    directory.open(cut.cut, {})
    if cut.cut:
        assert 0 not in directory.valid
        assert 0 not in directory.valid_regions
        for key, region in cut.cut[0].items():
            (places,) = {m for m, inside in held.items() if inside & bytes_of(region)}
            assert directory.valid.get(key, 0) == places
    directory.close(cut.cut, {})
    directory.validate(3)
    assert {p.mask: bytes_of(p.region) for p in directory.valid_regions.get(0, ())} == (held if len(held) > 1 else {})
    assert directory.valid.get(0, 0) == (0 if len(held) > 1 else next(iter(held)))


@settings(max_examples=200)
@given(st.lists(regions, max_size=3), st.lists(regions, max_size=3), st.booleans())
def test_the_parts_in_which_pieces_lie(along: list[Region], others: list[Region], refined: bool) -> None:
    parts, _ = partition(N, along)
    pieces, _ = partition(N, [*others, *along] if refined else others)
    expected = [[n for n, part in enumerate(parts) if part & piece] for piece in pieces]
    found = holders(pieces, parts)
    assert found == ([n for (n,) in expected] if all(len(e) == 1 for e in expected) else None)
    assert found is not None or not refined


def bytes_of(region: Region) -> set[int]:
    return {i for low, high in region.intervals for i in range(low, high)}


def test_what_goes_from_device_to_device_is_in_chunks_of_the_machines_size() -> None:
    def pieces(chunk: int, is_read: bool = True) -> list[int]:
        devices = tuple(Device(f"d{n}", "gpu", memory=n + 1) for n in range(2))
        ends = ((HOST, 1), (1, HOST), (HOST, 2), (2, HOST))
        where = Machine(devices, tuple(Link(a, b, 1e12, 1e-6, chunk) for a, b in ends))
        builder = GraphBuilder()
        key = builder.buffer(1 << 26)
        facts = KernelFacts("k", 1, ())
        args = (BufferArg(key),)
        builder.add(
            Launch("k", ProgramFacts("", (), {"k": facts}), facts, (64,), (1,), args, (), (key,), overwrites=(key,))
        )
        if is_read:
            builder.add(Launch("k", ProgramFacts("", (), {"k": facts}), facts, (64,), (1,), args, (key,), ()))
        graph = builder.build()
        splits = {0: Split(0, 64, regions={key: LinearRegion(1 << 20)})}
        problem = Problem(graph, where, Unit(), (1, 1), splits=splits)
        halves = tuple(Assignment(0, DeviceIndex(d), 0, 0.0, 1.0, 0, 32 * d, 32) for d in range(2))
        if is_read:
            halves += (Assignment(1, DeviceIndex(0), 0, 1.0, 2.0),)
        lowered = lower(problem, Plan(halves, "halves", ("d0", "d1"), 1.0), Directory())
        return [b.nbytes for b in lowered.graph.buffers.values()]

    assert pieces(0) == [1 << 23] * 8
    assert pieces(1 << 21) == [1 << 21] * 32
    assert pieces(0, is_read=False) == [1 << 25] * 2, "no device reads what another one has written"
