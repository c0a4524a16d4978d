"""Memory of results: never two results' at once, never more than there were, and back when nobody looks at it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import manycl as mc
from manycl.api.arrays import arrays
from manycl.drivers.driver import DriverError
from manycl.machine import Device
from manycl.run.data.host_memory import HostMemory, PageLocks, Results
from manycl.run.data.pool import IDLE, size_class
from manycl.utilities.kept import FEW

SIZES = st.sampled_from([1000, 1001, 5000, 9000])
PROGRAM = mc.Program("""
kernel void add(global int *x, int n) { x[get_global_id(0)] += n; }
kernel void copy(global const int *x, global int *y) { y[get_global_id(0)] = x[get_global_id(0)]; }
""")


class Locking:
    """A driver that locks memory, so many times."""

    def __init__(self, most: int = 1000, platform: str = "one") -> None:
        self.most, self.asked, self.made = most, 0, list[int]()
        self.device = Device("d", "gpu", platform=platform)

    def pin(self, data: Any) -> object:
        self.asked += 1
        if len(self.made) >= self.most:
            raise DriverError("out of resources")
        self.made.append(len(data))
        return data


class ResultsMachine(RuleBasedStateMachine):
    """Results are taken, looked at in many ways, and dropped."""

    def __init__(self) -> None:
        super().__init__()
        locks = PageLocks()
        locks.use([Locking()])  # type: ignore[arg-type]
        self.results = Results(locks)
        self.held: list[tuple[Any, int]] = []
        self.most = 0

    @rule(nbytes=SIZES, number=st.integers(0, 255), way=st.sampled_from(["all", "part", "view", "memoryview"]))
    def taken(self, nbytes: int, number: int, way: str) -> None:
        if len(self.held) >= FEW:
            return
        result = self.results.take(nbytes).memory
        assert len(result) == nbytes
        result[:] = number
        looks = {"all": lambda: result, "part": lambda: result[7:90][::3], "view": lambda: result[:64].view(np.int64)}
        looks["memoryview"] = lambda: memoryview(result)[3:8]  # type: ignore[assignment]
        self.held.append((looks[way](), number))
        self.most = max(self.most, self.results.nbytes()[0])

    @rule(data=st.data())
    def dropped(self, data: Any) -> None:
        if self.held:
            del self.held[data.draw(st.integers(0, len(self.held) - 1))]

    @rule()
    def trimmed(self) -> None:
        self.results.trim()
        assert self.results.nbytes()[1] == 0

    @rule()
    def idle(self) -> None:
        for _ in range(2 * IDLE + 1):
            self.results.tick()
        assert self.results.nbytes()[1] == 0

    @invariant()
    def nobody_sees_anothers(self) -> None:
        for look, number in self.held:
            assert (np.asarray(look).view(np.uint8).ravel()[:5] == number).all() or look.strides != (1,)
            assert (np.frombuffer(bytes(look), np.uint8) == number).all()

    @invariant()
    def no_more_than_there_were(self) -> None:
        assert sum(self.results.nbytes()) <= self.most


ResultsMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestResults = ResultsMachine.TestCase


def test_one_after_another_is_one_memory() -> None:
    results, places = Results(PageLocks()), set()
    for nbytes in range(100_000, 100_050):
        result, _, is_pinned, _ = results.take(nbytes)
        places.add(result.ctypes.data)
        del result
        assert not is_pinned, "no device does that"
    assert len(places) == 1


def test_results_that_come_again_are_page_locked() -> None:
    locks, driver = PageLocks(), Locking()
    locks.use([driver])  # type: ignore[arg-type]
    results = Results(locks)
    kinds = [results.take(100_000).is_pinned for _ in range(20)]
    assert kinds == [False, *[True] * 19], "the first may not come again"
    assert driver.made == [size_class(100_000)]


def test_memory_is_page_locked_once_for_all_devices_of_a_platform() -> None:
    """Two devices move a half each: together they have moved all."""
    locks, (first, second, other) = PageLocks(), [Locking(platform=platform) for platform in ("one", "one", "two")]
    locks.use([first, second, other])  # type: ignore[list-item]
    memory = HostMemory(np.zeros(1 << 21, np.uint8))
    half = len(memory.data) // 2 - 4096
    found = [locks.is_locked(memory, half, d, is_upload=True) for d in (first, second, other, other, first)]  # type: ignore[arg-type]
    assert found == [False, True, False, True, True]
    assert (first.made, second.made, other.made) == ([1 << 21], [], [1 << 21])


def test_results_come_from_ordinary_memory_where_no_more_can_be_locked() -> None:
    locks, driver = PageLocks(), Locking(0)
    locks.use([driver])  # type: ignore[arg-type]
    results = Results(locks)
    places = set()
    for _ in range(20):
        result, _, is_pinned, _ = results.take(100_000)
        places.add(result.ctypes.data)
        del result
        assert not is_pinned
    assert len(places) == 1
    assert driver.asked == 1, "it is not asked again and again"


@pytest.fixture(params=["shared", "own"])
def queue(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "1" if request.param == "shared" else "0")
    monkeypatch.setattr(arrays, "LARGE", 1)
    with mc.Queue("cpu/2#0") as queue:
        yield queue


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_results_stay_what_they_are(seed: int) -> None:
    """Loops that keep some of their results, write into others, and hand some back as contents."""
    chance = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", str(int(chance.integers(2))))
        patch.setattr(arrays, "LARGE", 1)
        with mc.Queue("cpu/2" if chance.integers(2) else "cpu/2#1") as queue:
            kept: list[tuple[Any, int]] = []
            x, value = queue.zeros(256, np.int32), 0
            for _ in range(25):
                n = int(chance.integers(1, 9))
                PROGRAM.add(queue, (256,), (64,), x, n)
                value += n
                result = x.get()
                assert (result == value).all()
                match int(chance.integers(5)):
                    case 0:
                        kept.append((result, value))
                    case 1:
                        kept.append((result[3:9], value))
                    case 2:
                        result[:] = -1
                    case 3:
                        x = queue.array(result, copy=False)
                        kept.append((result, value))
                    case _:
                        view = x[64:128].get()
                        assert (view == value).all()
                        y = queue.empty(256, np.int32)
                        PROGRAM.copy(queue, (256,), (64,), x, y)
                        x = y
                if kept and not chance.integers(4):
                    kept.pop(int(chance.integers(len(kept))))
                assert all((k == v).all() for k, v in kept)


def test_results_outlive_their_queue(queue: mc.Queue) -> None:
    x = queue.array(np.arange(4096, dtype=np.float32).reshape(64, 64))
    result = x.get()
    assert result.shape == (64, 64)
    assert result.flags.writeable
    assert result.flags.c_contiguous
    queue.close()
    del x
    assert (result == np.arange(4096, dtype=np.float32).reshape(64, 64)).all()


def test_loops_need_no_new_memory_and_give_it_back(queue: mc.Queue) -> None:
    data = np.zeros(1 << 14, np.int32)

    def taken() -> dict[str, tuple[int, int]]:
        # (whether an array that was dropped counts as in use depends on when the last run began)
        return {name: (use.arrays + use.kept, use.results) for name, use in queue.session.memory().items()}

    for n in range(10_000):
        x = queue.array(data)
        PROGRAM.add(queue, data.shape, (64,), x, n)
        result = x.get()
        assert result[5] == n
        if n == 100:
            before = taken()
    assert taken() == before
    assert before["host"][1] == data.nbytes
    del x, result
    queue.session.trim()
    assert all(use == (0, 0, 0) for use in queue.session.memory().values())
