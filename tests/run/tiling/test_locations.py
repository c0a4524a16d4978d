"""Where pieces may be valid of runs in little memory: against looking at all of them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from manycl.graph.graph import Buffer, BufferArg, Graph, HostTask, Launch, Piece, Window
from manycl.machine import HOST, Device, Machine
from manycl.plan.plan import Assignment, Plan
from manycl.region import Region
from manycl.run.lowering.steps import Room
from manycl.run.tiling.locations import PieceLocations
from tests.run.chaos.test_state import FACTS, PROGRAM

WHOLE, WINDOWS = (0, 1), (10, 11, 12)
PIECES = {100: 0, 101: 0, 102: 1, 103: 1}  # by key: of which buffer
SIZES = {0: 8, 1: 12, 10: 4, 11: 5, 12: 6}
MACHINE = Machine((Device("host", "cpu", memory=HOST), Device("a", "gpu", memory=1), Device("b", "gpu", memory=2)))


@st.composite
def runs(draw: Any) -> tuple[Graph, Room, Plan]:
    """Launches on whole buffers or windows of them, and host functions, on two devices, in any order."""
    nodes: list[HostTask | Launch] = []
    using: list[dict[int, int]] = []
    for i in range(draw(st.integers(1, 8))):
        keys = draw(st.lists(st.sampled_from(sorted(PIECES)), max_size=3, unique=True))
        split = draw(st.integers(0, len(keys)))
        reads, writes = tuple(keys[:split]), tuple(keys[split:])
        mine = draw(st.dictionaries(st.sampled_from(WHOLE), st.sampled_from(WINDOWS)))
        mine = {whole: window for whole, window in mine.items() if window % 2 == whole}
        if draw(st.integers(0, 4)) == 0:
            nodes.append(HostTask(f"h{i}", print, (), reads, writes))
            using.append({})
            continue
        wholes = {PIECES[key] for key in keys}
        args = tuple(BufferArg(mine.get(whole, whole)) for whole in sorted(wholes))
        nodes.append(Launch(f"k{i}", PROGRAM, FACTS, (1,), None, args, reads, writes))
        using.append({whole: window for whole, window in mine.items() if whole in wholes})
    buffers: dict[int, Buffer] = {k: Piece(k, 4, "", whole, Region.span(0, 4)) for k, whole in PIECES.items()}
    graph = Graph(tuple(nodes), buffers, ((),) * len(nodes))
    windows = {key: Window(key, key % 2, 0, SIZES[key], 1) for key in WINDOWS}
    limits = {d: draw(st.integers(0, 40)) for d in draw(st.sampled_from([(1,), (1, 2)]))}
    order = draw(st.permutations(range(len(nodes))))
    assigned = (Assignment(n, draw(st.integers(1, 2)), 0, 0.0, 0.0) for n in order)
    return graph, Room(limits, windows, tuple(using), SIZES), Plan(tuple(assigned), "p", ("host", "a", "b"), 0.0)


@given(runs())
def test_places_are_memories_and_windows(run: tuple[Graph, Room, Plan]) -> None:
    graph, room, plan = run
    places = PieceLocations(MACHINE, graph, room)
    assert places.whole == PIECES
    for a in plan.assignments:
        task, using = graph.nodes[a.node], room.using[a.node]
        homes = places.homes(a.node, a.device)
        assert set(homes) == {*task.reads, *task.writes}
        for key, place in homes.items():
            whole = PIECES[key]
            if whole in using:
                assert place == places.at(1, using[whole]) >= MACHINE.memories
                assert places.store(place, key) == (1, using[whole])
                assert key in places.pieces(using[whole])
            else:
                assert place == places.at(a.device, whole) == MACHINE.devices[a.device].memory
                assert places.store(place, key) == (a.device, whole)
    for window in WINDOWS:
        touching = [n for n, using in enumerate(room.using) if window in using.values()]
        mine = {k for n in touching for k in (*graph.nodes[n].reads, *graph.nodes[n].writes) if PIECES[k] == window % 2}
        assert set(places.pieces(window)) == mine
        assert len(places.pieces(window)) == len(mine)
    for whole in WHOLE:
        assert set(places.pieces(whole)) == {k for k, of in PIECES.items() if of == whole}


@given(st.integers(0, (1 << 12) - 1))
def test_the_places_of_a_mask(mask: int) -> None:
    assert list(PieceLocations.of(mask)) == [i for i in range(12) if mask >> i & 1 and i != HOST]
