"""What a run asks of its devices, against a model that knows only commands and reports: random graphs on random
machines, in any legal order of events. Nothing is moved that nobody uses, nothing waits for what is known to be over,
nothing that could be enqueued is held back, and each transfer is in the queue that is promised for it."""

from __future__ import annotations

import random

import pytest
from command_model import Case, Started
from test_state import Unit, launch, machine

from manycl.errors import GraphError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import HostTask
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.backend import (
    Done,
    Download,
    Failed,
)
from manycl.run.coherence import Directory
from manycl.run.state import RunState

SEEDS = 500


def run(case: Case, seed: int) -> None:
    it = Started(case, seed)
    it.begin()
    while not it.state.finished:
        it.go_on()
    it.backend.finish()
    it.model.end()
    it.check(range(len(case.graph)))
    assert {key: sum(1 << m for m in has) for key, has in it.model.has.items()} == it.directory.valid
    assert it.state.complete == len(case.graph)
    places = [tuple(a[:3]) for a in it.state.issued]
    assert sorted(places) == [(n, *place) for n, place in enumerate(case.places)]


@pytest.mark.parametrize("nodes", [14, 40])
def test_nothing_is_moved_waited_for_or_held_back_without_need(nodes: int) -> None:
    for seed in range(SEEDS if nodes < 20 else SEEDS // 6):
        case = Case(seed, nodes)
        try:
            run(case, seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def test_what_a_stopped_run_is_known_to_have_left_is_kept() -> None:
    for seed in range(SEEDS):
        try:
            stopped(Case(seed, 14), seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def stopped(case: Case, seed: int) -> None:
    """Ctrl-C: what was enqueued still runs, but nobody hears of it. A failure: so does all that does not come after."""
    it = Started(case, seed)
    it.begin()
    for _ in range(seed % 6):
        if not it.state.finished:
            it.go_on()
    state, model, graph = it.state, it.model, case.graph
    order = [t for t in model.given if t < len(graph)]
    late = [t for t in order if t not in model.known]
    spoilt = set(late)
    if late and seed % 2:
        failed, other = (random.Random(seed).choice(late) for _ in range(2))
        assert state.handle(Failed(failed, 1.0, "broken"), Failed(other, 1.0, "too")) == []
        assert state.handle(Done(late[0], 2.0)) == [], "nothing more is done"
        behind = {failed}  # a driver may run what comes after it all the same
        for n in range(len(graph)):
            behind |= {n} if behind.intersection(graph.predecessors[n]) else set()
        spoilt |= behind.intersection(order)
        assert (state.failed, state.finished) == (Failed(failed, 1.0, "broken"), False)
    elif order and state.finished:
        failed = random.Random(seed).choice(order)
        state.fail(Failed(failed, 9.0, "nobody had waited for it"))
        assert state.complete == failed, "nothing that was reported since can be trusted"
        spoilt = set(range(failed, len(graph)))
    elif transfers := [t for t in model.given if t >= len(graph)]:
        failed = random.Random(seed).choice(transfers)
        state.fail(Failed(failed, 9.0, "nobody had waited for it"))
        spoilt |= {n for n in order if [*model.given].index(n) > [*model.given].index(failed)}
        assert state.failed is not None
        assert state.failed.token == failed
    unknown = {key for n in spoilt for key in graph.nodes[n].writes}
    assert state.unfinished_writes() == unknown
    for key, memory in state.unfinished_copies():
        it.directory.drop(key, memory)
    for key in state.unfinished_writes():
        it.directory.lose(key, "it was stopped")
    state.close()
    for key in graph.buffers:
        places = {m for m, token in model.has.get(key, {}).items() if token is None or token in model.known}
        assert it.directory.memories(key) == (places if key not in unknown else set()), f"buffer {key}"
    it.backend.finish()
    it.check(order)


def test_a_node_that_comes_after_one_that_failed_is_not_trusted() -> None:
    """A driver may have run it all the same, and said so."""
    builder = GraphBuilder()
    a, b, c = (builder.buffer(4) for _ in range(3))
    builder.add(launch("fails", (), (a,)))
    builder.add(launch("reads", (a,), (b,)))
    builder.add(launch("beside", (), (c,)))
    plan = Plan(tuple(Assignment(n, 0, n, 0.0, 0.0) for n in range(3)), "given", ("d0",), 0.0)
    state = RunState(Problem(builder.build(), machine([1]), Unit(), (3,)), plan, Directory())
    state.start(0.0)
    state.handle()
    state.handle(Done(1, 1.0), Done(2, 1.0))
    state.handle(Failed(0, 1.0, "broken"))
    assert state.unfinished_writes() == {a, b}


def test_what_is_held_up_is_told_with_what_it_comes_after() -> None:
    builder = GraphBuilder()
    a, b = builder.buffer(4), builder.buffer(4)
    builder.add(launch("makes", (), (a,)))
    builder.add(launch("reads", (a,), (b,)))
    builder.add(HostTask("looks", print, (), (b,), ()))
    builder.add(launch("last", (b,), ()))
    names = ("d0", "d1")
    places = [(0, 0), (1, 0), (ON_HOST, 0), (1, 1)]
    plan = Plan(tuple(Assignment(n, *place, 0.0, 0.0) for n, place in enumerate(places)), "given", names, 0.0)
    state = RunState(Problem(builder.build(), machine([1, 2]), Unit(), (1, 2)), plan, Directory())
    given = [*state.start(0.0), *state.handle()]
    assert state.held_up() == (
        "0 of 4 nodes are complete; on device 1 queue 0, node 1 (reads) comes after [0] was not enqueued;"
        " on the host, node 2 (looks) comes after [1] was not enqueued;"
        " on device 1 queue 1, node 3 (last) comes after [1] was not enqueued"
    )
    assert (state.limited, state.buffers, state.held(0)) == ((), frozenset(), frozenset())
    (leaves,) = [c.token for c in given if isinstance(c, Download)]
    state.handle(Done(leaves, 1.0))
    assert state.held_up().startswith("1 of 4 nodes are complete; on the host, node 2 (looks) comes after [1] was")


def test_a_launch_is_no_host_function() -> None:
    builder = GraphBuilder()
    builder.add(launch("kernel", (), (builder.buffer(4),)))
    plan = Plan((Assignment(0, ON_HOST, 0, 0.0, 0.0),), "given", ("d0",), 0.0)
    state = RunState(Problem(builder.build(), machine([1]), Unit(), (1,)), plan, Directory())
    with pytest.raises(GraphError, match=r"node 0 \(kernel\) is a launch, but was assigned to the host"):
        state.start(0.0) or state.handle()
