"""A device that fails for good, from a random call on: it is left out, and the others go on."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from random import Random, SystemRandom
from typing import Any
from unittest import mock

import numpy as np
import pyopencl as cl
import pytest

import manycl as mc
from manycl.drivers.driver import DriverError
from manycl.drivers.native.driver import NativeDriver
from manycl.drivers.opencl import copies, driver, relays
from manycl.errors import DeviceError, ManyclError, ResultError, RunError
from manycl.graph.dependences import GraphBuilder
from manycl.machine import HOST_BIT, Device, Link, Machine
from manycl.run.commands.backend import Run
from manycl.run.data.coherence import Directory
from manycl.run.graph_cache.kept_commands import KeptCommands
from manycl.run.lowering.steps import Lowered
from manycl.run.recovery.health import examine
from manycl.run.recovery.history import CommandHistory
from manycl.run.recovery.lineage import rest_of
from manycl.run.session import session
from manycl.run.streams import eager_rule
from tests.run.chaos.chaos_parts import download
from tests.run.chaos.test_state import launch

N = 256
PROGRAM = mc.Program(
    "__kernel void inc(__global int *x) { x[get_global_id(0)] += 1; }\n"
    "__kernel void add(__global const int *a, __global int *b) { b[get_global_id(0)] += a[get_global_id(0)]; }"
)


class Death:
    """``of``: what fails once ``calls`` of its calls were made: a native device's driver, or an OpenCL device in one
    context (a GPU's fault ends what its driver keeps for this GPU there; others of the context work). ``devices``:
    which of the processor's devices to choose, and ``name``: what it is called."""

    def __init__(self, devices: str, name: str) -> None:
        self.devices, self.name = devices, name
        self.of: Any = None
        self.calls = 0

    def called(self, one: Any, call: Any) -> None:
        if self.of is not None and one == self.of:
            self.calls -= 1
            if self.calls < 0:
                said = f"{getattr(call, '__name__', call)} failed: DEVICE_NOT_AVAILABLE"
                raise DriverError(said) if isinstance(one, NativeDriver) else cl.RuntimeError(said)

    def wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def mortal(first: Any, *args: Any, **options: Any) -> Any:
            one = first
            if isinstance(first, cl.Context):
                one = first, args[0]
            elif not isinstance(first, NativeDriver):
                one = first.context, first.device
            self.called(one, call)
            return call(first, *args, **options)

        return mortal


@pytest.fixture(params=[("opencl", "cpu1"), ("native", "cpu0")], ids=["opencl", "native"])
def death(request: pytest.FixtureRequest) -> Iterator[Death]:
    it = Death(*request.param)
    if it.devices == "native":
        calls = ("launch", "copy", "fill", "queue")
        patches = [mock.patch.object(NativeDriver, n, it.wrapped(getattr(NativeDriver, n))) for n in calls]
    else:
        patches = [
            mock.patch.object(driver, "_enqueue", it.wrapped(driver._enqueue)),
            mock.patch.object(cl, "enqueue_copy", it.wrapped(cl.enqueue_copy)),
            *[
                mock.patch.object(module, name, it.wrapped(getattr(module, name)))
                for name in ("read_buffer", "write_buffer")
                for module in (driver, copies, relays)
            ],
            mock.patch.object(cl, "enqueue_marker", it.wrapped(cl.enqueue_marker)),
            mock.patch.object(cl, "CommandQueue", it.wrapped(cl.CommandQueue)),
        ]
    for patch in patches:
        patch.start()
    yield it
    for patch in patches:
        patch.stop()


def victim(queue: mc.Queue, index: int) -> Any:
    """What of a device can die: see Death."""
    driver = queue.session.backend.drivers[index]
    return driver if isinstance(driver, NativeDriver) else (driver.context, driver.cl)


@pytest.mark.parametrize("zero_copy", ["1", "0"])
@pytest.mark.parametrize("prepared", [False, True])
def test_runs_go_on_without_a_device_that_has_died(
    zero_copy: str, prepared: bool, death: Death, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever it dies: arrays are right or lost by name, and the runs that follow are right."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)
    seed = SystemRandom().randrange(1 << 32)
    print("seed", seed)
    r = Random(seed)
    for _ in range(6):
        policy = r.choice(["eager", "heft", "auto", "adaptive", "balance", "clustering"])
        print(policy)
        with mc.Queue(f"{death.devices}/3", policy=policy) as queue:
            arrays = [queue.array(np.full(N, k, np.int32), name=f"a{k}") for k in range(3)]
            begun = list(range(3))

            def enqueue(queue: mc.Queue = queue, arrays: list[mc.Array] = arrays) -> None:
                for array in arrays:
                    PROGRAM.inc(queue, (N,), (16,), array)
                PROGRAM.add(queue, (N,), (16,), arrays[0], arrays[1])

            def reckoned(values: list[int]) -> list[int]:
                a, b, c = (v + 1 for v in values)
                return [a, b + a, c]

            if prepared:
                with queue.prepare() as graph:
                    enqueue()
            for turn in range(12):
                if turn == 6:
                    death.of, death.calls = victim(queue, r.randrange(3)), r.randrange(12)
                ended = True
                with warnings.catch_warnings(record=True):
                    warnings.simplefilter("always")
                    try:
                        if prepared:
                            graph.run()
                        else:
                            enqueue()
                            queue.finish()
                    except ManyclError:
                        ended = False
                    assert ended or turn >= 6
                    after = reckoned(begun)
                    for k, array in enumerate(arrays):
                        if r.random() < 0.5 and ended:
                            begun[k] = after[k]
                            continue  # it stays where it is
                        try:
                            got = array.get()
                        except (ResultError, RunError):
                            array.set(np.full(N, k, np.int32))
                            begun[k] = k
                            continue
                        allowed = {after[k]} if ended else {begun[k], begun[k] + 1, after[k]}
                        assert len(set(got.tolist())) == 1
                        assert got[0] in allowed
                        begun[k] = int(got[0])
            death.of = None
            assert len(queue.excluded) <= 1
            assert len(queue.devices) == 3 - len(queue.excluded)


@pytest.fixture
def own(death: Death, monkeypatch: pytest.MonkeyPatch) -> Iterator[mc.Queue]:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with mc.Queue(f"{death.devices}/2", policy="eager") as queue:
        yield queue


def test_what_is_lost_is_said_by_name_and_the_device_can_come_back(own: mc.Queue, death: Death) -> None:
    kept, lost = own.zeros(N, np.int32, name="kept"), own.zeros(N, np.int32, name="lost")
    PROGRAM.inc(own, (N,), (16,), kept)
    PROGRAM.inc(own, (N,), (16,), lost)
    own.finish()
    holders = [own.session.directory.memories(a.buffer.key) for a in (kept, lost)]
    assert holders == [frozenset({1}), frozenset({2})]
    death.of = victim(own, 1)
    first, second = (f"{death.name}.{part}" for part in range(2))
    words = f"{re.escape(second)} does not work any more.*are left: {re.escape(first)}; lost with it: lost"
    with pytest.warns(RuntimeWarning, match=words), pytest.raises(RunError, match=r"lost cannot be brought from"):
        lost.get()
    assert own.devices == (first,)
    assert "DEVICE_NOT_AVAILABLE" in own.excluded[second]
    with pytest.raises(ResultError, match=rf"only on a device that has failed for good \({second}"):
        lost.get()
    PROGRAM.inc(own, (N,), (16,), kept)
    assert (kept.get() == 2).all()
    with pytest.raises(DeviceError, match="was not left out"):
        own.admit(first)
    original, death.of = death.of, None
    still = mock.patch("manycl.run.executor.lanes.Lanes._probe", return_value="still dead")
    with still, pytest.raises(DeviceError, match=rf"{second} still does not work: still dead"):
        own.admit(second)
    own.admit(second)
    assert own.devices == (first, second)
    assert victim(own, 1) != original
    lost.set(np.zeros(N, np.int32))
    for _ in range(3):
        PROGRAM.inc(own, (N,), (16,), kept)
        PROGRAM.inc(own, (N,), (16,), lost)
        own.finish()
    PROGRAM.add(own, (N,), (16,), kept, lost)  # they have no context in common any more
    assert (kept.get() == 5).all()
    assert (lost.get() == 8).all()


def test_without_the_last_device_there_is_a_clear_error(death: Death) -> None:
    with mc.Queue(f"{death.devices}/2#0") as queue:
        a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
        death.of = victim(queue, 0)
        with pytest.warns(RuntimeWarning, match="are left: none"), pytest.raises(RunError):
            PROGRAM.inc(queue, (N,), (16,), a)
        PROGRAM.inc(queue, (N,), (16,), b)
        with pytest.raises(
            DeviceError, match=rf"no device is left that works \({death.name}\.0: .*DEVICE_NOT_AVAILABLE"
        ):
            queue.finish()
        assert (b.get() == 0).all()
        death.of = None
        queue.admit(f"{death.name}.0")
        PROGRAM.inc(queue, (N,), (16,), b)
        assert (b.get() == 1).all()


def test_what_nobody_reads_any_more_is_lost_with_the_memory_that_alone_had_it() -> None:
    builder = GraphBuilder()
    x, y = builder.buffer(4), builder.buffer(4)
    builder.add(launch("reads", (x,), (y,)))
    builder.add(launch("changes", (y,), (y,)))
    history = CommandHistory(Machine((Device("d", "gpu", memory=1),)), Lowered(builder.build()), {x: 1 << 1})
    history.add(Run(0, 0, 0, (), True), True)
    history.add(download(2, y, 0, (0,), True), True)
    history.lose([0])
    left = rest_of(history, lambda step: True)
    assert (left.done, left.again, left.lost) == ({0}, frozenset(), {x})
    assert left.valid[y] == HOST_BIT


def test_memories_that_are_left_are_numbered_without_gaps() -> None:
    machine = Machine(
        (Device("a", "gpu", memory=1), Device("b", "cpu"), Device("c", "gpu", memory=2)),
        (Link(0, 1, 1.0, 0.0), Link(1, 0, 2.0, 0.0), Link(0, 2, 3.0, 0.0), Link(2, 0, 4.0, 0.0)),
    )
    left = machine.only(["b", "c"])
    assert [(d.name, d.memory) for d in left.devices] == [("b", 0), ("c", 1)]
    assert left.links == (Link(0, 1, 3.0, 0.0), Link(1, 0, 4.0, 0.0))
    directory = Directory()
    for key, memories in enumerate([(0, 1), (1,), (2,), (1, 2)]):
        directory.define(key, memories[0])
        for memory in memories[1:]:
            directory.copied(key, memory)
    assert directory.renumber({0: 0, 2: 1}) == {1}
    assert directory.valid == {0: 0b1, 2: 0b10, 3: 0b10}


def test_commands_given_at_once_after_a_device_has_died(death: Death, monkeypatch: pytest.MonkeyPatch) -> None:
    """The devices behind it have other numbers then, and so have their memories."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setattr(eager_rule, "WORTH", 60.0)  # seconds: whatever these graphs take is little
    with mc.Queue(f"{death.devices}/3") as queue:
        death.of, death.calls = victim(queue, 0), 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            examine(queue.session.devices, queue.session.directory)
        death.of = None
        assert len(queue.devices) == 2
        for n in range(1, 40):  # new graphs that take little are not planned any more
            x, y = (queue.array(np.full(N, k, np.int32)) for k in range(2))
            for _ in range(n):
                PROGRAM.inc(queue, (N,), (16,), x)
            PROGRAM.add(queue, (N,), (16,), x, y)
            is_eager = queue.enqueued.stream is not None
            assert (y.get() == n + 1).all()
            assert (x.get() == n).all()
        assert is_eager


def test_launches_that_are_known_are_looked_at_anew_on_a_device_that_is_admitted(death: Death) -> None:
    """It has the number of the one before, and none of its kernels."""
    with mc.Queue(f"{death.devices}/2#0") as queue:
        x = queue.zeros(N, np.int32)
        for _ in range(3):
            PROGRAM.inc(queue, (N,), (16,), x)
            queue.finish()
        old = queue.session.backend.programs.kernel(PROGRAM.inc.program, "inc", queue.session.machine.indices[0])
        death.of, death.calls = victim(queue, 0), 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            examine(queue.session.devices, queue.session.directory)
        death.of = None
        queue.admit(f"{death.name}.0")
        before = list(old.held)
        for _ in range(3):
            PROGRAM.inc(queue, (N,), (16,), x)
        assert (x.get() == 6).all()
        assert all(now is then for now, then in zip(old.held, before, strict=True)), "the kernel of the device before"


@pytest.mark.parametrize("runs", [0, 1, 8])
@pytest.mark.parametrize("policy", ["heft", "adaptive"])
def test_a_prepared_graph_follows_no_plan_for_other_devices(
    runs: int, policy: str, death: Death, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device is found to be lost when a run is about to begin, which then begins anew on the others; before the next
    run the device is admitted again."""
    begin, dying = session.execute, [False]

    def execute(*args: Any, **options: Any) -> Any:
        if dying.pop():
            dying.append(False)
            death.of, death.calls = victim(queue, 1), 0
            raise RunError("it cannot be prepared")
        dying.append(False)
        return begin(*args, **options)

    monkeypatch.setattr(session, "execute", execute)
    monkeypatch.setattr(KeptCommands, "play", lambda *given, **options: None)  # it is planned, or a plan is given
    with mc.Queue(f"{death.devices}/2", policy=policy) as queue:
        x = queue.zeros(N, np.int32)
        with queue.prepare() as graph:
            PROGRAM.inc(queue, (N,), (16,), x)
        for _ in range(runs):
            graph.run()
        dying[:] = [True]
        with pytest.warns(RuntimeWarning, match="does not work any more"):
            graph.run()
        assert len(queue.excluded) == 1
        death.of = None
        queue.admit(next(iter(queue.excluded)))
        graph.run()
        assert (x.get() == runs + 2).all()
