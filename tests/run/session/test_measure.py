"""What is measured of devices is what they are: devices made of numbers, on a clock of their own."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from manycl.group_range import GROUP
from manycl.machine import HOST, Device, Link, Machine
from manycl.model.history.history import identity
from manycl.model.history.measured import together
from manycl.model.occupancy import ITEMS_PER_UNIT
from manycl.run.session import measure

MIB = 1 << 20
OPERATIONS, LEAST, SMALL = 8, 0.02, 1 << 12  # of a round; seconds; bytes


@dataclass
class World:
    """A clock, and what was asked of the devices. ``disturbed``: one of three commands takes longer than it would."""

    now: float = 100.0
    disturbed: bool = False
    stands_still: bool = False  # the devices' clocks
    log: list[tuple[str, str, int, float]] = field(default_factory=list)  # device, what, how much, seconds
    buffers: list[tuple[str, int]] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    filled: list[tuple[int, int]] = field(default_factory=list)  # from which byte, how many
    pinned: dict[str, set[int]] = field(default_factory=lambda: {"up": set(), "down": set()})  # arrays of each way
    waited: Callable[[], None] = lambda: None
    turn: Any = field(default_factory=lambda: itertools.count(1))

    def took(self, seconds: float) -> float:
        return seconds * (3.0 if self.disturbed and next(self.turn) % 3 == 0 else 1.0)


@dataclass
class Event:
    start: float
    end: float
    flushed: bool = False


@dataclass
class Real:
    """What a device really does: operations and bytes a second, seconds to start a kernel, and of both directions of
    its link bytes a second and seconds."""

    device: Device
    flops: float
    bandwidth: float
    starts: float
    up: tuple[float, float] = (1e9, 1e-5)
    down: tuple[float, float] = (1e9, 1e-5)
    peer: tuple[float, float] | None = None  # from another device
    world: ClassVar[World | None] = None

    @property
    def handle(self) -> Real:
        return self

    def open(self) -> Driver:
        assert self.world is not None
        return Driver(self.world, self)


class Kernel:
    def __init__(self, name: str) -> None:
        self.name = name
        self.args: dict[int, Any] = {}

    def set(self, index: int, value: Any) -> None:
        self.args[index] = value


class Driver:
    """Of a device that is a few numbers."""

    needs_shared_memory = False

    def __init__(self, world: World, real: Real) -> None:
        self.world, self.real, self.device = world, real, real.device

    def queue(self, timed: bool) -> list[Event]:
        assert timed
        return []

    def build(self, source: Any) -> None:
        assert "multiply_add" in source.text

    def kernel(self, program: None, name: str) -> Kernel:
        return Kernel(name)

    def allocate(self, nbytes: int) -> tuple[str, int]:
        assert 0 < nbytes <= self.device.max_allocation
        self.world.buffers.append((self.device.name, nbytes))
        return self.world.buffers[-1]

    def pin(self, data: Any) -> object:
        return data

    def launch(self, queue: Any, kernel: Kernel, items: Any, local: Any, offset: None, after: None) -> Event:
        real, made, args = self.real, self.world, kernel.args
        assert items[0] % local[0] == 0
        if kernel.name == "add":
            seconds, much = sum(nbytes for _, nbytes in args.values()) / real.bandwidth, items[0]
            assert all(nbytes == 4 * items[0] for _, nbytes in args.values()), "each work-item has its element"
        elif kernel.name == "multiply_add":
            assert 4 * items[0] <= args[0][1], "each work-item has its element"
            much = int.from_bytes(args[1], sys.byteorder) * items[0]
            seconds = OPERATIONS * much / real.flops
        else:
            seconds, much = 0.0 if made.stands_still else 4e-5, items[0]
        start = made.now + made.took(real.starts)
        seconds = made.took(seconds)
        made.log.append((self.device.name, kernel.name, much, seconds))
        queue.append(Event(start, start + seconds))
        return queue[-1]

    def copy(self, queue: Any, target: Any, source: Any, rows: Any, after: Any) -> list[Event]:
        ((offset, nbytes, *_),), made = rows, self.world
        if isinstance(target.memory, tuple) and not isinstance(source.memory, tuple) and not source.is_pinned:
            assert (source.memory.view(np.float32) == 1).all()
            made.filled.append((offset, nbytes))
            queue.append(Event(made.now, made.now + 1.0))
            return [queue[-1]]
        if isinstance(target.memory, tuple) and isinstance(source.memory, tuple):
            way = "peer"
            assert (target.memory[0], source.memory[0]).count(self.device.name) == 1
            assert 0 <= offset <= offset + nbytes <= min(target.memory[1], source.memory[1])
        else:
            way, data = ("up", source) if source.is_pinned else ("down", target)
            assert data.is_pinned
            assert 0 <= offset <= offset + nbytes <= len(data.memory)
            assert data.memory[0] == data.memory[-1] == 1
            made.pinned[way].add(data.memory.__array_interface__["data"][0])
        bandwidth, latency = getattr(self.real, way)
        seconds = made.took(latency + nbytes / bandwidth)
        made.log.append((self.device.name, way, nbytes, seconds))
        start = max([made.now, *(event.end for event in queue[-1:])])
        queue.append(Event(start, start + seconds))
        return [queue[-1]]

    def flush(self, queue: Any) -> None:
        for event in queue:
            event.flushed = True

    def wait(self, event: Event) -> None:
        assert event.flushed, "nobody has sent it to the device"
        self.world.waited()
        self.world.now = max(self.world.now, event.end)

    def times(self, event: Event) -> tuple[float, float]:
        return (0.0, 0.0) if self.world.stands_still else (event.start, event.end)

    def finish(self) -> None:
        pass

    def free(self, allocation: tuple[str, int]) -> None:
        self.world.buffers.remove(allocation)

    def release(self) -> None:
        self.world.closed.append(self.device.name)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(Real, "world", made)
    monkeypatch.setattr(measure.time, "perf_counter", lambda: made.now)
    return made


def device(name: str, kind: str = "gpu", memory: int = 1, **more: Any) -> Device:
    return Device(name, kind, memory=memory, global_memory=32 * MIB, max_allocation=MIB, compute_units=2, **more)


def measured(*reals: Real, progress: Callable[[int], None] = lambda _: None) -> dict[str, measure.Values]:
    return measure.measure(machine_of(*reals), reals, progress)  # type: ignore[arg-type]


def machine_of(*reals: Real) -> Machine:
    """The machine of devices, which copy from each other where they can."""
    ends = [(a.device.memory, b.device.memory) for a in reals for b in reals if a is not b and b.peer]
    return Machine(tuple(r.device for r in reals), tuple(Link(*pair, 1e9, 0.0) for pair in ends))


@pytest.mark.parametrize("disturbed", [False, True])
def test_measured_is_what_a_device_does(world: World, disturbed: bool) -> None:
    """Also where now and then something takes longer."""
    world.disturbed = disturbed
    gpu = Real(device("gpu0"), 2e11, 4e9, 7e-6, up=(1e9, 3e-5), down=(2e9, 5e-5))
    steps: list[int] = []
    found = measured(gpu, progress=steps.append)
    nbytes = MIB
    up, down = 3e-5 + nbytes / 1e9, 5e-5 + nbytes / 2e9
    latency_up, latency_down = 3e-5 + SMALL / 1e9, 5e-5 + SMALL / 2e9
    assert found == {
        "gpu0": {
            "flops": pytest.approx(2e11),
            "bandwidth": pytest.approx(4e9),
            "launch_overhead": pytest.approx(7e-6, rel=1e-3),
            "up_chunk": 512 << 10,
            "down_chunk": MIB,
            "up_latency": pytest.approx(latency_up),
            "up_bandwidth": pytest.approx(nbytes / (up - latency_up)),
            "down_latency": pytest.approx(latency_down),
            "down_bandwidth": pytest.approx(nbytes / (down - latency_down)),
            "both_ways": pytest.approx(2 * nbytes / up),
        }
    }
    assert steps == [1, 2] == [*range(1, measure.steps(Machine((gpu.device,))) + 1)]
    assert world.closed == ["gpu0"]
    assert world.filled == [(0, nbytes)] * 3, "kernels read what is there"
    counts = Counter(what for _, what, _, _ in world.log)
    assert (counts["add"], counts["nothing"]) == (1 + 5, 1 + 30), "the first one tells nothing: it may allocate"
    assert counts["up"] == counts["down"] == 1 + 30 + 5 + 5 + 3 * (4 + 2 + 1)
    assert [len(arrays) for arrays in world.pinned.values()] == [1, 1]
    assert not world.pinned["up"] & world.pinned["down"], "both ways at once have arrays of their own"
    last = [seconds for _, what, _, seconds in world.log if what == "multiply_add"][-5:]
    assert min(last) >= LEAST > min(last) / 4, "it takes no longer than it has to"


def test_work_items_fill_the_device_as_far_as_there_are_elements(world: World) -> None:
    for kind, memory in (("gpu", 1), ("cpu", HOST)):
        for units in (1, 3, 4000):
            world.log.clear()
            where = Device("d", kind, memory=memory, global_memory=64 * MIB, max_allocation=MIB, compute_units=units)
            measured(Real(where, 1e9, 1e9, 1e-6))
            first = world.log[0][2] // 1000  # of a thousand rounds
            filled = 8 * units * max(GROUP, ITEMS_PER_UNIT[kind])
            assert first == min(filled, MIB // 4) // GROUP * GROUP
            assert {n for _, what, n, _ in world.log if what == "nothing"} == {GROUP}


@pytest.mark.parametrize(
    ("kind", "global_memory", "most", "nbytes"),
    [
        ("cpu", 1 << 40, 1 << 40, 64 * MIB),
        ("gpu", 1 << 40, 1 << 40, 256 * MIB),
        ("gpu", 160 * MIB, 1 << 40, 10 * MIB),
        ("gpu", 1 << 40, 3 * MIB + 4097, 3 * MIB + 4096),
    ],
)
def test_arrays_are_large_but_leave_room(world: World, kind: str, global_memory: int, most: int, nbytes: int) -> None:
    where = Device("d", kind, memory=HOST, global_memory=global_memory, max_allocation=most)
    found = measured(Real(where, 1e12, 1e9, 1e-6))
    assert world.buffers == [("d", nbytes)] * 3
    assert found["d"].keys() == {"flops", "bandwidth", "launch_overhead"}, "it has no link"
    assert found["d"]["bandwidth"] == pytest.approx(1e9)


def test_what_is_moved_is_large_but_leaves_room(world: World) -> None:
    where = Device("d", "gpu", memory=1, global_memory=1 << 40, max_allocation=80 * MIB)
    measured(Real(where, 1e12, 1e12, 1e-6))
    assert max(n for _, what, n, _ in world.log if what == "up") == 8 * MIB
    assert [n for _, n in world.buffers[3:]] == [8 * MIB] * 2
    world.buffers.clear()
    measured(Real(replace(where, global_memory=96 * MIB), 1e12, 1e12, 1e-6))
    assert [n for _, n in world.buffers] == [6 * MIB] * 5


def test_a_link_of_ten_gigabytes_a_second_takes_less_than_100_ms(world: World) -> None:
    where = Device("d", "gpu", memory=1, global_memory=1 << 40, max_allocation=1 << 40)
    measured(Real(where, 1e12, 1e12, 1e-6, up=(1e10, 2e-5), down=(1e10, 2e-5)))
    assert sum(seconds for _, what, _, seconds in world.log if what in ("up", "down")) < 0.1


def test_of_what_hardly_takes_longer_than_nothing_half_counts(world: World) -> None:
    found = measured(Real(device("gpu0"), 1e9, 1e9, 1e-6, up=(1e12, 1.0), down=(1e9, 0.0)))
    assert found["gpu0"]["up_latency"] == pytest.approx(1.0)
    assert found["gpu0"]["up_bandwidth"] == pytest.approx(MIB / 0.5, rel=1e-4)


def test_a_device_that_is_never_busy_is_not_kept_busy_for_ever(world: World) -> None:
    measured(Real(device("gpu0"), 1e19, 1e9, 1e-6))
    items = world.log[0][2] // 1000
    rounds = max(much // items for _, what, much, _ in world.log if what == "multiply_add")
    assert rounds // 2 < 1 << 28 <= rounds


@pytest.mark.parametrize("disturbed", [False, True])
def test_two_links_are_measured_together(world: World, disturbed: bool) -> None:
    world.disturbed = disturbed
    reals = [Real(device(f"gpu{i}", memory=i + 1), 2e11, 4e9, 1e-6, up=(1e9, 0.0), down=(2e9, 0.0)) for i in range(2)]
    found = measured(*reals)
    assert found["together: gpu0 + gpu1"] == {"up": pytest.approx(2e9), "down": pytest.approx(4e9)}


def test_clocks_that_stand_still_are_replaced_by_the_hosts(world: World) -> None:
    world.stands_still = True
    found = measured(Real(device("gpu0"), 2e9, 4e9, 0.0))
    assert found["gpu0"]["flops"] == pytest.approx(2e9)
    assert found["gpu0"]["bandwidth"] == pytest.approx(4e9)
    assert found["gpu0"]["launch_overhead"] == 1e-7, "no time at all is never believed"


def test_equal_devices_are_measured_once_and_all_links_together(world: World) -> None:
    same = {"model": "m", "platform": "p"}
    first, second = (Real(device(f"gpu{i}", memory=i + 1, **same), 2e9, 4e9, 1e-6) for i in range(2))
    other = Real(device("gpu2", memory=3), 1e9, 1e9, 1e-6, up=(5e8, 0.0), down=(4e9, 0.0))
    cpu = Real(device("cpu", "cpu", memory=HOST), 1e9, 1e9, 1e-6)
    steps: list[int] = []
    found = measured(first, second, other, cpu, progress=steps.append)
    machine = Machine(tuple(r.device for r in (first, second, other, cpu)))
    own = [first.device, second.device, other.device]
    assert steps == [*range(1, measure.steps(machine) + 1)] == [*range(1, 6)]
    assert found.keys() == {identity(first.device), "gpu2", "cpu", together(own)}
    assert {name for name, what, _, _ in world.log if what == "add"} == {"gpu0", "gpu2", "cpu"}
    assert not [entry for entry in world.log if entry[0] == "gpu1" and entry[2] == SMALL]
    slowest = MIB / 5e8
    assert found[together(own)] == {
        "up": pytest.approx(3 * MIB / slowest),
        "down": pytest.approx(3 * MIB / (1e-5 + MIB / 1e9)),
    }
    assert world.closed == ["gpu0", "gpu1", "gpu2", "cpu"]


def test_ways_between_devices_are_measured_where_there_are_some(world: World) -> None:
    same = {"model": "m", "platform": "p"}
    pair = [Real(device(f"gpu{i}", memory=i + 1, **same), 2e9, 4e9, 1e-6, peer=(4e9, 2e-5)) for i in range(2)]
    values = measured(*pair)[identity(pair[0].device)]
    assert values["peer_bandwidth"] == pytest.approx(4e9, rel=0.01)
    assert values["peer_latency"] == pytest.approx(2e-5 + SMALL / 4e9)


def test_devices_are_closed_whatever_happens(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(Driver, "allocate", broken)
    with pytest.raises(RuntimeError, match="out of order"):
        measured(Real(device("gpu0"), 1e9, 1e9, 1e-6), Real(device("gpu1", memory=2), 1e9, 1e9, 1e-6))
    assert world.closed == ["gpu0", "gpu1"]
