"""Whatever is done with views (kernels, copies, fills, host functions, reads and writes), in any order, on any device,
in any memory, divided and whole, aligned or not, is what NumPy does; and the plans for it are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.errors import ManyclError, PolicyError
from manycl.graph.graph import Graph, HostTask
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.policy import find, names
from manycl.plan.verification.verify import verify as verify_plan
from tests.api.arrays.view_cases import MEMORIES, PROGRAM, N, Numbers, session_with
from tests.graph.graph_judge import verify as verify_graph
from tests.run.commands.verify_commands import verify_commands

GROUP = 4


def _bins(x: Numbers, y: Numbers) -> None:
    np.add.at(x, y.view(np.uint32) % 3, 1)


def _some(x: Numbers, y: Numbers) -> None:
    x[:] = np.where(y & 1, y * 7, x)


def _halves(x: Numbers, y: Numbers) -> None:
    x[:] = y.reshape(-1, 2).T.reshape(-1)


def _serial(x: Numbers, y: Numbers) -> None:
    for i in range(len(x)):
        x[i] = y[i] + 1


def _add(x: Numbers, y: Numbers) -> None:
    x += 3 * y


def _pairs(x: Numbers, y: Numbers, z: Numbers) -> None:
    x[:] = y - 5 * z


def _constants(x: Numbers, y: Numbers) -> None:
    x ^= y


def _looks(x: Numbers, y: Numbers) -> None:
    x[:] = y | 1


def _copy(x: Numbers, y: Numbers) -> None:
    x[:] = y


def _swapped(x: Numbers, y: Numbers) -> None:
    x[:] = y[::-1].copy()


KERNELS: dict[str, Callable[..., None]] = {
    "add": _add,
    "pairs": _pairs,
    "some": _some,
    "bins": _bins,
    "halves": _halves,
    "constants": _constants,
    "looks": _looks,
    "serial": _serial,
}
OTHERS: dict[str, Callable[..., None]] = {"copy": _copy, "call": _swapped}


@pytest.fixture(scope="module", params=MEMORIES)
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    with session_with(request.param) as session:
        yield session


class Twin:
    """An array and the NumPy array that it should equal."""

    def __init__(self, array: mc.Array, contents: Numbers) -> None:
        self.array, self.contents = array, contents

    def part(self, first: int, count: int) -> Twin:
        return Twin(self.array[first : first + count], self.contents[first : first + count])


def parts(draw: Any, twins: list[Twin], number: int, count: int) -> list[Twin]:
    """So many parts of some arrays, of ``count`` elements each; the first has nothing in common with the others, but
    may be one of them."""
    starts = st.integers(0, N - count)
    if draw(st.booleans()):  # aligned
        starts = starts.map(lambda first: first // 32 * 32)
    while True:
        places = [(draw(st.integers(0, len(twins) - 1)), draw(starts)) for _ in range(number)]
        which, first = places[0]
        others = [begin for other, begin in places[1:] if other == which]
        if all(begin == first or abs(begin - first) >= count for begin in others):
            return [twins[other].part(begin, count) for other, begin in places]


def enqueue(draw: Any, queue: mc.Queue, twins: list[Twin], reads: list[tuple[Numbers, Numbers]]) -> Callable[[], None]:
    """Something of some parts; what does the same to NumPy's."""
    kind = draw(st.sampled_from([*KERNELS, *OTHERS, "make", "fill", "read", "write"]))
    count = GROUP * draw(st.integers(1, N // GROUP // 3))
    if kind in ("make", "fill", "write", "read"):
        twin = parts(draw, twins, 1, count)[0]
        mine, value = twin.contents, draw(st.integers(-99, 99))
        if kind == "make":
            PROGRAM.make(queue, (count,), (GROUP,), twin.array, value)
            new = np.arange(count, dtype=np.int32) * value + count // GROUP
        elif kind == "fill":
            twin.array.fill(value)
            new = np.full(count, value, np.int32)
        elif kind == "write":
            new = np.arange(count, dtype=np.int32) - value
            given = new.copy()
            queue.write(twin.array, given)
            given[:] = 0  # it has been copied
        else:
            out = queue.read(twin.array).out
            want = np.zeros_like(out)
            reads.append((out, want))
            return lambda: _copy(want, mine)
        return lambda: _copy(mine, new)
    function = KERNELS.get(kind) or OTHERS[kind]
    given_parts = parts(draw, twins, 3 if kind == "pairs" else 2, count)
    arrays = [twin.array for twin in given_parts]
    same = kind in ("bins", "halves", "copy", "looks") and arrays[0].meets(arrays[1])
    if same:  # nothing is said of what that does
        function, arrays, kind = _swapped, arrays, "call"
    if kind == "copy":
        queue.copy(*arrays)
    elif kind == "call":
        queue.call(_swapped, *arrays, writes=arrays[:1])
    elif kind == "serial":
        PROGRAM.serial(queue, (1,), (1,), *arrays, count)
    else:
        PROGRAM.kernel(kind)(queue, (count,), (GROUP,), *arrays)
    return lambda: function(*(twin.contents for twin in given_parts))


def by_hand(draw: Any, queue: mc.Queue, graph: Graph) -> Plan:
    """Each node on some device, or divided among them; in some order that keeps to the graph."""
    problem = queue.session.problem(graph)
    devices = len(queue.devices)
    out: list[Assignment] = []
    left, done = set(range(len(graph))), set[int]()
    while left:
        node = draw(st.sampled_from(sorted(n for n in left if done.issuperset(graph.predecessors[n]))))
        left.discard(node)
        done.add(node)
        split = problem.splits.get(node)
        if isinstance(graph.nodes[node], HostTask):
            out.append(Assignment(node, ON_HOST, 0, 0.0, 0.0))
        elif split is None or not draw(st.booleans()):
            out.append(Assignment(node, draw(st.integers(0, devices - 1)), 0, 0.0, 0.0))
        else:
            event("divided")
            at = draw(st.integers(1, split.groups - 1))
            first = draw(st.integers(0, devices - 1))
            out += [
                Assignment(node, first, 0, 0.0, 0.0, split.dimension, 0, at),
                Assignment(node, 1 - first, 0, 0.0, 0.0, split.dimension, at, split.groups - at),
            ]
    return Plan(tuple(out), "by hand", queue.devices, 0.0)


def does_not_fit(error: ManyclError, little: bool) -> None:
    """It may be that a launch does not fit into any device."""
    words = ("does not run in ranges", "needs", "no device can run", "too little memory")
    if not little or not any(said in error.message for said in words):
        raise error
    event("does not fit")


@settings(max_examples=16, deadline=None)
@given(data=st.data(), policy=st.sampled_from(["by hand", "by hand", *sorted(names())]))
def test_as_numpy_does(session: Any, data: Any, policy: str) -> None:
    """Some of everything, one after another, three times."""
    queue = mc.Queue(session=session, policy=None if policy == "by hand" else policy)
    chance = np.random.default_rng(data.draw(st.integers(0, 99)))
    contents = [chance.integers(-99, 99, N).astype(np.int32) for _ in range(2)]
    twins = [Twin(queue.array(c), c.copy()) for c in contents]
    reads: list[tuple[Numbers, Numbers]] = []
    with queue.prepare() as prepared:
        works = [enqueue(data.draw, queue, twins, reads) for _ in range(data.draw(st.integers(1, 6)))]
    verify_graph(prepared.graph)
    little = session.machine.devices[0].global_memory < 1 << 20
    if policy == "by hand":
        prepared._policy = queue.policy = by_hand(data.draw, queue, prepared.graph)
    for _ in range(3):
        try:
            result = prepared.run()
        except ManyclError as error:
            does_not_fit(error, little)
            return
        if result.command_graph is not None and not little:
            verify_commands(result.command_graph)
        for work in works:
            work()
        for out, want in reads:
            assert (out == want).all()
    event(policy)
    for twin in twins:
        first, count = data.draw(st.integers(0, N - 1)), data.draw(st.integers(1, N))
        assert (twin.array[first : first + count].get() == twin.contents[first : first + count]).all()
        assert (twin.array.get() == twin.contents).all()


@settings(max_examples=16, deadline=None)
@given(data=st.data(), policy=st.sampled_from(sorted(n for n in names() if hasattr(find(n), "plan"))))
def test_plans_are_right(session: Any, data: Any, policy: str) -> None:
    """What is planned keeps to the order of bytes, and waits until they can have arrived."""
    queue = mc.Queue(session=session)
    twins = [Twin(queue.zeros(N, np.int32), np.zeros(N, np.int32)) for _ in range(2)]
    with queue.prepare() as prepared:
        for _ in range(data.draw(st.integers(1, 7))):
            enqueue(data.draw, queue, twins, [])
    graph = prepared.graph
    problem = session.problem(graph)
    try:
        plan = find(policy).plan(problem)
    except PolicyError as error:
        does_not_fit(error, session.machine.devices[0].global_memory < 1 << 20)
        return
    if plan.details.get("postponed"):  # it was made by rough guesses
        problem = replace(problem, estimates=problem.estimates.uncounted())
    verify_plan(plan, graph, session.machine, problem, preferences=False)
