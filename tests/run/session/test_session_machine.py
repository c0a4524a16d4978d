"""Whole sessions, in any order of what a program may do: several queues and prepared graphs, divided and whole
launches, copies, fills, reads, writes, host functions, exchanges, host code, arrays that come and go, and parts of
them; shared and own memories, little memory, windows. Arrays hold what NumPy says."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import manycl as mc
from manycl.errors import ManyclError, RunError
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.run.session.session import Session
from tests.run.between_runs import small_windows
from tests.run.chaos.transitions import validated

__all__ = ["validated"]  # a fixture of the module

COUNT, GROUP = 256, 16
GROUPS = COUNT // GROUP
NBYTES = 4 * COUNT
MOST_ARRAYS, MOST_GRAPHS, MOST_PENDING = 6, 4, 4
OWN_POLICIES = ("auto", "balance", "mkmd", "eager", "heft", "in_order")
MEMORIES = {
    "shared": {},
    "own": {"MANYCL_ZERO_COPY": "0"},
    # all arrays of a launch, but not those of all
    "little": {"MANYCL_ZERO_COPY": "0", "MANYCL_DEVICE_MEMORY": str(3 * NBYTES + 228)},
    # not even all arrays of a launch
    "windows": {"MANYCL_ZERO_COPY": "0", "MANYCL_DEVICE_MEMORY": str(3 * NBYTES // 2)},
}

Numbers = npt.NDArray[np.int32]
PROGRAM = mc.Program("""
kernel void copy(global const int *x, global int *y) { int i = get_global_id(0); y[i] = x[i]; }
kernel void inc(global int *x) { int i = get_global_id(0); x[i] += 1; }
kernel void stencil(global const int *x, global int *y) {
    int i = get_global_id(0), n = get_global_size(0);
    if (i < n - 1) y[i] = x[i + 1] + 3 * x[i];
}
kernel void some(global const int *x, global int *y) { int i = get_global_id(0); if (x[i] & 1) y[i] = x[i] * 5; }
kernel void bins(global const int *x, global int *y) { atomic_add(&y[x[get_global_id(0)] & 7], 1); }
""")

patched = small_windows({})


def _copy(x: Numbers, y: Numbers) -> None:
    y[:] = x


def _inc(x: Numbers) -> None:
    x += 1


def _stencil(x: Numbers, y: Numbers) -> None:
    y[:-1] = x[1:] + 3 * x[:-1]


def _some(x: Numbers, y: Numbers) -> None:
    odd = (x & 1) == 1
    y[odd] = x[odd] * 5


def _bins(x: Numbers, y: Numbers) -> None:
    np.add.at(y, x & 7, 1)


def _reversed(x: Numbers) -> None:
    x[:] = x[::-1].copy()


KERNELS: dict[str, tuple[Callable[..., None], int]] = {
    "copy": (_copy, 2),
    "inc": (_inc, 1),
    "stencil": (_stencil, 2),
    "some": (_some, 2),
    "bins": (_bins, 2),
}


class Cell:
    """An array and what it holds."""

    def __init__(self, array: mc.Array, contents: Numbers) -> None:
        self.array, self.contents = array, contents


@dataclass
class Work:
    """What is enqueued, in order: what does the same to NumPy arrays, and to which cells. Kernels
    can be divided; copies and fills run on a device, as a whole, where one has room for them (else on the host)."""

    function: Callable[..., None]
    cells: Sequence[Cell]
    where: str  # "ranges", "device" or "host"
    groups: int = GROUPS

    def apply(self) -> None:
        self.function(*(cell.contents for cell in self.cells))


@dataclass
class Graph:
    prepared: Any
    works: list[Work]


class SessionMachine(RuleBasedStateMachine):
    """The model: every array's contents as NumPy arrays, changed in the order in which things are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.session: Session | None = None
        self.cells: list[Cell] = []
        self.graphs: list[Graph] = []
        self.numbers = itertools.count()
        self.looks: list[tuple[Numbers, Numbers]] = []

    @initialize(
        memory=st.sampled_from(["own", "own", "own", "little", "little", "little", "windows", "shared"]),
        devices=st.sampled_from(["native/2", "opencl/2", "native/3", "native/2#0", "opencl/2#0"]),
        own=st.lists(st.sampled_from(OWN_POLICIES), max_size=1),
    )
    def opened(self, memory: str, devices: str, own: list[str]) -> None:
        if devices.endswith("#0"):  # it is given things as they are enqueued
            memory = "own" if memory == "own" else "shared"
        event(memory)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in MEMORIES[memory].items():
                patch.setenv(name, value)
            self.session = Session(devices)
        self.by_hand = mc.Queue(session=self.session)
        self.queues = [
            self.by_hand,
            mc.Queue(session=self.session),
            *(mc.Queue(session=self.session, policy=p) for p in own),
        ]
        self.pending: list[list[Work]] = [[] for _ in self.queues]
        for _ in range(3):
            self.made("array")

    def fresh(self) -> Numbers:
        return np.random.default_rng(next(self.numbers)).integers(0, 99, COUNT).astype(np.int32)

    # arrays

    @rule(how=st.sampled_from(["array", "zeros", "borrowed"]))
    def made(self, how: str) -> None:
        if len(self.cells) >= MOST_ARRAYS:
            return
        contents = np.zeros(COUNT, np.int32) if how == "zeros" else self.fresh()
        if how == "zeros":
            array = self.by_hand.zeros(COUNT, np.int32)
        else:
            array = self.by_hand.array(contents.copy(), copy=how == "array")
        self.cells.append(Cell(array, contents))

    @rule(data=st.data())
    def dropped(self, data: Any) -> None:
        """Graphs and queues that use it keep it."""
        if len(self.cells) > 2:
            self.cells.remove(data.draw(st.sampled_from(self.cells)))

    @rule(data=st.data(), how=st.sampled_from(["set", "borrow", "map", "host", "part"]))
    def written(self, data: Any, how: str) -> None:
        cell = data.draw(st.sampled_from(self.cells))
        self.settle()
        new = self.fresh()
        if how == "part":
            cell.array[30:50].set(new[30:50])
            cell.contents[30:50] = new[30:50]
            return
        if how == "map":
            with cell.array.map() as host:
                assert (host == cell.contents).all()
                host[5:9] = cell.contents[5:9] = new[5:9]
            return
        cell.contents[:] = new
        cell.array.set(new, copy=how != "borrow")

    @rule(data=st.data())
    def read(self, data: Any) -> None:
        cell = data.draw(st.sampled_from(self.cells))
        self.settle()
        assert (cell.array[9:70].get() == cell.contents[9:70]).all()
        assert (cell.array.get() == cell.contents).all()

    @rule(data=st.data())
    def exchanged(self, data: Any) -> None:
        self.settle()
        a, b = data.draw(st.permutations(self.cells))[:2]
        a.array.exchange(b.array)
        a.contents, b.contents = b.contents, a.contents

    # runs

    @rule(data=st.data())
    def enqueued(self, data: Any) -> None:
        which = data.draw(st.integers(0, len(self.queues) - 1))
        if len(self.pending[which]) >= MOST_PENDING:
            self.finish(which, data)
        for other in range(len(self.queues)):
            if other != which:
                self.finish(other, None)  # an array is of the queue that used it last
        self.enqueue(which, data)

    def enqueue(self, which: int, data: Any) -> None:
        queue = self.queues[which]
        kernel = data.draw(st.sampled_from([*KERNELS, "host", "moved", "filled", "read", "write"]))
        if kernel in ("read", "write"):
            self.by_nodes(which, kernel, data)
            return
        if kernel == "host":
            cell = data.draw(st.sampled_from(self.cells))
            queue.call(_reversed, cell.array)
            self.pending[which].append(Work(_reversed, [cell], "host"))
            return
        if kernel in ("moved", "filled"):
            self.within(which, kernel, data)
            return
        function, count = KERNELS[kernel]
        cells = data.draw(st.permutations(self.cells))[:count]
        if data.draw(st.booleans()):
            getattr(PROGRAM, kernel)(queue, (COUNT,), (GROUP,), *(cell.array for cell in cells))
            self.pending[which].append(Work(function, cells, "ranges"))
            return
        size = GROUP * data.draw(st.integers(2, GROUPS // 2))
        firsts = [data.draw(st.integers(0, COUNT - size)) for _ in cells]
        if count == 2 and kernel != "bins" and data.draw(st.booleans()):  # two parts of one array
            firsts = data.draw(st.permutations([firsts[0] % (COUNT - 2 * size + 1), COUNT - size]))
            cells = cells[:1] * 2
        places = [slice(first, first + size) for first in firsts]

        def on_parts(*contents: Numbers) -> None:
            function(*(c[place] for c, place in zip(contents, places, strict=True)))

        views = [cell.array[place] for cell, place in zip(cells, places, strict=True)]
        getattr(PROGRAM, kernel)(queue, (size,), (GROUP,), *views)
        self.pending[which].append(Work(on_parts, cells, "ranges", size // GROUP))

    def within(self, which: int, kind: str, data: Any) -> None:
        """A copy or fill of some elements, often of all."""
        count = data.draw(st.just(COUNT) | st.integers(1, COUNT))
        to, of = (data.draw(st.integers(0, COUNT - count)) for _ in range(2))
        target, source = data.draw(st.permutations(self.cells))[:2]
        if kind == "filled":
            value = next(self.numbers)

            def filled(y: Numbers) -> None:
                y[to : to + count] = value

            self.queues[which].fill(target.array, value, offset=4 * to, size=4 * count)
            self.pending[which].append(Work(filled, [target], self.holder(NBYTES)))
            return

        def moved(y: Numbers, x: Numbers) -> None:
            y[to : to + count] = x[of : of + count]

        at = {"byte_count": 4 * count, "src_offset": 4 * of, "dst_offset": 4 * to}
        self.queues[which].copy(target.array, source.array, **at)
        self.pending[which].append(Work(moved, [target, source], self.holder(2 * NBYTES)))

    def by_nodes(self, which: int, kind: str, data: Any) -> None:
        """A part of an array is read, or written, when its turn comes."""
        cell = data.draw(st.sampled_from(self.cells))
        first, count = data.draw(st.integers(0, COUNT - 1)), data.draw(st.integers(1, COUNT))
        part, view = slice(first, min(first + count, COUNT)), cell.array[first : first + count]
        if kind == "write":
            new = self.fresh()[part]
            self.queues[which].write(view, new)
            self.pending[which].append(Work(lambda x: x.__setitem__(part, new), [cell], "host"))
            return
        out = self.queues[which].read(view).out

        def looked_at(x: Numbers) -> None:
            self.looks.append((out, x[part].copy()))

        self.pending[which].append(Work(looked_at, [cell], "host"))

    def look(self) -> None:
        """What was read in a run is what arrays held in its course."""
        for out, want in self.looks:
            assert (out == want).all()
        self.looks.clear()

    def holder(self, nbytes: int) -> str:
        assert self.session is not None
        return "device" if any(nbytes <= d.global_memory for d in self.session.machine.devices) else "host"

    @rule(data=st.data())
    def finished(self, data: Any) -> None:
        self.finish(data.draw(st.integers(0, len(self.queues) - 1)), data)

    @rule(data=st.data())
    def prepared(self, data: Any) -> None:
        """Something new, with a plan by hand or with the queue's policy; what is enqueued stays so."""
        which = data.draw(st.integers(0, len(self.queues) - 1))
        self.settle(but=which)
        if len(self.graphs) >= MOST_GRAPHS:
            self.graphs.pop(data.draw(st.integers(0, MOST_GRAPHS - 1)))
        self.prepare(data, which)

    def prepare(self, data: Any, which: int) -> None:
        queue, before, works = self.queues[which], self.pending[which], list[Work]()
        self.pending[which] = works
        try:
            with queue.prepare() as prepared:
                for _ in range(data.draw(st.integers(1, MOST_PENDING))):
                    self.enqueue(which, data)
                if which < 2:
                    queue.policy = self.plan(works, data)
        finally:
            self.pending[which] = before
        self.graphs.append(Graph(prepared, works))

    @rule(data=st.data())
    def in_turns(self, data: Any) -> None:
        """One until it is known by heart, others between."""
        self.settle()
        for graph in data.draw(st.lists(self.any_graph(data), max_size=4)):
            self.run(graph)

    @rule(data=st.data(), times=st.integers(2, 3))
    def between(self, data: Any, times: int) -> None:
        """Some graphs until each is known by heart, then one after another."""
        self.settle()
        self.any_graph(data)
        some = data.draw(st.permutations(self.graphs))[: data.draw(st.integers(2, 3))]
        for graph in (*(g for g in some for _ in range(times)), *some):
            self.run(graph)

    def any_graph(self, data: Any) -> Any:
        while len(self.graphs) < 2:
            self.prepare(data, 0)
        return st.sampled_from(list(self.graphs))

    def run(self, graph: Graph) -> None:
        try:
            graph.prepared.run()
        except ManyclError as error:
            if "exchanged contents with one that is not in it" in error.message:
                self.graphs = [g for g in self.graphs if g is not graph]
                return
            does_not_fit(error)
            return
        for work in graph.works:
            work.apply()
        self.look()

    def settle(self, but: int = -1) -> None:
        for which in range(len(self.queues)):
            if which != but:
                self.finish(which, None)

    def finish(self, which: int, data: Any) -> None:
        """``data``: to divide launches; None: by the queue's policy, or all on one device."""
        queue, works = self.queues[which], self.pending[which]
        if not works:
            return
        if which < 2:
            given = queue.enqueued.stream is not None
            queue.policy = self.plan(works, data) if data is not None and not given else "in_order"
            event("given at once" if given else "planned")
        try:
            queue.finish()
            for work in works:
                work.apply()
            self.look()
        except RunError as error:
            does_not_fit(error)
        works.clear()

    def plan(self, works: Sequence[Work], data: Any) -> Plan:
        out: list[Assignment] = []
        names = self.by_hand.devices
        device = st.integers(0, len(names) - 1)
        for node, work in enumerate(works):
            if work.where == "host":
                out.append(Assignment(node, ON_HOST, 0, 0.0, 0.0))
            elif work.where == "device" or data.draw(st.booleans()):
                out.append(Assignment(node, data.draw(device), data.draw(st.integers(0, 1)), 0.0, 0.0))
            else:
                cuts = sorted(data.draw(st.sets(st.integers(1, work.groups - 1), min_size=1, max_size=2)))
                for a, b in itertools.pairwise([0, *cuts, work.groups]):
                    out.append(Assignment(node, data.draw(device), 0, 0.0, 0.0, 0, a, b - a))
        return Plan(tuple(out), "by hand", names, 0.0)

    # what holds at any time

    @invariant()
    def consistent(self) -> None:
        if self.session is not None:
            self.session.directory.validate(self.session.machine.memories)

    def teardown(self) -> None:
        if self.session is None:
            return
        try:
            self.settle()
            for cell in self.cells:
                assert (cell.array.get() == cell.contents).all()
        finally:
            self.session.close()


def does_not_fit(error: ManyclError) -> None:
    """The one thing that may go wrong: before anything has run, a launch is found not to fit."""
    assert "at once" in error.message or "bytes of buffers on" in error.message, error
    event("does not fit")


SessionMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestSessions = SessionMachine.TestCase


def by_hand(queue: mc.Queue, *assignments: Assignment) -> Plan:
    return Plan(assignments, "by hand", queue.devices, 0.0)


def test_what_is_played_sees_that_another_graph_has_left_a_buffer_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with mc.Queue("cpu/2") as queue:
        x, y = queue.array(np.arange(COUNT, dtype=np.int32)), queue.zeros(COUNT, np.int32)
        with queue.prepare() as copy:
            PROGRAM.copy(queue, (COUNT,), (GROUP,), x, y)
            queue.policy = by_hand(queue, Assignment(0, 0, 0, 0.0, 0.0))
        with queue.prepare() as inc:
            PROGRAM.inc(queue, (COUNT,), (GROUP,), x)
            queue.policy = by_hand(queue, *(Assignment(0, d, 0, 0.0, 0.0, 0, 8 * d, 8) for d in range(2)))
        for _ in range(3):
            copy.run()
        for turn in range(1, 4):
            inc.run()
            copy.run()
            assert (y.get() == np.arange(COUNT) + turn).all()


def test_what_makes_way_for_a_graph_that_is_done_again_is_not_what_it_then_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in MEMORIES["little"].items():
        monkeypatch.setenv(name, value)
    with mc.Queue("cpu/2") as queue:
        contents = np.random.default_rng(1).integers(0, 99, COUNT).astype(np.int32)
        x, y = queue.array(contents), queue.zeros(COUNT, np.int32)
        parts = Assignment(0, 1, 0, 0.0, 0.0, 0, 0, 1), Assignment(0, 0, 0, 0.0, 0.0, 0, 1, GROUPS - 1)
        with queue.prepare() as bins:
            PROGRAM.bins(queue, (COUNT,), (GROUP,), x, y)
            queue.policy = by_hand(queue, *parts)
        with queue.prepare() as copy:
            PROGRAM.copy(queue, (COUNT,), (GROUP,), x, y)
            queue.policy = by_hand(queue, Assignment(0, 1, 0, 0.0, 0.0))
        bins.run()
        y.set(np.zeros(COUNT, np.int32))
        bins.run()
        copy.run()
        y.set(np.zeros(COUNT, np.int32))
        bins.run()
        want = np.zeros(COUNT, np.int32)
        _bins(contents, want)
        assert (y.get() == want).all()
