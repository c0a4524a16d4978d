"""The simulator: hand-made timelines, faults, determinism; the engine is the real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.errors import RunError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, HostTask, Launch
from manycl.machine import HOST, Device, DeviceIndex, Machine
from manycl.model.estimates import Estimates
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.commands.backend import Failed, Report, Run, TransferQueue
from manycl.run.data.coherence import Directory
from manycl.run.engine.engine import RunFailure, execute
from manycl.run.simulation.disturbance import Disturbance
from manycl.run.simulation.simulate import simulate
from manycl.run.simulation.simulator import SimBackend
from manycl.trace import FailureEvent, HostEvent, KernelEvent, Trace, TransferEvent
from tests.run.chaos.chaos_parts import download, is_download, upload

FACTS = KernelFacts("k", 1, ())
PROGRAM = ProgramFacts("", (), {"k": FACTS})
CPU = Device("cpu0", "cpu")
GPU = Device("gpu0", "gpu", memory=1, compute_units=1)  # 2048 work-items fill it


def launch(name: str, reads: tuple[int, ...], writes: tuple[int, ...], items: int = 2048) -> Launch:
    args = tuple(BufferArg(k) for k in dict.fromkeys((*reads, *writes)))
    return Launch(name, PROGRAM, FACTS, (items,), None, args, reads, writes)


class Seconds(Estimates):
    """A kernel takes the seconds given for its node; a transfer 1 s per byte up and 2 s per byte down."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self.seconds = seconds

    def launch(self, node: int, device: int) -> float:
        return self.seconds[node]

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 0.0 if source == target else nbytes * (1.0 if source == HOST else 2.0)


def follow(
    graph: Graph,
    where: Sequence[Device],
    places: Sequence[tuple[int, int]],
    seconds: Sequence[float],
    *,
    valid: Mapping[int, frozenset[int]] | None = None,
    handover: float = 0.0,
    **more: Any,
) -> Trace:
    """Simulate a plan that puts node n on device and queue ``places[n]``."""
    machine = Machine(tuple(where))
    count = 1 + max(q for _, q in places)
    p = Problem(graph, machine, Seconds(seconds), (count,) * len(where), valid or {}, {}, 0.0, handover)
    members = tuple(Assignment(n, d, q, 0.0, 0.0) for n, (d, q) in enumerate(places))
    return simulate(p, Plan(members, "by hand", tuple(d.name for d in where), 0.0), **more)


def spans(trace: Trace) -> dict[int, tuple[float, float]]:
    return {e.node: (e.start, e.end) for e in trace.events if isinstance(e, (KernelEvent, HostEvent))}


def apart(count: int, items: int = 2048) -> Graph:
    builder = GraphBuilder()
    for i in range(count):
        builder.add(launch(f"n{i}", (), (builder.buffer(1),), items))
    return builder.build()


def test_a_queue_runs_in_order() -> None:
    trace = follow(apart(3), [CPU], [(0, 0)] * 3, [1.0, 2.0, 3.0])
    assert spans(trace) == {0: (0, 1), 1: (1, 3), 2: (3, 6)}
    assert (trace.makespan, trace.kind) == (6.0, "simulation")


def test_kernels_that_fill_the_device_share_it() -> None:
    # both at half speed until the first ends (1 s of work each: at 2 s), then the other alone
    trace = follow(apart(2), [GPU], [(0, 0), (0, 1)], [1.0, 3.0])
    assert spans(trace) == {0: (0, 2), 1: (0, 4)}


def test_small_kernels_run_together_at_full_speed() -> None:
    trace = follow(apart(4, items=512), [GPU], [(0, q) for q in range(4)], [1.0, 2.0, 3.0, 4.0])
    assert spans(trace) == {n: (0, n + 1) for n in range(4)}


def test_a_device_is_only_slowed_down_beyond_its_throughput() -> None:
    # three kernels of half a device each: all at 2/3 speed until the first two end
    trace = follow(apart(3, items=1024), [GPU], [(0, 0), (0, 1), (0, 2)], [2.0, 2.0, 4.0])
    assert spans(trace) == {0: (0, pytest.approx(3)), 1: (0, pytest.approx(3)), 2: (0, pytest.approx(5))}


def test_devices_do_not_disturb_each_other() -> None:
    other = Device("gpu1", "gpu", memory=2, compute_units=1)
    trace = follow(apart(2), [GPU, other], [(0, 0), (1, 0)], [1.0, 3.0])
    assert spans(trace) == {0: (0, 1), 1: (0, 3)}


def test_transfers_go_by_the_host_and_overlap_with_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manycl.run.commands.emit.SMALL", 0)  # or they would be in the kernels' queue
    builder = GraphBuilder()
    x, y = builder.buffer(1, "x"), builder.buffer(3, "y")
    builder.add(launch("a", (x,), (x,)))  # on the GPU
    builder.add(launch("b", (y,), (y,)))  # on the GPU: its upload runs beside a
    builder.add(launch("c", (x,), ()))  # on the CPU: x comes back
    where = frozenset({HOST})
    trace = follow(builder.build(), [CPU, GPU], [(1, 0), (1, 0), (0, 0)], [2.0, 1.0, 1.0], valid={x: where, y: where})
    moves = [
        (e.name, e.source, e.target, e.nbytes, e.start, e.end) for e in trace.events if isinstance(e, TransferEvent)
    ]
    assert moves == [
        ("x", "host", "gpu0", 1, 0, 1),
        ("y", "host", "gpu0", 3, 1, 4),
        ("x", "gpu0", "host", 1, 3, 5),
    ]
    assert spans(trace) == {0: (1, 3), 1: (4, 5), 2: (5, 6)}


def test_a_link_makes_one_transfer_at_a_time_in_each_direction() -> None:
    builder = GraphBuilder()
    keys = [builder.buffer(nbytes) for nbytes in (4, 3, 2, 1)]
    for key in keys:
        builder.add(launch("n", (key,), (key,)))
    backend = SimBackend(Machine((GPU,)), Seconds([0.0] * 4))
    backend.begin(builder.build(), (2,))
    backend.perform(
        [
            upload(4, keys[0], 0, (), False),
            upload(5, keys[1], 0, (), False, queue=TransferQueue.PREFETCH),
            upload(6, keys[2], 0, (), False, queue=1),  # a kernel queue: it shares the link
            download(7, keys[3], 0, (), False),  # the other direction
        ]
    )
    found = {e.buffer: (e.start, e.end) for e in backend.finish().events() if isinstance(e, TransferEvent)}
    # two bytes in a kernel queue take 4 s at half of the rate, in which the first transfer moves two as well
    assert [found[key] for key in keys[:2]] == [(0.0, 6.0), (6.0, 9.0)]
    assert found[keys[2]] == (0.0, 4.0)
    assert found[keys[3]] == (0.0, 2.0)


@pytest.mark.parametrize("bandwidth", [16.0, 12.0, 8.0])
def test_kernels_at_the_same_time_draw_no_more_of_a_memory_than_it_carries(bandwidth: float) -> None:
    """Three of 8 bytes each, of 2, 1 and 4 seconds alone, in queues of their own, which the device has room for."""

    class Traffic(Seconds):
        def traffic(self, node: int, device: int) -> float:
            return 8.0

    seconds = [2.0, 1.0, 4.0]
    gpu = replace(GPU, bandwidth=bandwidth, compute_units=8)
    p = Problem(apart(3), Machine((gpu,), host_bandwidth=100.0), Traffic(seconds), (3,), {}, handover=0.0)
    members = tuple(Assignment(n, 0, n, 0.0, 0.0) for n in range(3))
    found = spans(simulate(p, Plan(members, "by hand", ("gpu0",), 0.0)))
    # alone they draw 4, 8 and 2 bytes a second: of 12 the second gets 6, of 8 the first two get 3 each
    assert (
        found
        == {
            16.0: {0: (0, 2), 1: (0, 1), 2: (0, 4)},
            12.0: {0: (0, 2), 1: (0, pytest.approx(4 / 3)), 2: (0, 4)},
            8.0: {0: (0, pytest.approx(8 / 3)), 1: (0, pytest.approx(8 / 3)), 2: (0, 4)},
        }[bandwidth]
    )


def test_host_tasks_wait_and_take_no_time() -> None:
    builder = GraphBuilder()
    x = builder.buffer(1)
    calls: list[int] = []
    builder.add(launch("a", (), (x,)))
    builder.add(HostTask("h", calls.append, (), (x,), (x,)))
    builder.add(launch("b", (x,), ()))
    places = [(0, 0), (ON_HOST, 0), (0, 0)]
    trace = follow(builder.build(), [CPU], places, [1.0, 0.0, 1.0], handover=0.5)
    # a handover before and after the host task: somebody must hear of the end first
    assert spans(trace) == {0: (0, 1), 1: (1.5, 1.5), 2: (2, 3)}
    assert calls == []


@pytest.mark.parametrize(("domain", "handover"), [("", 0.25), ("a", 0.0)])
def test_a_handover_between_devices_takes_time_but_not_on_one_device_nor_in_a_domain(
    domain: str, handover: float
) -> None:
    builder = GraphBuilder()
    x = builder.buffer(1)
    for name in "abc":
        builder.add(launch(name, (x,), (x,)))
    where = [Device(f"cpu{d}", "cpu", event_domain=domain) for d in range(2)]
    trace = follow(builder.build(), where, [(0, 0), (0, 0), (1, 0)], [1.0] * 3, handover=0.25)
    assert spans(trace) == {0: (0, 1), 1: (1, 2), 2: (2 + handover, 3 + handover)}


def chain_of_three() -> Graph:
    builder = GraphBuilder()
    x = builder.buffer(1)
    for name in "abc":
        builder.add(launch(name, (x,), (x,)))
    return builder.build()


@pytest.mark.parametrize("places", [[(0, 0)] * 3, [(0, 0), (1, 0), (0, 0)]])
def test_a_failure_stops_the_run_and_tells_the_story(places: list[tuple[int, int]]) -> None:
    with pytest.raises(RunFailure, match=r"kernel k \(b, node 1\) failed on cpu[01].*: out of paper") as caught:
        follow(
            chain_of_three(),
            [CPU, Device("cpu1", "cpu")],
            places,
            [1.0] * 3,
            disturbance=Disturbance(failing={1: "out of paper"}),
        )
    trace = caught.value.trace
    failure = trace.events[-1]
    assert isinstance(failure, FailureEvent)
    assert (failure.node, failure.message) == (1, "out of paper")
    assert spans(trace)[0] == (0, 1)
    assert 1 not in spans(trace)


def test_a_transfer_that_fails_for_a_kernel_is_not_blamed() -> None:
    """Nobody waits for the kernel itself, only for what it makes; drivers then fail what waits for it, too."""

    class Driver(SimBackend):
        def _failure(self, command: Any) -> str | None:
            if is_download(command) and 0 in command.after:
                self.victim = command.token
                return "what it waited for has failed"
            return super()._failure(command)

        def wait(self, until: float | None = None) -> list[Report]:
            return [r._replace(token=self.victim) if isinstance(r, Failed) else r for r in super().wait(until)]

    builder = GraphBuilder()
    x = builder.buffer(1)
    builder.add(launch("makes", (), (x,)))
    builder.add(launch("beside", (), ()))
    builder.add(launch("reads", (x,), ()))
    graph = builder.build()
    machine = Machine((GPU, Device("gpu1", "gpu", memory=2)))
    p = Problem(graph, machine, Seconds([1.0] * 3), (1, 1))
    plan = Plan(tuple(Assignment(n, d, 0, 0.0, 0.0) for n, d in enumerate((0, 0, 1))), "", ("gpu0", "gpu1"), 0.0)
    with pytest.raises(RunFailure, match=r"kernel k \(makes, node 0\) failed on gpu0.*: out of paper"):
        execute(
            p, plan, Driver(machine, p.estimates, disturbance=Disturbance(failing={0: "out of paper"})), Directory()
        )


def test_a_wait_that_has_an_end_lets_no_more_time_pass() -> None:
    builder = GraphBuilder()
    builder.add(launch("k", (), ()))
    backend = SimBackend(Machine((CPU,)), Seconds([10.0]), report_latency=1.0)
    backend.begin(builder.build(), (1,))
    backend.perform([Run(0, DeviceIndex(0), 0, (), True)])
    for until in (4.0, 4.0, 10.5):
        assert backend.wait(until) == []
        assert backend.now() == until
    assert [r.time for r in backend.wait(20.0)] == [11.0]
    assert backend.now() == 11.0


def test_a_standstill_is_an_error_not_a_hang() -> None:
    backend = SimBackend(Machine((CPU,)), Seconds([1.0]))
    backend.begin(apart(1), [1])
    backend.perform([Run(0, 0, 0, (77,), True)])
    with pytest.raises(RunError, match="1 commands wait for what never happens"):
        backend.wait()


@st.composite
def cases(draw: Any) -> tuple[Graph, list[tuple[int, int]], list[float]]:
    builder = GraphBuilder()
    buffers = [builder.buffer(draw(st.integers(1, 5))) for _ in range(4)]
    some = st.lists(st.sampled_from(buffers), max_size=2, unique=True).map(tuple)
    count = draw(st.integers(1, 12))
    for i in range(count):
        builder.add(launch(f"n{i}", draw(some), draw(some), draw(st.sampled_from([256, 1024, 4096]))))
    place = st.tuples(st.integers(0, 2), st.integers(0, 2))
    places = [draw(place) for _ in range(count)]
    return builder.build(), places, [draw(st.floats(0.01, 5)) for _ in range(count)]


@settings(max_examples=100, deadline=None)
@given(cases(), st.lists(st.sampled_from(["", "a"]), min_size=3, max_size=3))
def test_random_runs_obey_the_model(case: tuple[Graph, list[tuple[int, int]], list[float]], domains: list[str]) -> None:
    graph, places, seconds = case
    devices = CPU, GPU, Device("gpu1", "gpu", memory=2, compute_units=1)
    where = [replace(d, event_domain=domain) for d, domain in zip(devices, domains, strict=True)]
    valid = {key: frozenset({HOST}) for key in graph.buffers}
    trace = follow(graph, where, places, seconds, valid=valid)
    again = follow(graph, where, places, seconds, valid=valid)
    assert trace == again
    found = spans(trace)
    assert sorted(found) == list(range(len(graph)))
    for before, after in graph.edges:
        assert found[before][1] <= found[after][0] + 1e-9
    for n, (start, end) in found.items():
        assert end - start >= seconds[n] - 1e-9
    for i, a in enumerate(places):
        for j, b in enumerate(places):
            if i < j and a == b:
                assert found[i][1] <= found[j][0] + 1e-9
    # a device never does more work in a time than its throughput allows
    for d in range(3):
        mine = [n for n, (device, _) in enumerate(places) if device == d]
        if mine:
            unit = 2048 if d else 1
            work = 0.0
            for n in mine:
                node = graph.nodes[n]
                assert isinstance(node, Launch)
                work += seconds[n] * min(1.0, node.work_items / unit)
            span = max(found[n][1] for n in mine) - min(found[n][0] for n in mine)
            assert work <= span + 1e-6
