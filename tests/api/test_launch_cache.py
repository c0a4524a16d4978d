"""The launch cache: launches like one before do as those that are checked, but quicker."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import weakref
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.api.arrays.arrays import Array
from manycl.api.dispatch import compiled
from manycl.api.events import Event
from manycl.api.program import Kernel
from manycl.drivers.driver import DriverError
from manycl.errors import DeviceError, LaunchError
from manycl.run.streams import stream_state
from manycl.run.streams.eager_stream import EagerStream

N, ARRAYS = 64, 4
SIZES = (N,), (16,)
DEVICES = "cpu/2#0", "opencl/4#0"
NEW = Array.new
PROGRAM = mc.Program("""
kernel void add(global const int *x, global int *y) { y[get_global_id(0)] += x[get_global_id(0)]; }
kernel void put(global int *x, int at, int value) { if (get_global_id(0) == 0) x[at] = value; }
""")


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that were checked: those that the launch cache has not given to a device."""
    done: list[str] = []
    give = EagerStream.give

    def counted(self: EagerStream, task: Any, *others: Any) -> bool:
        done.append(task.name)
        return give(self, task, *others)

    monkeypatch.setattr(EagerStream, "give", counted)
    return done


@pytest.mark.parametrize("device", DEVICES)
def test_python_has_nothing_to_do_with_them(device: str, checked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def unexpected(*given: Any) -> Any:
        raise AssertionError("compiled code enqueues it")

    with mc.Queue(device) as queue:
        x, y, z = (queue.array(np.full(N, i, np.int32)) for i in (1, 2, 3))
        event = PROGRAM.add(queue, *SIZES, x, y)
        monkeypatch.setattr(type(queue.session.backend.drivers[0]), "launch", unexpected)
        assert PROGRAM.add(queue, *SIZES, x, y).node == event.node + 1
        event = PROGRAM.add(queue, *SIZES, y, z)
        PROGRAM.add(queue, *SIZES, y, x)
        assert checked == ["add"]
        assert (event.queue, event.enqueued, event.node) == (queue, queue.enqueued, 2)
        assert (x.get() == 5).all()
        assert (z.get() == 7).all()
        assert [e.name for e in queue.trace.kernels()] == ["add"] * 4
        assert set(queue.trace.edges) == {(0, 1), (0, 3), (1, 2), (1, 3)}


@pytest.mark.parametrize("beside", [1, 1 << 20])
def test_what_the_device_does_not_have_is_brought(
    beside: int, checked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setattr(stream_state, "LARGE", beside)
    with mc.Queue("cpu/2#0") as queue:
        x, y, z = (queue.array(np.full(N, i, np.int32)) for i in (1, 2, 3))
        PROGRAM.add(queue, *SIZES, x, z)
        assert (z.get() == 4).all()
        del z  # the next array has its memory on the device
        for _ in range(3):
            PROGRAM.add(queue, *SIZES, x, y)
        checked.clear()
        z = queue.array(np.full(N, 30, np.int32))
        PROGRAM.add(queue, *SIZES, z, y)
        assert checked == (["add"] if beside == 1 else [])  # it has to wait for what is brought beside
        assert (y.get() == 35).all()


def test_python_has_nothing_to_do_with_arrays_of_a_size_that_was_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def new(*how: Any) -> Array:
        made.append(how)
        return NEW(*how)

    monkeypatch.setattr(Array, "new", new)
    shape = (N,)
    with mc.Queue("cpu/2#0") as queue:
        for count in (2, 1, 1):  # the first one after some were left behind has these looked at
            made.clear()
            x, y = queue.empty(shape, np.int32), queue.empty(shape, np.int32)
            assert len(made) == count
            assert (y.queue, y.shape, y.dtype, y.argument.key) == (queue, shape, np.dtype(np.int32), y.buffer.key)
            assert x.buffer.key != y.buffer.key
            x.fill(3)
            y.fill(4)
            assert (y.get() == 4).all()
            assert (x.get() == 3).all()
            del x, y
            queue.finish()
        assert queue.empty(shape).dtype == np.float32
        assert queue.empty(shape, np.int32, name="named").name == "named"
        with pytest.raises(LaunchError):
            queue.empty((-1,), np.int32)
        with pytest.raises(TypeError):
            queue.empty()  # type: ignore[call-arg]
    with pytest.raises(DeviceError):
        queue.empty(shape, np.int32)


def test_what_has_been_compiled_before_is_there_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiled.uninstall()
    monkeypatch.setenv("MANYCL_CACHE", str(tmp_path))  # nothing is there
    monkeypatch.setattr(compiled, "_loaded", [])
    assert not compiled.install(compiles=False)
    assert (Kernel.__call__, mc.Queue.empty) == compiled.IN_PYTHON
    assert compiled.install()
    compiled.uninstall()
    monkeypatch.setattr(compiled, "_loaded", [])
    monkeypatch.setattr(compiled, "_sought", threading.Event())
    with mc.Queue("cpu/2#0") as queue:
        PROGRAM.add(queue, *SIZES, queue.zeros(N, np.int32), queue.zeros(N, np.int32))
        assert Kernel.__call__ is not compiled.IN_PYTHON[0]


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_enqueued_in_blocks_of_times_has_times(device: str, checked: list[str]) -> None:
    with mc.Queue(device, profile=True) as queue:
        x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
        events = [PROGRAM.add(queue, *SIZES, x, y) for _ in range(1100)]
        assert len(checked) == 1
        events[-1].wait()
        times = [(event.start, event.end) for event in events]
    assert all(start <= end for start, end in times)
    assert all(end <= start for (_, end), (start, _) in pairwise(times))


def test_what_is_far_ahead_is_paced(monkeypatch: pytest.MonkeyPatch) -> None:
    paced, pace = list[float](), EagerStream.pace

    def noted(stream: EagerStream) -> None:
        paced.append(stream.given.ahead)
        pace(stream)

    monkeypatch.setattr(EagerStream, "pace", noted)
    with mc.Queue("cpu/2#0") as queue:
        x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
        for _ in range(102):
            PROGRAM.add(queue, *SIZES, x, y)
        # commands that nobody knows count for a 64th of a second
        assert [64 * seconds for seconds in paced] == [17, 34, 51, 65, 51, 65, 51, 65, 51]


def test_ctrl_c_while_it_is_paced_is_no_other_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(stream: EagerStream) -> None:
        raise KeyboardInterrupt

    with mc.Queue("cpu/2#0") as queue:
        x, y = queue.array(np.ones(N, np.int32)), queue.zeros(N, np.int32)
        for _ in range(33):
            PROGRAM.add(queue, *SIZES, x, y)
        with monkeypatch.context() as patched:
            patched.setattr(EagerStream, "pace", pressed)
            with pytest.raises(KeyboardInterrupt):
                PROGRAM.add(queue, *SIZES, x, y)
        other = threading.Thread(target=PROGRAM.add, args=(queue, *SIZES, x, y), daemon=True)
        other.start()
        other.join(60)
        assert not other.is_alive()
        assert (y.get() == 35).all()


class Asking:
    """The number 3, which does something when it is asked for."""

    def __init__(self, does: Callable[[], object]) -> None:
        self.does = does

    def __index__(self) -> int:
        self.does()
        return 3


@pytest.mark.parametrize("zero_copy", ["0", "1"])
def test_numbers_may_launch_the_same_kernel_when_they_are_asked_for(
    zero_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)
    with mc.Queue("cpu/2#0") as queue:
        x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
        number = Asking(lambda: PROGRAM.put(queue, *SIZES, y, 5, 8))
        for turn in range(1000):  # among them are those for which the log has to grow
            PROGRAM.put(queue, *SIZES, x, turn % N, 7)
            if turn % 3 == 0:
                PROGRAM.put(queue, *SIZES, x, 9, number)
                assert len(queue.enqueued) == turn + 1 + 2 * (turn // 3 + 1)
        assert x.get().tolist() == [7] * 9 + [3] + [7] * (N - 10)
        assert y.get().tolist() == [0] * 5 + [8] + [0] * (N - 6)


@pytest.mark.parametrize("zero_copy", ["0", "1"])
def test_numbers_may_wait_for_all_when_they_are_asked_for(zero_copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)
    with mc.Queue("cpu/2#0") as queue:
        x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
        for turn in range(60):
            PROGRAM.put(queue, *SIZES, x, turn, 7)
            PROGRAM.put(queue, *SIZES, y, turn, 2)
            PROGRAM.put(queue, *SIZES, x, turn, Asking((x.get, y.get, queue.finish)[turn % 3]))
            PROGRAM.put(queue, *SIZES, x, Asking(y.get), 4)
        assert x.get().tolist() == [3] * 3 + [4] + [3] * 56 + [0] * (N - 60)


def test_finalizers_may_launch_the_same_kernel() -> None:
    class Garbage:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            PROGRAM.add(queue, *SIZES, x, z)
            finalized.append(None)

    finalized: list[None] = []
    before = gc.get_threshold()
    with mc.Queue("cpu/2#0") as queue:
        x, y, z = (queue.array(np.full(N, i, np.int32)) for i in (1, 0, 0))
        gc.set_threshold(3)
        try:
            for turn in range(2000):
                if turn % 3 == 0:
                    Garbage()
                PROGRAM.add(queue, *SIZES, x, y)
        finally:
            gc.set_threshold(*before)
        gc.collect()
        assert finalized
        assert (y.get() == 2000).all()
        assert (z.get() == len(finalized)).all()


def test_nothing_keeps_arrays_that_are_gone() -> None:
    with mc.Queue("cpu/2#0") as queue:
        x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)

        def run() -> None:
            for _ in range(100):
                PROGRAM.add(queue, *SIZES, x, y)
                PROGRAM.add(queue, *SIZES, y, x)
            x.get()
            gc.collect()

        run()
        before = sys.getrefcount(x), sys.getrefcount(y), sys.getrefcount(queue)
        run()
        assert (sys.getrefcount(x), sys.getrefcount(y), sys.getrefcount(queue)) == before
        assert not any(type(found) is Event and found.queue is queue for found in gc.get_objects())
        z = queue.zeros(N, np.int32)
        PROGRAM.add(queue, *SIZES, x, z)
        PROGRAM.add(queue, *SIZES, x, y)
        dropped = weakref.ref(z)
        del z
        queue.finish()
        assert dropped() is None


def test_without_it_each_launch_is_checked(monkeypatch: pytest.MonkeyPatch, checked: list[str]) -> None:
    def fails(compiles: bool) -> None:
        raise DriverError("there is no compiler")

    compiled.uninstall()
    monkeypatch.setattr(compiled, "_loaded", [])
    monkeypatch.setattr(compiled, "_load", fails)
    assert not compiled.install()
    assert (Kernel.__call__, mc.Queue.empty) == compiled.IN_PYTHON
    with mc.Queue("cpu/2#0") as queue:
        x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
        for _ in range(3):
            PROGRAM.add(queue, *SIZES, x, y)
        assert checked == ["add"] * 3


def test_so_many_launches_have_it_compiled_wherever_results_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """In ordinary loops: a few launches, and a result. A process that ends waits for that."""
    compiled.uninstall()
    asked, waited_for = threading.Event(), []

    def install(compiles: bool = True) -> None:
        if compiles:
            waited_for.append(not threading.current_thread().daemon)
            asked.set()

    monkeypatch.setattr(compiled, "install", install)
    monkeypatch.setattr(compiled, "_wanted", itertools.count(1))
    with mc.Queue("cpu/2#0") as queue:
        x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
        for turn in range(compiled.MANY):
            assert not asked.is_set()
            PROGRAM.add(queue, *SIZES, x, y)
            if turn % 5 == 0:
                x.get()
        assert asked.wait(60)
    assert waited_for == [True]


STEPS = st.one_of(
    st.tuples(st.just("add"), st.integers(0, ARRAYS - 1), st.integers(0, ARRAYS - 1)),
    st.tuples(st.just("add"), st.integers(0, 1), st.integers(2, 3)),  # often the same
    st.tuples(st.just("put"), st.integers(0, ARRAYS - 1), st.sampled_from([0, 1, N - 1, N])),
    st.tuples(st.just("new"), st.integers(0, ARRAYS - 1), st.sampled_from([N, 2 * N, N // 2, -N])),
    st.tuples(st.just("view"), st.integers(0, ARRAYS - 1), st.integers(0, ARRAYS - 1)),
    st.tuples(st.just("wrong"), st.integers(0, ARRAYS - 1), st.integers(0, 3)),
    st.tuples(
        st.sampled_from(["half", "get", "map", "call", "prepare"]),
        st.integers(0, ARRAYS - 1),
        st.integers(0, ARRAYS - 1),
    ),
)


class Play:
    """Steps on some arrays of a queue, and on NumPy's."""

    def __init__(self, queue: mc.Queue) -> None:
        self.queue = queue
        self.mine = [np.arange(N, dtype=np.int32) + i for i in range(ARRAYS)]
        self.arrays = [queue.array(data) for data in self.mine]
        self.told: list[str] = []

    def do(self, what: str, i: int, j: int) -> None:
        queue, a, mine = self.queue, self.arrays, self.mine
        if what == "call" and min(len(mine[i]), len(mine[j])) < N:
            return  # what is planned is refused when it is to run
        if what == "add":
            PROGRAM.add(queue, *SIZES, a[i], a[j])
            mine[j][:N] += mine[i][:N]
        elif what == "half":
            PROGRAM.add(queue, (N // 2,), (16,), a[i], a[j])
            mine[j][: N // 2] += mine[i][: N // 2]
        elif what == "prepare":
            with queue.prepare() as prepared:
                PROGRAM.add(queue, *SIZES, a[i], a[j])
            prepared.run()
            mine[j][:N] += mine[i][:N]
        elif what == "put":
            PROGRAM.put(queue, *SIZES, a[i], j, 7)  # LaunchError where it is behind the last element
            mine[i][j] = 7
        elif what == "new":  # of another size, or one whose contents are written first
            mine[i] = np.full(abs(j), i, np.int32)
            a[i] = queue.empty(-j, np.int32) if j < 0 else queue.array(mine[i])
            if j < 0:
                queue.fill(a[i], i)
        elif what == "view":
            PROGRAM.add(queue, *SIZES, a[i][:N], a[j])
            mine[j][:N] += mine[i][:N]
        elif what == "wrong":
            args: list[tuple[Any, ...]] = [(a[i],), (a[i], 3), (a[i], queue.zeros(N)), (a[i], None)]
            PROGRAM.add(queue, *SIZES, *args[j])
        elif what == "call":
            queue.call(lambda x: np.add(x, 1, out=x), a[i])
            PROGRAM.add(queue, *SIZES, a[i], a[j])  # waits for that
            mine[i] += 1
            mine[j][:N] += mine[i][:N]
            queue.finish()
        elif what == "get":
            assert (a[i].get() == mine[i]).all()
            self.told.append(str(sorted(queue.result.graph.edges)))
        else:
            with a[i].map() as host:
                assert (host == mine[i]).all()
                for k in (j, j, i):
                    PROGRAM.add(queue, *SIZES, a[k], a[k])  # LaunchError where it is mapped
                    mine[k][:N] *= 2

    def all(self, steps: list[tuple[str, int, int]]) -> list[str]:
        for step in steps:
            try:
                self.do(*step)
            except mc.ManyclError as error:
                self.told.append(str(error))
            self.told.append(f"{len(self.queue)} enqueued")
        for array, mine in zip(self.arrays, self.mine, strict=True):
            assert (array.get() == mine).all()
        return self.told


@pytest.mark.parametrize("device", DEVICES)
@given(st.lists(STEPS, min_size=4, max_size=24), st.sampled_from(["0", "1"]))
@settings(max_examples=30)
def test_random_programs_do_the_same_either_way(device: str, steps: list[tuple[str, int, int]], zero_copy: str) -> None:
    told = []
    for way in (compiled.install, compiled.uninstall):
        way()
        with patch.dict("os.environ", MANYCL_ZERO_COPY=zero_copy), mc.Queue(device) as queue:
            told.append(Play(queue).all(steps))
    assert told[0] == told[1]
