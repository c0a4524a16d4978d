"""Devices that other processes have asked for: long launches run there in packets, and wait between two of them until
the device comes again; results are the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import manycl as mc
from manycl.plan import preemptible
from manycl.plan.splitting import Splits
from manycl.run.commands.backend import Command, Report, Run
from manycl.run.engine.observers import Observer
from manycl.run.engine.playback import Playback
from manycl.run.recovery.device_events import DeviceComes, DeviceLeaves
from manycl.run.stealing import packet_size

SOURCE = """
kernel void change(global uint *x, uint rounds) {
    int i = get_global_id(0);
    uint v = x[i] + get_group_id(0);
    for (uint k = 0; k < rounds; k++) v = v * 1664525u + 1013904223u;
    x[i] = v;
}
"""
ITEMS, LOCAL = 1 << 13, 64


@pytest.fixture(params=["cpu1", "cpu1 apart", "cpu1/2"])
def queue(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[mc.Queue]:
    """Devices without a way to end launches early; all launches are long, and packets stay short."""
    devices, _, apart = request.param.partition(" ")
    if apart:
        monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setattr(preemptible, "FREE", {"cpu": 1e-9})
    monkeypatch.setattr(packet_size, "PART", 0.0)
    with mc.Queue(devices) as made:
        yield made


def ask_for(queue: mc.Queue) -> None:
    """Another process has had all devices, and has given them back."""
    events = queue.session.devices.events
    for name in queue.devices:
        events.put(DeviceLeaves(name, returns=True))
    for name in queue.devices:
        events.put(DeviceComes(name))


class Computed:
    """What the kernel makes of an array, time after time."""

    def __init__(self) -> None:
        self._x = np.arange(ITEMS, dtype=np.uint32)
        self._turns = 0

    def after(self, turns: int) -> bytes:
        for _ in range(turns - self._turns):
            self._x += np.arange(ITEMS, dtype=np.uint32) // LOCAL
            for _ in range(50):
                self._x = self._x * np.uint32(1664525) + np.uint32(1013904223)
        self._turns = turns
        return self._x.tobytes()


def is_found_out(turn: int) -> None:
    """How launches may be divided is, beside the runs, sooner or later."""
    assert turn < 10_000
    time.sleep(0.005)


class Packets(Observer):
    """``most``: the most packets of a launch that a device had at a time."""

    def __init__(self) -> None:
        self.count = self.most = self.now = 0

    def issued(self, playback: Playback, commands: Sequence[Command], now: float) -> None:
        found = sum(1 for c in commands if isinstance(c, Run) and c.task is not None)
        self.count += found
        self.now += found
        self.most = max(self.most, self.now)

    def heard(self, playback: Playback, reports: Sequence[Report], now: float) -> None:
        self.now = max(0, self.now - len(reports))


def test_long_launches_are_in_pieces_once_somebody_has_asked(queue: mc.Queue) -> None:
    change = mc.Program(SOURCE).change
    x = queue.array(np.arange(ITEMS, dtype=np.uint32))
    with queue.prepare() as graph:
        change(queue, (ITEMS,), (LOCAL,), x, np.uint32(50))
    graph.run()
    graph.run()
    assert queue.session.devices.demanded == frozenset()
    computed = Computed()
    assert x.get().tobytes() == computed.after(2)
    ask_for(queue)
    assert queue.session.devices.demanded == {*queue.session.machine.indices}
    turn = 2
    while graph.plan is None or not graph.plan.movable:
        graph.run()
        turn += 1
        assert x.get().tobytes() == computed.after(turn)
        is_found_out(turn)
    assert graph.plan.movable == (0,)
    seen = Packets()
    queue.session.run(graph.graph, graph.plan, observers=[seen])
    assert seen.count > 10
    assert seen.most <= preemptible.PACKETS_IN_FLIGHT * len(queue.devices)


def test_launches_that_can_end_early_need_no_pieces() -> None:
    with mc.Queue("native") as queue:
        ask_for(queue)
        assert queue.session.devices.demanded == frozenset()


@pytest.mark.parametrize("after", [0, 3, 9])
def test_a_launch_waits_between_two_pieces(queue: mc.Queue, after: int) -> None:
    change = mc.Program(SOURCE).change
    x = queue.array(np.arange(ITEMS, dtype=np.uint32))
    events, heard, ended = queue.session.devices.events, 0, threading.Event()
    free, others = list[tuple[bool, bool]](), list[threading.Thread]()

    def other() -> None:
        """Another process: it waits until the devices are free, and gives them back."""
        there = [events.wait_until_free(name, 60.0) for name in queue.devices]
        free.append((all(there), ended.is_set()))
        for name in queue.devices:
            events.put(DeviceComes(name))

    class Leaving(Observer):
        def heard(self, playback: Playback, reports: Sequence[Report], now: float) -> None:
            nonlocal heard
            heard += 1
            if heard == after + 1:
                for name in queue.devices:
                    events.put(DeviceLeaves(name, returns=True))
                others.append(threading.Thread(target=other))
                others[0].start()

    ask_for(queue)
    with queue.prepare() as graph:
        change(queue, (ITEMS,), (LOCAL,), x, np.uint32(50))
        change(queue, (ITEMS,), (LOCAL,), x, np.uint32(50))
    assert {*Splits(graph.graph)} == {0, 1}  # else they would not be in packets yet
    queue.session.run(graph.graph, observers=[Leaving()])
    ended.set()
    others[0].join()
    assert x.get().tobytes() == Computed().after(2)
    assert free == [(True, False)]


def test_loops_of_long_launches_are_in_pieces_once_somebody_has_asked(queue: mc.Queue) -> None:
    change = mc.Program(SOURCE).change
    x = queue.array(np.arange(ITEMS, dtype=np.uint32))

    def run() -> int:
        change(queue, (ITEMS,), (LOCAL,), x, np.uint32(50))
        queue.finish()
        return len(list(queue.trace.kernels()))

    assert run() == 1 or len(queue.devices) > 1
    ask_for(queue)
    turn = 1
    while run() <= max(10, len(queue.devices)):
        turn += 1
        is_found_out(turn)
    assert x.get().tobytes() == Computed().after(turn + 1)
