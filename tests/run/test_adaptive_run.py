"""``adaptive`` on real devices: results are those of one device while the split moves, and at rest only halos move.

What devices are said to have taken is made up, so that nothing depends on how fast they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest

import manycl as mc
from manycl.graph.graph import Graph
from manycl.plan.policies.adaptive import Adaptive
from manycl.plan.policy import Timed
from manycl.run.engine.result import Result
from manycl.run.lowering.steps import RANGE
from manycl.trace import TransferEvent
from manycl_bench.libsplit.polybench import jacobi2d

SIZE = 96
SPEEDS = (1.0, 3.0, 2.0)


class Told(Adaptive):
    """Is told that devices take what their speeds say, whatever they took."""

    def observe(self, graph: Graph, durations: Iterable[Timed], waits: Iterable[Timed] | None = None) -> None:
        assert list(durations)
        shares = self.shares(graph)
        super().observe(graph, [(n, d, c / SPEEDS[d]) for n, of in shares.items() for d, c in of.items()])


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., mc.Queue]]:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    opened: list[mc.Queue] = []

    def opens(devices: str, **settings: object) -> mc.Queue:
        opened.append(mc.Queue(devices, **settings))  # type: ignore[arg-type]
        return opened[-1]

    yield opens
    for q in opened:
        q.session.close()


def ranges(result: Result, node: int) -> list[tuple[int, int, int]]:
    return [(m.device, m.step.first, m.step.groups) for m in result.ranges(node)]


def moved(result: Result) -> int:
    return sum(e.nbytes for e in result.trace.events if isinstance(e, TransferEvent))


def test_a_split_moves_until_all_end_together_and_then_only_halos_do(queue: Callable[..., mc.Queue]) -> None:
    application = jacobi2d(SIZE)
    policy = Told()
    q = queue("cpu/3", policy=policy, options={"first": "uniform"})
    arrays = application.allocate(q)
    with q.prepare() as prepared:
        application.enqueue(q, arrays)
    results = [prepared.run() for _ in range(6)]
    assert ranges(results[0], 0) == [(0, 0, 32), (1, 32, 32), (2, 64, 32)]
    assert [n for _, _, n in ranges(results[-1], 0)] == [16, 48, 32]
    for r in results:
        assert ranges(r, 0) == ranges(r, 1)  # the stencil and its copy
        assert all(m.step.role == RANGE for m in r.measured())
    # a row (without its ends) beside each of two cuts, either way
    assert moved(results[-1]) == moved(results[-2]) == 2 * 2 * (SIZE - 2) * 4
    found = {name: arrays[name].get() for name in ("a", "b")}
    alone = queue("cpu/3#0", policy="in_order")
    arrays = application.allocate(alone)
    for _ in results:
        application.enqueue(alone, arrays)
    for name, data in found.items():
        assert np.array_equal(data, arrays[name].get())


def test_a_queue_without_profiling_learns_nothing_and_runs(queue: Callable[..., mc.Queue]) -> None:
    application = jacobi2d(SIZE)
    q = queue("cpu/2", policy="adaptive", options={"first": "uniform"}, profile=False)
    arrays = application.allocate(q)
    with q.prepare() as prepared:
        application.enqueue(q, arrays)
    shares = {tuple(ranges(prepared.run(), 0)) for _ in range(3)}
    assert np.allclose(arrays["a"].get(), application.expected(3)["a"], rtol=1e-5)
    assert shares <= {((0, 0, 48), (1, 48, 48)), ()}  # nothing was measured


def test_a_queue_learns_from_one_finish_to_the_next(queue: Callable[..., mc.Queue]) -> None:
    application = jacobi2d(SIZE)
    q = queue("cpu/3", policy="adaptive", options={"first": "uniform"})
    q.learners._known["adaptive"] = Told()
    arrays = application.allocate(q)
    found = []
    for _ in range(6):
        application.enqueue(q, arrays)
        q.finish()
        assert q.result.policy == "adaptive"
        found.append([n for _, _, n in ranges(q.result, 0)])
    assert found[0] == [32, 32, 32]
    assert found[-1] == [16, 48, 32]
    assert np.allclose(arrays["a"].get(), application.expected(6)["a"], rtol=1e-5)
