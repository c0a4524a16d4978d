"""Devices with little memory: what a run does not use makes way, and comes back when it is needed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

import manycl as mc
from manycl.graph.graph import BufferKey
from manycl.machine import DeviceIndex
from manycl.plan.plan import WHOLE, Assignment, Plan
from manycl.run.commands.chunk_commands import PacketEmitter
from manycl.run.data.admission import make_room
from manycl.run.engine.playback import Playback
from manycl.run.lowering.steps import Lowered
from manycl.run.session.device_set import DeviceSet
from manycl.run.session.session_data import SessionData
from tests.run.between_runs import run_by

LIMIT = 1 << 20
COUNT = 1 << 16  # ints: a quarter of the limit
PROGRAM = mc.Program("""
kernel void triple(global const int *a, global int *b) { b[get_global_id(0)] = 3 * a[get_global_id(0)] + 1; }
kernel void sum(global const int *a, global const int *b, global const int *c, global const int *d, global int *e) {
    int i = get_global_id(0);
    e[i] = a[i] + b[i] + c[i] + d[i];
}
kernel void spin(global const int *a, global int *b, int rounds) {
    int v = a[get_global_id(0)];
    for (int k = 0; k < rounds; k++) v = v * 3 + k;
    b[get_global_id(0)] = v;
}
""")


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[mc.Queue]:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setenv("MANYCL_DEVICE_MEMORY", str(LIMIT))
    with mc.Queue("cpu/2") as found:
        assert all(d.global_memory == LIMIT for d in found.session.machine.devices)
        yield found


def held(queue: mc.Queue) -> list[int]:
    return [sum(queue.session.backend.memory.allocated(d).values()) for d in range(len(queue.devices))]


@pytest.mark.parametrize("seed", range(4))
def test_arrays_that_fit_only_in_turn(queue: mc.Queue, seed: int) -> None:
    """Ten arrays of a quarter of a device's memory; runs on two of them, whole or divided."""
    chance = random.Random(seed)
    arrays = [queue.array(np.full(COUNT, i, np.int32)) for i in range(10)]
    expected = [np.full(COUNT, i, np.int32) for i in range(10)]
    for _ in range(12):
        a, b = chance.sample(range(10), 2)
        with queue.prepare() as prepared:
            PROGRAM.triple(queue, (COUNT,), (64,), arrays[a], arrays[b])
        cut = chance.choice([0, 100, 512])
        ranges = [Assignment(0, chance.randrange(2), 0, 0.0, 0.0, WHOLE)]
        if cut:
            ranges = [Assignment(0, d, 0, 0.0, 0.0, 0, cut * d, 1024 - cut if d else cut) for d in range(2)]
        plan = Plan(tuple(ranges), "random", queue.devices, 0.0)
        run_by(prepared, lambda _, plan=plan: plan)
        expected[b] = 3 * expected[a] + 1
        assert max(held(queue)) <= LIMIT
        queue.session.directory.validate(3)
        if chance.random() < 0.3:
            arrays[a].set(expected[a])
    assert sum(expected[i].nbytes for i in range(10)) > 2 * LIMIT
    for array, contents in zip(arrays, expected, strict=True):
        assert (array.get() == contents).all()


@pytest.mark.parametrize("others", [0, 3])
def test_inputs_come_ahead_only_where_there_is_room(
    queue: mc.Queue, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel may move to a device that is busy, and that holds other arrays, each a quarter of its memory."""
    ahead: list[int] = []
    bring = PacketEmitter.prefetch

    def noted(emitter: PacketEmitter, keys: Iterable[BufferKey], device: DeviceIndex) -> list[int]:
        ahead.append(device)
        return bring(emitter, keys, device)

    monkeypatch.setattr(PacketEmitter, "prefetch", noted)
    arrays = [queue.array(np.full(COUNT, i, np.int32)) for i in range(2 + others)]
    busy = [queue.array(np.zeros(64, np.int32)) for _ in range(2)]
    devices = queue.devices
    with queue.prepare() as filling:
        for array in arrays[2:]:
            PROGRAM.triple(queue, (COUNT,), (64,), array, array)
    whole = tuple(Assignment(n, DeviceIndex(1), 0, 0.0, 0.0) for n in range(others))
    if others:
        queue.session.run(filling.graph, Plan(whole, "fills", devices, 0.0))
        assert held(queue)[1] == others * 4 * COUNT
    with queue.prepare() as prepared:
        PROGRAM.triple(queue, (64,), (64,), *busy)
        PROGRAM.spin(queue, (COUNT,), (64,), *arrays[:2], 1000)
    given = Assignment(0, DeviceIndex(1), 0, 0.0, 0.0), Assignment(1, DeviceIndex(0), 0, 0.0, 0.0, 0, 0, COUNT // 64)
    queue.session.run(prepared.graph, Plan(given, "hop", devices, 0.0, movable=(1,)))
    assert set(ahead) == (set() if others else {1})  # how often depends on how long the launches take
    assert len(set(arrays[1].get())) == 1


def test_a_run_that_needs_more_than_there_is_runs_in_ranges(queue: mc.Queue) -> None:
    arrays = [queue.array(np.full(COUNT, i, np.int32)) for i in range(5)]
    with queue.prepare() as prepared:
        PROGRAM.sum(queue, (COUNT,), (64,), *arrays)
    graph = prepared.graph
    result = queue.session.run(graph, Plan((Assignment(0, 0, 0, 0.0, 0.0),), "one", queue.devices, 0.0))
    assert len(result.ranges(0)) > 1
    assert max(held(queue)) <= LIMIT
    queue.session.directory.validate(3)
    assert (arrays[4].get() == 6).all()


def test_a_run_that_does_not_fit_begins_with_what_it_finds_valid_alone(
    queue: mc.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of other runs' arrays, and of its own that have become stale, nothing is left where room is scarce."""
    began: list[bool] = []

    def judged(devices: DeviceSet, data: SessionData, lowered: Lowered, state: Playback) -> None:
        before = [set(devices.backend.memory.allocated(d)) for d in state.limited]
        make_room(devices, data, lowered, state)
        for device in state.limited:
            assert devices.backend.memory.allocated(device).keys() <= state.held(device)
        began.extend(len(b) >= 3 for b in before)

    monkeypatch.setattr("manycl.run.session.session.make_room", judged)
    arrays = [queue.array(np.full(COUNT, i, np.int32)) for i in range(6)]
    for a, b in ((0, 5), (1, 5)):
        with queue.prepare() as prepared:
            PROGRAM.triple(queue, (COUNT,), (64,), arrays[a], arrays[b])
        run_by(prepared, lambda _: Plan((Assignment(0, 0, 0, 0.0, 0.0),), "one", queue.devices, 0.0))
    arrays[0].set(np.full(COUNT, 7, np.int32))
    with queue.prepare() as prepared:
        PROGRAM.sum(queue, (COUNT,), (64,), *arrays[:5])
    run_by(prepared, lambda _: Plan((Assignment(0, 0, 0, 0.0, 0.0),), "one", queue.devices, 0.0))
    assert began == [True]
    assert (arrays[4].get() == 7 + 1 + 2 + 3).all()
    assert (arrays[5].get() == 4).all()


@pytest.mark.parametrize("fits", [False, True])
def test_of_a_run_with_little_room_one_range_of_many_tells_what_can_be_learned(
    queue: mc.Queue, monkeypatch: pytest.MonkeyPatch, fits: bool
) -> None:
    monkeypatch.setattr("manycl.run.engine.result.TYPICAL", 1)
    queue.session.profile = "always"
    arrays = [queue.array(np.full(COUNT, i, np.int32)) for i in range(5)]
    with queue.prepare() as prepared:
        PROGRAM.sum(queue, (COUNT,), (64,), *(arrays[i] for i in ((0, 0, 0, 0, 4) if fits else range(5))))
    ranges = [Assignment(0, 0, 0, 0.0, 0.0, 0, 512 * i, 512) for i in range(2)]
    result = run_by(prepared, lambda _: Plan(tuple(ranges), "halves", queue.devices, 0.0))
    measured = list(result.measured())
    assert len(measured) > 1
    assert len(list(result.samples()[1])) == (len(measured) if fits else 1)
