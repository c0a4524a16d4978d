"""Long launches leave a native device in the middle, and go on elsewhere: by default, whatever has planned them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import manycl as mc
from manycl.machine import DeviceIndex
from manycl.plan import preemptible
from manycl.plan.plan import Assignment, Plan
from manycl.run.commands.backend import Command, EndsEarly, Report, Run, Shorten
from manycl.run.engine.observers import Observer
from manycl.run.engine.playback import Playback
from manycl.run.engine.result import Result
from manycl.run.graph_cache import learners
from manycl.run.recovery.device_events import DeviceComes, DeviceEvent, DeviceLeaves, DeviceSlows
from manycl.run.session.session import Session
from manycl.run.simulation.disturbance import Disturbance, Slowdown
from manycl.trace import KernelEvent
from tests.run.recovery.test_replanning import Simulated

PROGRAM = mc.Program("""
kernel void change(global uint *x, uint rounds) {
    int i = get_global_id(0);
    uint v = x[i];
    for (uint k = 0; k < rounds; k++) { v ^= v << 13; v ^= v >> 17; v ^= v << 5; }
    x[i] = v + get_group_id(0);
}
""")
ITEMS, LOCAL, ROUNDS = 1 << 14, 64, 2_000
GROUPS = ITEMS // LOCAL
BEGIN = np.tile(np.arange(1, LOCAL + 1, dtype=np.uint32), GROUPS)


def changed(rounds: int) -> bytes:
    """Return what the kernel makes of BEGIN, which is the same for each work-group."""
    v = np.arange(1, LOCAL + 1, dtype=np.uint32)
    for _ in range(rounds):
        v ^= v << np.uint32(13)
        v ^= v >> np.uint32(17)
        v ^= v << np.uint32(5)
    return (np.tile(v, GROUPS) + np.arange(ITEMS, dtype=np.uint32) // np.uint32(LOCAL)).tobytes()


EXPECTED = changed(ROUNDS)


class Happening(Observer):
    """Events are put as soon as a launch has been given to a device."""

    def __init__(self, session: Session, *events: DeviceEvent) -> None:
        self._session, self._events = session, events

    def issued(self, playback: Playback, commands: Sequence[Command], now: float) -> None:
        if any(isinstance(c, Run) for c in commands):
            events, self._events = self._events, ()
            for event in events:
                self._session.devices.events.put(event)


@pytest.fixture
def queue() -> Iterator[mc.Queue]:
    with mc.Queue("native/2") as made:
        yield made


def run_by(queue: mc.Queue, shares: Sequence[int], *events: DeviceEvent) -> tuple[Result, Counter[str]]:
    """Run the kernel by a plan in which the devices have these shares. Return what each device ran."""
    x = queue.array(BEGIN)
    with queue.prepare() as graph:
        PROGRAM.change(queue, (ITEMS,), (LOCAL,), x, np.uint32(ROUNDS))
    bounds = [sum(shares[:n]) for n in range(len(shares) + 1)]
    ranges = (
        Assignment(0, DeviceIndex(d), 0, 0.0, 0.1, 0, low, high - low)
        for d, (low, high) in enumerate(pairwise(bounds))
        if low < high
    )
    plan = Plan(tuple(ranges), "by hand", queue.devices, 0.1, movable=(0,), still=(0,))
    result = queue.session.run(graph.graph, plan, observers=[Happening(queue.session, *events)])
    assert x.get().tobytes() == EXPECTED
    ran = Counter[str]()
    for e in result.trace.events:
        if isinstance(e, KernelEvent):
            ran[e.device] += e.groups
    assert ran.total() == GROUPS
    return result, ran


@pytest.mark.parametrize("shares", [(GROUPS,), (GROUPS // 2, GROUPS // 2)], ids=["whole", "divided"])
def test_what_has_not_begun_runs_elsewhere(queue: mc.Queue, shares: Sequence[int]) -> None:
    one, other = queue.devices
    ran = run_by(queue, shares, DeviceLeaves(one))[1]
    assert 0 < ran[one] < shares[0]
    assert ran[other] == GROUPS - ran[one]


def test_between_leaving_and_the_end_of_the_launch_the_engine_waits_for_nothing(
    queue: mc.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread has a device leave while the engine waits for reports: the engine is woken, and ends the launch
    before it waits again; and the device runs no work-group more than the launch then has left."""
    one, backend = queue.devices[0], queue.session.devices.backend
    wait, shorten = backend.wait, backend.shorten
    waits, found, is_waiting = list[str](), list[int](), threading.Event()

    def waited(until: float | None = None) -> list[Report]:
        waits.append("after" if left else "before")
        is_waiting.set()
        return wait(until)

    def shortened(command: Shorten) -> EndsEarly | None:
        ends = shorten(command)
        if ends is not None:
            found.append(command.launch(ends.nodes).global_size[0] // LOCAL)
            waits.append("shortened")
        return ends

    left = list[str]()

    def leave() -> None:
        is_waiting.wait()
        left.append(one)
        queue.session.devices.events.put(DeviceLeaves(one))

    monkeypatch.setattr(backend, "wait", waited)
    monkeypatch.setattr(backend, "shorten", shortened)
    thread = threading.Thread(target=leave)
    thread.start()
    ran = run_by(queue, (GROUPS,))[1]
    thread.join()
    if found:  # (the launch may have ended before the thread had its turn)
        assert ran[one] == found[0] < GROUPS
        assert waits[: waits.index("shortened")].count("after") <= 1  # the thread may be between its two lines


def test_who_comes_takes_part_and_who_left_for_good_does_not(queue: mc.Queue) -> None:
    _, other = queue.devices
    queue.leave(other)
    assert run_by(queue, (GROUPS,))[1][other] == 0
    assert run_by(queue, (GROUPS,), DeviceComes(other))[1][other] > 0


def test_a_launch_waits_where_all_have_left_and_one_returns(queue: mc.Queue) -> None:
    one, other = queue.devices
    events = DeviceLeaves(one, returns=True), DeviceLeaves(other), DeviceComes(one)
    assert run_by(queue, (GROUPS,), *events)[1][one] > 0


def test_where_nobody_comes_shares_stay(queue: mc.Queue) -> None:
    one, other = queue.devices
    for shares in ((GROUPS,), (GROUPS - 1, 1), (1, GROUPS - 1)):
        result, ran = run_by(queue, shares)
        assert (ran[one], ran[other]) == (shares[0], GROUPS - shares[0])
        assert len(list(result.trace.kernels())) == len(shares), "a share is one launch"
        assert result.settled is result.plan, "and may move in the next run"


@pytest.mark.parametrize("policy", ["auto", "in_order", "pns", "balance", "mkmd", "hop", "adaptive", "eager"])
def test_policies_need_not_ask_for_that(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemptible, "SHORTEST", 0.0)
    with mc.Queue("native/2", policy=policy) as queue:
        x = queue.array(BEGIN)
        with queue.prepare() as graph:
            PROGRAM.change(queue, (ITEMS,), (LOCAL,), x, np.uint32(3))
        end, turns = time.monotonic() + 60, 0
        while time.monotonic() < end:  # it is analysed beside the runs
            result, turns = graph.run(), turns + 1
            if result.playback is not None and result.playback.command_graph.lowered.chunks and turns > 7:
                break
        assert result.playback is not None
        assert result.playback.command_graph.lowered.chunks.keys() == {0}


def simulated(count: int = 1, shortens: bool = True, **more: object) -> Simulated:
    """A chain of launches of 100 ms on two devices that can end them early."""
    found = Simulated((0.1, 0.1), count)
    devices = tuple(replace(d, shortens=shortens, **more) for d in found.machine.devices)  # type: ignore[arg-type]
    found.machine = replace(found.machine, devices=devices)
    return found


def makespan(result: Result) -> float:
    kernels = sorted(result.trace.kernels(), key=lambda e: (e.node, e.first))
    for node in {e.node for e in kernels}:
        mine = [e for e in kernels if e.node == node]
        assert [e.first for e in mine] == [sum(e.groups for e in mine[:i]) for i in range(len(mine))]
    return max(e.end for e in kernels)


@pytest.mark.parametrize("policy", ["balance", "pns", "auto", "adaptive", "eager", "heft", "fcfs"])
@pytest.mark.parametrize("leaves", [0.003, 0.02, 0.04])
def test_a_simulated_device_that_leaves_is_soon_free(leaves: float, policy: str) -> None:
    """Within 5 ms, of launches of 50 ms or 100; others run what is left, and nothing runs twice."""
    chain = simulated()
    used = {e.device for e in chain.run(policy=policy).trace.kernels()}
    one = min(used)
    result = chain.run(((leaves, lambda: chain.events.put(DeviceLeaves(one))),), policy=policy)
    assert leaves < max(e.end for e in result.trace.kernels() if e.device == one) <= leaves + 5e-3
    assert makespan(result) <= 0.1 + (leaves if len(used) == 1 else 0.0) + 5e-3


@pytest.mark.parametrize("policy", ["balance", "pns", "eager"])
@pytest.mark.parametrize("units", [1, 8])
def test_a_simulated_device_that_can_end_nothing_early_leaves_after_its_packets(policy: str, units: int) -> None:
    """Two of them, in which a launch takes no longer by more than 1 %."""
    chain = simulated(1, False, compute_units=units, launch_overhead=30e-6)
    calm = chain.run(policy=policy).trace
    ran = list(calm.kernels())
    count = len([e for e in ran if e.device == ran[0].device])
    assert count > 2
    assert max(e.end for e in ran) <= 1.01 * (0.1 if len(ran) == count else 0.05) + 30e-6
    result = chain.run(((0.02, lambda: chain.events.put(DeviceLeaves(ran[0].device))),), policy=policy)
    packet = ran[0].end - ran[0].start
    assert max(e.end for e in result.trace.kernels() if e.device == ran[0].device) <= 0.02 + 2 * packet + 1e-3
    assert len({e.device for e in result.trace.kernels()}) == 2
    makespan(result)


@pytest.mark.parametrize("comes", [0.01, 0.06])
def test_a_simulated_device_that_comes_takes_half_of_what_is_left(comes: float) -> None:
    chain = simulated()
    chain.events.put(DeviceLeaves("d1"))
    result = chain.run(((comes, lambda: chain.events.put(DeviceComes("d1"))),))
    assert makespan(result) <= comes + (0.1 - comes) / 2 + 5e-3


@pytest.mark.parametrize(("policy", "seconds"), [("balance", 0.05), ("pns", 0.1), ("auto", 0.1)])
@pytest.mark.parametrize("is_said", [False, True])
def test_others_help_a_device_that_becomes_four_times_slower(policy: str, seconds: float, is_said: bool) -> None:
    """From a tenth of the launch on: at once if it is said, or when it takes a quarter longer than it should. Alone, it
    would take 3.7 times as long; both together have 90 ms of work left, of which they do 1.25 in each."""
    chain, since = simulated(), 0.1 * seconds
    slow = Disturbance(slowdowns=(Slowdown(DeviceIndex(0), 4.0, since, 10.0),))
    said = ((since, lambda: chain.events.put(DeviceSlows("d0", 4.0))),) if is_said else ()
    assert makespan(chain.run(policy=policy)) == pytest.approx(seconds, rel=0.01)
    result = chain.run(said, slow, policy=policy)
    assert makespan(result) <= (since + 0.09 / 1.25 + 5e-3 if is_said else 1.85 * seconds)


def test_one_late_launch_tells_of_those_to_come() -> None:
    """Both have half of each of six launches, which would take 3.9 times as long, and can take 1.6 times."""
    chain = simulated(6)
    slow = Disturbance(slowdowns=(Slowdown(DeviceIndex(0), 4.0, 0.03, 10.0),))
    assert makespan(chain.run()) == pytest.approx(0.3, rel=0.01)
    assert makespan(chain.run(disturbance=slow)) <= 1.7 * 0.3


def test_devices_that_are_not_alike_help_one_that_takes_twice_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = simulated()
    one, other = chain.machine.devices
    chain.machine = replace(chain.machine, devices=(one, replace(other, model="another")))
    found = []
    for factor in (1.6, 4.0):
        slow = Disturbance(slowdowns=(Slowdown(DeviceIndex(0), factor, 0.01, 10.0),))
        found.append(makespan(chain.run(disturbance=slow)))
    monkeypatch.setenv("MANYCL_DETERMINISTIC", "1")
    found.append(makespan(chain.run(disturbance=slow)))
    assert found[0] == pytest.approx(0.01 + 1.6 * 0.04, rel=0.01)
    assert found[1] < 0.12
    assert found[2] == pytest.approx(0.01 + 4 * 0.04, rel=0.01)


def test_what_is_learned_is_of_shares_as_they_were_planned() -> None:
    """A device leaves in the middle of a run, and the other one runs a part of its share: what both take for shares as
    planned, which are halves of 50 ms, is learned all the same."""
    chain = simulated()
    result = chain.run(((0.02, lambda: chain.events.put(DeviceLeaves("d0"))),), policy="adaptive")
    assert [(e.device, e.groups) for e in result.trace.kernels()] == [("d0", 896), ("d1", 2048), ("d1", 1152)]
    taken = {0: 0.0, 1: 0.0}
    for _, device, seconds in learners._measured(result):
        taken[device] += seconds
    assert taken == {0: pytest.approx(0.05, rel=0.02), 1: pytest.approx(0.05, rel=0.02)}
