"""One suite for every back end of the seam: OpenCL on shared and on separate memories, the simulator, chaos."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from manycl.analysis import parse_program
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Buffer, BufferArg, Graph, HostTask, Launch, Window
from manycl.machine import HOST, Device, Machine
from manycl.model.estimate import ModelEstimates
from manycl.run.commands.backend import Backend, Command, Copy, Done, Failed, HostCall, Report, Run
from manycl.run.session.session import Session
from manycl.run.simulation.simulator import SimBackend
from manycl.trace import HostEvent, KernelEvent, TransferEvent
from tests.run.chaos.chaos import ChaosBackend
from tests.run.chaos.chaos_parts import download, upload

PROGRAM = parse_program("__kernel void inc(__global int *x) { x[get_global_id(0)] += 1; }")
FACTS = PROGRAM.kernels["inc"]


@dataclass
class World:
    """A back end, and how to look at a buffer on the host afterwards (None: it holds no bytes)."""

    backend: Backend
    separate: bool
    look: Callable[[int], Any] | None
    new: Callable[[], Buffer]
    make_window: Callable[[int], None] | None = None


@pytest.fixture(
    params=[
        "native shared",
        "native separate",
        "opencl shared",
        "opencl separate",
        "opencl watched",
        "sim shared",
        "sim separate",
        "chaos shared",
        "chaos separate",
    ]
)
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    kind, where = request.param.split()
    separate = where in ("separate", "watched")
    if kind in ("native", "opencl"):
        monkeypatch.setenv("MANYCL_ZERO_COPY", "0" if separate else "1")
        with Session(f"{kind}/2") as session:
            for lanes in session.backend.lanes:
                lanes.watched = where == "watched"  # as GPUs are

            def new() -> Buffer:
                buffer = session.buffers.new(64).buffer
                session.backend.memory.host(buffer.key)[:] = 0
                return buffer

            memory = session.backend.memory
            look, make_window = lambda k: memory.host(k).view(np.int32), lambda k: memory.create_window(k, 64, "x")
            yield World(session.backend, separate, look, new, make_window)
        return
    devices = tuple(Device(f"d{i}", "cpu", memory=i + 1 if separate else HOST) for i in range(2))
    machine = Machine(devices)
    keys = iter(range(100))
    backend: Any
    if kind == "sim":
        backend = SimBackend(machine, ModelEstimates(Graph((), {}, ()), machine))
    else:
        backend = ChaosBackend(machine, seed=7)
    yield World(backend, separate, None, lambda: Buffer(next(keys), 64))


def graph_of(world: World, nodes: list[tuple[str, int]], count: int) -> tuple[Graph, list[int]]:
    """Launches ``inc`` or host functions on ``count`` new buffers, by index."""
    builder = GraphBuilder()
    buffers = [world.new() for _ in range(count)]
    for b in buffers:
        builder.adopt(b)
    for kind, index in nodes:
        key = buffers[index].key
        if kind == "inc":
            builder.add(Launch("inc", PROGRAM, FACTS, (16,), (16,), (BufferArg(key),), (key,), (key,)))
        else:
            builder.add(HostTask(kind, fail if kind == "fail" else add_ten, (BufferArg(key),), (key,), (key,)))
    graph = builder.build()
    if isinstance(world.backend, SimBackend):
        world.backend = SimBackend(world.backend.machine, ModelEstimates(graph, world.backend.machine))
    return graph, [b.key for b in buffers]


def add_ten(data: Any) -> None:
    data.view(np.int32)[:] += 10


def fail(data: Any) -> None:
    raise ValueError("made to fail")


def until(backend: Backend, tokens: set[int]) -> list[Report]:
    reports: list[Report] = []
    while not tokens <= {r.token for r in reports}:
        got = backend.wait()
        assert got, "wait returned nothing"
        reports.extend(got)
    return reports


def up(world: World, token: int, key: int, device: int) -> list[Command]:
    return [upload(token, key, device, (), False)] if world.separate else []


def test_a_queue_runs_in_order_and_only_what_asks_is_reported(world: World) -> None:
    graph, (key,) = graph_of(world, [("inc", 0)] * 5, 1)
    backend = world.backend
    backend.begin(graph, (1, 0))
    commands = up(world, 10, key, 0)
    commands += [Run(n, 0, 0, (10,) if world.separate and n == 0 else (), n == 4) for n in range(5)]
    if world.separate:
        commands.append(download(11, key, 0, (4,), True))
    backend.perform(commands)
    wanted = {4, 11} if world.separate else {4}
    reports = until(backend, wanted)
    assert {r.token for r in reports} == wanted
    assert all(isinstance(r, Done) for r in reports)
    assert all(0 <= r.time <= backend.now() for r in reports)
    record = backend.finish()
    assert record.failure is None
    kernels = [e for e in record.events() if isinstance(e, KernelEvent)]
    if not isinstance(backend, ChaosBackend):
        assert [k.node for k in kernels] == [0, 1, 2, 3, 4]
        assert all(a.end <= b.start + 1e-3 for a, b in itertools.pairwise(kernels))
        assert sorted((n, d) for n, d, _ in record.durations()) == [(n, 0) for n in range(5)]
        moved = [(e.source, e.target) for e in record.events() if isinstance(e, TransferEvent)]
        name = backend.machine.devices[0].name
        assert moved == ([("host", name), (name, "host")] if world.separate else [])
    if world.look:
        assert (world.look(key) == 5).all()


def test_copies_within_a_device_are_transfers_of_their_own(world: World) -> None:
    """A window gets a copy, the whole store is changed, and the host gets what the window holds."""
    if not world.separate:
        pytest.skip("devices in the host's memory have no windows")
    graph, (key,) = graph_of(world, [("inc", 0)], 1)
    backend: Any = world.backend
    window = 1000 + key
    graph = replace(graph, windows={window: Window(window, key, 0, 64, 0)})
    if world.make_window:
        world.make_window(window)
        world.look(key)[:] = 41  # type: ignore[misc]
    backend.begin(graph, (1, 0))
    copy = Copy(11, key, 0, 0, (10,), True, 1, 1, key, window)
    backend.perform([upload(10, key, 0, (), False), copy, Run(0, 0, 0, (10,), False)])
    assert {r.token for r in until(backend, {11})} == {11}
    backend.perform([download(12, key, 0, (11,), True, window)])
    until(backend, {12})
    record = backend.finish()
    assert record.failure is None
    if isinstance(backend, ChaosBackend):
        assert backend._at(0, window)[key] == backend.values[HOST].get(key) != backend.values[1][key]
        return
    name = backend.machine.devices[0].name
    moved = [(e.buffer, e.nbytes, e.source, e.target) for e in record.events() if isinstance(e, TransferEvent)]
    assert moved == [(key, 64, "host", name), (key, 64, name, name), (key, 64, name, "host")]
    if world.look:
        assert (world.look(key) == 41).all()
        assert sorted((device, up) for device, up, *_ in record.moved()) == [(0, False), (0, True)]
        assert list(record.handovers()) == []


def test_queues_of_a_device_are_ordered_by_after(world: World) -> None:
    graph, (key,) = graph_of(world, [("inc", 0)] * 8, 1)
    backend = world.backend
    backend.begin(graph, (3, 0))
    commands = up(world, 20, key, 0)
    for n in range(8):
        before = [n - 1] if n else ([20] if world.separate else [])
        commands.append(Run(n, 0, n % 3, before, n == 7))
    if world.separate:
        commands.append(download(21, key, 0, (7,), True))
    backend.perform(commands)
    until(backend, {7, 21} if world.separate else {7})
    record = backend.finish()
    if isinstance(backend, ChaosBackend):
        assert [n for n, _ in backend.record.ran] == list(range(8))
    else:
        assert {e.queue for e in record.events() if isinstance(e, KernelEvent)} == {0, 1, 2}
    if world.look:
        assert (world.look(key) == 8).all()


def test_devices_and_the_host_work_on_the_same_buffer_in_turn(world: World) -> None:
    graph, (key,) = graph_of(world, [("inc", 0), ("add_ten", 0), ("inc", 0)], 1)
    backend = world.backend
    backend.begin(graph, (1, 1))
    first: list[Command] = [*up(world, 10, key, 0), Run(0, 0, 0, (10,) if world.separate else (), True)]
    if world.separate:
        first.append(download(11, key, 0, (0,), True))
    backend.perform(first)
    until(backend, {0, 11} if world.separate else {0})
    backend.perform([HostCall(1)])
    assert until(backend, {1})[-1].token == 1
    second: list[Command] = [*up(world, 12, key, 1), Run(2, 1, 0, (12,) if world.separate else (), True)]
    if world.separate:
        second.append(download(13, key, 1, (2,), True))
    backend.perform(second)
    until(backend, {2, 13} if world.separate else {2})
    record = backend.finish()
    if not isinstance(backend, ChaosBackend):
        ran = [e.node for e in record.events() if isinstance(e, (KernelEvent, HostEvent))]
        assert sorted(ran) == [0, 1, 2]
    if world.look:
        assert (world.look(key) == 12).all()


def test_a_failure_is_reported_and_the_next_run_is_clean(world: World) -> None:
    if isinstance(world.backend, SimBackend):
        pytest.skip("the simulator's faults have tests of their own")
    graph, _ = graph_of(world, [("fail", 0)], 1)
    if isinstance(world.backend, ChaosBackend):
        world.backend = ChaosBackend(world.backend.machine, 3, fail=[0])
    backend = world.backend
    backend.begin(graph, (1, 1))
    backend.perform([HostCall(0)])
    (report,) = until(backend, {0})
    assert isinstance(report, Failed)
    assert "made to fail" in report.message
    record = backend.abort()
    assert list(record.durations()) == []
    if isinstance(backend, ChaosBackend):
        return
    graph, (key,) = graph_of(world, [("inc", 0)], 1)
    backend.begin(graph, (1, 1))
    backend.perform([*up(world, 5, key, 1), Run(0, 1, 0, (5,) if world.separate else (), True)])
    (report,) = until(backend, {0})
    assert isinstance(report, Done)
    assert [(n, d) for n, d, _ in backend.finish().durations()] == [(0, 1)]


def test_an_empty_run(world: World) -> None:
    graph, _ = graph_of(world, [], 1)
    world.backend.begin(graph, (0, 0))
    world.backend.perform([])
    assert list(world.backend.finish().events()) == []
