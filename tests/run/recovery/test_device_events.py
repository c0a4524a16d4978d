"""What is said of devices that leave and come, and what launches between such events do."""

from __future__ import annotations

import threading
import weakref
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manycl as mc
from manycl.errors import DeviceError
from manycl.machine import Device, Machine
from manycl.plan import policies
from manycl.run.recovery.device_events import (
    DeviceComes,
    DeviceEvent,
    DeviceEvents,
    DeviceLeaves,
    DevicesInUse,
    DeviceSlows,
    EventMonitor,
)
from manycl.run.recovery.drain import leaving
from manycl.run.recovery.reservation_listener import _Watched

N = 1 << 12
PROGRAM = mc.Program(
    "__kernel void inc(__global int *x) { x[get_global_id(0)] += 1; }\n"
    "__kernel void add(__global const int *a, __global int *b) { b[get_global_id(0)] += a[get_global_id(0)]; }"
)
DEVICES = ("cpu0.0", "cpu0.1", "cpu0.10", "gpu0")
SAID = st.sampled_from((*DEVICES, "cpu0"))
EVENTS = st.one_of(
    st.builds(DeviceLeaves, SAID, st.sampled_from(("drain", "now", "lost")), st.booleans()),
    st.builds(DeviceComes, SAID),
)


# the inbox


@given(st.lists(EVENTS, max_size=20))
def test_who_is_away_is_what_was_said_last(said: list[DeviceEvent]) -> None:
    events = DeviceEvents(DEVICES)
    latest: dict[str, DeviceEvent] = {}
    for event in said:
        news = events.put(event)
        mine = [name for name in DEVICES if name == event.device or (event.device == "cpu0" and name != "gpu0")]
        assert set(news) <= set(mine)
        for name in mine:
            was_here = not isinstance(latest.get(name), DeviceLeaves)
            if was_here == isinstance(event, DeviceLeaves):
                assert name in news, "a change is news"
            latest[name] = event
    assert events.away.keys() == {n for n, event in latest.items() if isinstance(event, DeviceLeaves)}
    assert all(event.device == name for name, event in events.away.items())
    # who hears of news alone knows the same
    heard: set[str] = set()
    for event in events.since(0):
        (heard.add if isinstance(event, DeviceLeaves) else heard.discard)(event.device)
    assert heard == events.away.keys()


def test_who_wants_to_know_hears_of_devices_that_are_used_no_more() -> None:
    """At once, and of nothing else; and may ask then whether they are free."""
    found: list[bool] = []
    events = DeviceEvents(DEVICES, lambda: found.append(events.wait_until_free("gpu0", 0.0)))
    one = DevicesInUse(events, ["gpu0"])
    other = DevicesInUse(events)
    other.become(["gpu0", "cpu0.0"])
    one.add("cpu0.1")
    assert found == []
    one.discard("gpu0")
    assert found == [False]
    other.become(["cpu0.0"])
    other.become(["cpu0.0"])
    assert found == [False, True]


def test_events_of_unknown_devices_and_kinds_are_refused() -> None:
    events = DeviceEvents(DEVICES)
    for wrong in (DeviceComes("gpu1"), DeviceLeaves("cpu"), DeviceLeaves("gpu")):
        with pytest.raises(DeviceError, match="there is no device"):
            events.put(wrong)
    with pytest.raises(DeviceError, match="drain, now, lost"):
        DeviceLeaves("gpu0", "soon")  # type: ignore[arg-type]
    assert not events.happened


@given(st.lists(st.one_of(EVENTS, st.builds(DeviceSlows, SAID, st.sampled_from((0.5, 1.0, 3.0)))), max_size=20))
def test_how_slow_devices_are_is_what_was_said_last(said: list[DeviceEvent]) -> None:
    events = DeviceEvents(DEVICES)
    latest = dict.fromkeys(DEVICES, 1.0)
    for event in said:
        before, news = dict(latest), events.put(event)
        if isinstance(event, DeviceSlows):
            mine = [name for name in DEVICES if name == event.device or (event.device == "cpu0" and name != "gpu0")]
            latest.update(dict.fromkeys(mine, event.factor))
            assert set(news) == {name for name in mine if before[name] != event.factor}
        assert events.slow == {name: factor for name, factor in latest.items() if factor != 1.0}
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(DeviceError, match="positive number"):
            DeviceSlows("gpu0", wrong)


def test_waiting_for_news_and_for_free_devices() -> None:
    events = DeviceEvents(DEVICES)
    assert not events.wait_for_news(0, 0.0)
    used, other = DevicesInUse(events, ["cpu0.1", "gpu0"]), DevicesInUse(events, ["gpu0"])
    assert events.wait_until_free("cpu0.0", 0.0)
    assert not events.wait_until_free("cpu0", 0.0)
    done = threading.Timer(0.05, lambda: used.become(()))
    done.start()
    assert events.wait_until_free("cpu0", 60.0)
    assert not events.wait_until_free("gpu0", 0.0)
    other.discard("gpu0")
    assert events.wait_until_free("gpu0", 0.0)
    heard: list[int] = []
    events.listen(lambda: heard.append(len(events.happened)))
    said = threading.Timer(0.05, lambda: events.put(DeviceLeaves("gpu0")))
    said.start()
    assert events.wait_for_news(0, 60.0)
    said.join()
    assert heard == [1]
    assert events.put(DeviceLeaves("gpu0", "now")) == ()
    assert heard == [1], "that is no news"


@given(
    st.sets(st.sampled_from(DEVICES)),
    st.lists(EVENTS, max_size=12),
    st.sets(st.integers(0, 12)),
)
def test_a_device_is_free_once_it_has_left_or_the_run_is_over(
    begins: set[str], said: list[DeviceEvent], asks: set[int]
) -> None:
    """Whether or not the run had it from the beginning, and however much has happened when it asks."""
    events = DeviceEvents(DEVICES)
    used = DevicesInUse(events, begins)
    watch = EventMonitor(events, Machine(tuple(Device(name, "cpu", memory=0) for name in DEVICES)), used)
    busy, heard = set(begins), 0
    for n, event in enumerate([*said, None]):
        if event is not None:
            events.put(event)
        if event is None or n in asks:
            news, heard = events.since(heard), len(events.happened)
            watch.news()
            for one in news:
                (busy.add if isinstance(one, DeviceComes) else busy.discard)(one.device)
            watch.look()
            for name in DEVICES:
                assert events.wait_until_free(name, 0.0) == (name not in busy)
    used.become(())
    for name in DEVICES:
        assert events.wait_until_free(name, 0.0), "the run is over"


# launches


@pytest.fixture(params=["opencl/3", "native/3"])
def devices(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["1", "0"], ids=["zero copy", "copies"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MANYCL_ZERO_COPY", request.param)
    return str(request.param)


class Sums:
    """Two arrays on which the same is done again and again, and what they are to hold."""

    def __init__(self, queue: mc.Queue) -> None:
        self.queue = queue
        self.arrays = [queue.zeros(N, np.int32) for _ in range(2)]
        self.values = [0, 0]

    def enqueue(self) -> None:
        for array in self.arrays:
            PROGRAM.inc(self.queue, (N,), (16,), array)
        PROGRAM.add(self.queue, (N,), (16,), *self.arrays)

    def reckon(self) -> None:
        a, b = (v + 1 for v in self.values)
        self.values = [a, b + a]

    def check(self) -> None:
        for array, value in zip(self.arrays, self.values, strict=True):
            assert (array.get() == value).all()

    def used(self) -> set[str]:
        return {e.device for e in self.queue.trace.kernels()}


@pytest.mark.parametrize("said", ["comes", "lost", "drain"])
def test_what_was_said_of_a_device_since_it_was_reserved_holds_when_it_is_free(devices: str, said: str) -> None:
    """That it was used again all the same, is lost, or is not to be used by its user's own wish."""
    with mc.Queue(devices) as queue:
        session = queue.session
        names = [d.name for d in session.machine.devices]
        events = session.devices.events
        watched = _Watched(weakref.ref(session.devices), {n: frozenset({n}) for n in names})
        for _ in range(2):
            watched.look(frozenset({names[0]}), ())
            assert [*events.away] == [names[0]]
            events.put(DeviceComes(names[0]) if said == "comes" else DeviceLeaves(names[0], said))
            watched.look(frozenset(), ())
            assert [*events.away] == [names[0]] * (said != "comes")
            assert not watched.left


POLICIES = [name for name in policies.NAMES if name != "optimal"]


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(("policy", "memory"), [*zip(POLICIES, cycle("10"))], indirect=["memory"])
def test_what_is_launched_next_does_not_use_devices_that_have_left(policy: str, devices: str) -> None:
    with mc.Queue(devices, policy=policy) as queue:
        sums, there = Sums(queue), queue.devices
        whole = there[0].partition(".")[0]
        for gone in ((), there[:1], there[:2], (), there[1:], there[::2], ()):
            queue.come(whole)
            for name in gone:
                queue.leave(name)
            for _ in range(3):
                sums.enqueue()
                sums.reckon()
                sums.check()
                assert not sums.used() & {*gone}
            assert queue.away.keys() == {*gone}


@pytest.mark.usefixtures("memory")
def test_prepared_graphs_and_given_plans_run_on_devices_that_are_there(devices: str) -> None:
    with mc.Queue(devices, policy="mkmd") as queue:
        sums, there = Sums(queue), queue.devices
        with queue.prepare() as graph:
            sums.enqueue()
        for gone in ((), there[:1], (), there[1:], ()):
            queue.come(there[0].partition(".")[0])
            for name in gone:
                queue.leave(name, "now")
            for _ in range(6):
                graph.run()
                sums.reckon()
                assert not sums.used() & {*gone}
            sums.check()
        plan = graph.run().plan
        sums.reckon()
        queue.leave(there[1])
        with mc.Queue(session=queue.session, policy=plan) as other:
            for array in sums.arrays:
                array.use(other)
            sums.queue = other
            sums.enqueue()
            sums.reckon()
            sums.check()
            assert there[1] not in sums.used()


def test_who_has_no_device_waits_for_one_that_returns(devices: str) -> None:
    with mc.Queue(devices.replace("/3", "")) as queue:
        sums, (only,) = Sums(queue), queue.devices
        sums.enqueue()
        queue.leave(only, returns=True)
        sums.enqueue()
        comes = threading.Timer(0.1, lambda: queue.come(only))
        comes.start()
        sums.reckon()
        sums.reckon()
        sums.check()
        comes.join()
        queue.leave(only)
        sums.enqueue()
        with pytest.raises(DeviceError, match=f"all devices have left: {only}"):
            queue.finish()
        queue.come(only)
        for array in sums.arrays:
            array.fill(0)
        sums.values = [0, 0]
        sums.enqueue()
        sums.reckon()
        sums.check()


def test_a_device_is_free_when_what_it_was_given_as_it_was_enqueued_has_ended(devices: str) -> None:
    with mc.Queue(devices.replace("/3", "")) as queue:
        sums, (only,) = Sums(queue), queue.devices
        for _ in range(3):
            sums.enqueue()
            sums.reckon()
        queue.leave(only)
        assert queue.device_events.wait_until_free(only, 60.0)
        assert queue.session.devices.stream is None
        sums.check()


def test_contents_leave_the_memory_of_a_device_that_leaves(devices: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with mc.Queue(devices, policy="mkmd") as queue:
        sums = Sums(queue)
        for _ in range(3):
            sums.enqueue()
            sums.reckon()
            queue.finish()
        memory = queue.session.backend.memory
        held = [d for d in queue.session.machine.indices if memory.allocated(d)]
        assert held, "copies are used"
        name = queue.devices[held[0]]
        queue.leave(name)
        sums.enqueue()
        sums.reckon()
        sums.check()
        for thread in threading.enumerate():
            if thread.name == "manycl-leaving":
                thread.join()
        assert not memory.allocated(held[0])


@pytest.mark.parametrize(("device", "ends"), [(0, True), (1, False)])
def test_only_the_eager_commands_of_a_device_that_leaves_are_ended(device: int, ends: bool) -> None:
    class Stub:
        closed, lock, away = False, threading.RLock(), {0: "drain"}
        machine, ended = Machine(tuple(Device(f"d{m}", "gpu", memory=m) for m in (1, 2))), list[str]()
        stream = SimpleNamespace(device=device, close=lambda: Stub.ended.append("closed"))
        backend = SimpleNamespace(memory=SimpleNamespace(allocated=lambda device: ()))

        def end_stream(self) -> None:
            self.ended.append("ended")

        @property
        def devices(self) -> Any:  # it stands for the buffers, too
            return self

    devices: Any = Stub()
    leaving(devices)()
    for thread in threading.enumerate():
        if thread.name == "manycl-leaving":
            thread.join()
    assert devices.ended == (["closed", "ended"] if ends else [])
