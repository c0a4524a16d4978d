"""Every built-in policy: valid plans on random problems, and the behaviour each is known for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Graph, HostTask
from manycl.machine import HOST, Device, Machine
from manycl.plan.plan import Plan
from manycl.plan.policies.papers.clustering import connected
from manycl.plan.policy import find, names
from manycl.plan.problem import Problem
from manycl.plan.verification.verify import verify
from manycl.run.simulation.simulate import plan_with, simulate
from tests.plan.plan_cases import Table, chains, estimated, launch, machine, problem, problems

BUILT_IN = ("auto", "clustering", "eager", "heft", "in_order")


def independent(count: int, **more: object) -> Graph:
    return chains(count, 1, **more)


def fork(width: int) -> Graph:
    """One kernel, then ``width`` that need its result, then one that needs all of theirs."""
    builder = GraphBuilder()
    root = builder.buffer(4)
    leaves = [builder.buffer(4) for _ in range(width)]
    builder.add(launch("root", (), (root,)))
    for leaf in leaves:
        builder.add(launch("leaf", (root,), (leaf,)))
    builder.add(launch("join", tuple(leaves), (root,)))
    return builder.build()


def devices(plan: Plan) -> list[int]:
    """The device of every node, by node."""
    return [a.device for a in sorted(plan.assignments)]


def test_all_are_registered() -> None:
    assert set(BUILT_IN) <= set(names())


@pytest.mark.parametrize("name", BUILT_IN)
@settings(max_examples=50, deadline=None)
@given(p=problems())
def test_plans_are_valid(name: str, p: Problem) -> None:
    verify(plan_with(name, p), p.graph, p.machine, p, preferences=name != "eager")


@pytest.mark.parametrize("name", ["in_order", "auto"])
@settings(max_examples=40, deadline=None)
@given(p=problems(own_memory=False))
def test_prediction_is_what_the_engine_does(name: str, p: Problem) -> None:
    """With one memory and one queue a device, planner and simulator share no code but agree. (Milliseconds: the engine
    gives a queue no more than a second of work.)"""
    assert isinstance(p.estimates, Table)
    times = Table([[1e-3 * seconds for seconds in row] for row in p.estimates.seconds])
    p = Problem(p.graph, p.machine, times, (1,) * len(p.machine.devices), p.valid, {}, 0.0, 1e-3 * p.handover)
    plan = plan_with(name, p)
    assert simulate(p, plan).makespan == pytest.approx(plan.makespan)


@settings(max_examples=50, deadline=None)
@given(p=problems())
def test_auto_is_never_predicted_to_be_slower_than_in_order(p: Problem) -> None:
    assert estimated("auto", p).makespan <= estimated("in_order", p).makespan * (1 + 1e-12)


def test_auto_keeps_a_chain_on_one_device() -> None:
    # the second device is a little faster at every other kernel: not worth going over for
    p = problem(chains(1, 6), [[1.0, 1.01], [1.01, 1.0]] * 3, handover=0.05)
    assert len(set(devices(plan_with("auto", p)))) == 1


def test_auto_spreads_independent_chains() -> None:
    plan = plan_with("auto", problem(chains(10, 20), [1.0, 1.0], handover=0.05))
    assert plan.makespan == pytest.approx(100.0)
    assert all(len({devices(plan)[c + 10 * level] for level in range(20)}) == 1 for c in range(10))


def test_auto_uses_both_devices_of_a_fork_when_it_pays() -> None:
    slow_handover = problem(fork(8), [1.0, 1.0], handover=100.0)
    assert len(set(devices(plan_with("auto", slow_handover)))) == 1
    quick = plan_with("auto", problem(fork(8), [1.0, 1.0], handover=0.01))
    assert quick.makespan < 6.2  # 1 + 8 / 2 + 1, and handovers; in order: 10


def test_auto_weighs_transfers() -> None:
    graph = independent(1)
    where = machine((HOST, 1))
    valid = {0: frozenset({HOST})}
    near = problem(graph, [10.0, 1.0], where, latency=2.0, valid=valid)
    assert devices(plan_with("auto", near)) == [1]
    far = problem(graph, [10.0, 1.0], where, latency=20.0, valid=valid)
    assert devices(plan_with("auto", far)) == [0]


def test_auto_continues_the_queue_of_the_predecessor() -> None:
    gpu = Machine((Device("gpu0", "gpu", memory=1, compute_units=80, queues=4),))
    p = problem(chains(4, 5, items=256), [1.0], gpu, queues=[4])
    plan = plan_with("auto", p)
    queue = {a.node: a.queue for a in plan.assignments}
    assert all({queue[c + 4 * level] for level in range(5)} == {queue[c]} for c in range(4))
    assert sorted(queue[c] for c in range(4)) == [0, 1, 2, 3]
    assert plan.makespan == pytest.approx(5.0)  # small kernels: all four at once
    assert simulate(p, plan).makespan == pytest.approx(5.0)


def test_only_the_first_successor_continues_a_queue() -> None:
    gpu = Machine((Device("gpu0", "gpu", memory=1, compute_units=80, queues=4),))
    chain = plan_with("auto", problem(chains(1, 5, items=256), [1.0], gpu, queues=[4]))
    assert {a.queue for a in chain.assignments} == {0}
    builder = GraphBuilder()
    x, y, z = (builder.buffer(4) for _ in range(3))
    builder.add(launch("root", (), (x,), items=256))
    builder.add(launch("left", (x,), (y,), items=256))
    builder.add(launch("right", (x,), (z,), items=256))
    plan = plan_with("auto", problem(builder.build(), [1.0], gpu, queues=[4]))
    assert [(a.queue, a.end) for a in sorted(plan.assignments)] == [(0, 1.0), (0, 2.0), (1, 2.0)]


def test_uploads_of_a_device_queue_up() -> None:
    gpu = Machine((Device("gpu0", "gpu", memory=1, compute_units=80, queues=2),))
    graph = independent(2, items=256)
    valid = {key: frozenset({HOST}) for key in graph.buffers}
    p = problem(graph, [1.0], gpu, queues=[2], latency=3.0, valid=valid)
    plan = plan_with("auto", p)
    assert [(a.start, a.end) for a in sorted(plan.assignments)] == [(3.0, 4.0), (6.0, 7.0)]
    assert simulate(p, plan).makespan == pytest.approx(7.0)


@pytest.mark.parametrize(("handover", "expected"), [(0.06, [0, 0]), (0.04, [0, 1])])
def test_auto_changes_the_device_only_for_more_than_a_handover(handover: float, expected: list[int]) -> None:
    # the second kernel would end 0.1 s - handover sooner on the other device
    p = problem(chains(1, 2), [[1.0, 5.0], [1.0, 0.9]], handover=handover)
    assert devices(plan_with("auto", p)) == expected
    mirrored = problem(chains(1, 2), [[5.0, 1.0], [0.9, 1.0]], handover=handover)
    assert devices(plan_with("auto", mirrored)) == [1 - d for d in expected]


def test_queues_of_a_device_share_its_throughput() -> None:
    gpu = Machine((Device("gpu0", "gpu", memory=1, compute_units=1, queues=4),))
    p = problem(chains(4, 5, items=2048), [1.0], gpu, queues=[4])
    assert plan_with("auto", p).makespan == pytest.approx(20.0)
    assert simulate(p, "auto").makespan == pytest.approx(20.0)


def test_in_order_takes_the_fastest_device_and_the_graphs_order() -> None:
    plan = plan_with("in_order", problem(chains(3, 4), [2.0, 1.0]))
    assert [a.node for a in plan.assignments] == list(range(12))
    assert {(a.device, a.queue) for a in plan.assignments} == {(1, 0)}
    assert plan.makespan == pytest.approx(12.0)


def test_in_order_respects_preferences() -> None:
    builder = GraphBuilder()
    for device in ("", "", "gpu"):
        builder.add(launch("k", (), (builder.buffer(4),), device=device))
    plan = plan_with("in_order", problem(builder.build(), [1.0, 9.0], machine((HOST, 1))))
    assert devices(plan) == [0, 0, 1]


def test_static_policies_start_at_the_earliest_time() -> None:
    for name in ("in_order", "auto"):
        p = problem(chains(2, 2), [1.0, 1.0], not_before=7.0)
        plan = plan_with(name, p)
        verify(plan, p.graph, p.machine, p)
        assert min(a.start for a in plan.assignments) == 7.0


def test_eager_takes_any_free_device() -> None:
    # the second device needs a hundred times longer and nobody prefers it; eager gives it work all the same
    p = problem(independent(3, device="cpu0"), [1.0, 100.0])
    plan = plan_with("eager", p)
    assert sorted(devices(plan)) == [0, 0, 1]
    assert plan.makespan == pytest.approx(100.0)


def test_heft_waits_for_the_faster_device() -> None:
    plan = plan_with("heft", problem(independent(3), [1.0, 100.0]))
    assert devices(plan) == [0, 0, 0]
    assert plan.makespan == pytest.approx(3.0)


def test_heft_uses_the_slower_device_when_it_ends_first() -> None:
    plan = plan_with("heft", problem(independent(3), [2.0, 3.0]))
    # 2 on the first; 3 on the second beats 2 + 2; the third: 2 + 2 on the first beats 3 + 3
    assert devices(plan) == [0, 1, 0]
    assert plan.makespan == pytest.approx(4.0)


def test_heft_takes_the_highest_rank_first() -> None:
    builder = GraphBuilder()
    short, long = builder.buffer(4), builder.buffer(4)
    builder.add(launch("short", (short,), (short,)))
    for _ in range(3):
        builder.add(launch("long", (long,), (long,)))
    one = Machine((Device("cpu0", "cpu"),))
    plan = plan_with("heft", problem(builder.build(), [1.0], one))
    assert [a.node for a in plan.assignments] == [
        1,
        2,
        0,
        3,
    ]  # ranks 3, 2, then 1 and 1: the lower index first


def test_eager_and_heft_order_by_the_users_rank() -> None:
    builder = GraphBuilder()
    for i in range(3):
        builder.add(launch(f"n{i}", (), (builder.buffer(4),), rank=float(i)))
    one = Machine((Device("cpu0", "cpu"),))
    for name in ("eager", "heft"):
        plan = plan_with(name, problem(builder.build(), [1.0], one))
        assert [a.node for a in plan.assignments] == [2, 1, 0]


def clusters(count: int) -> Graph:
    """``count`` declared components, each a fork of two kernels behind one."""
    builder = GraphBuilder()
    members = []
    for _ in range(count):
        x, y, z = (builder.buffer(4) for _ in range(3))
        members.append(
            (
                builder.add(launch("a", (), (x,), items=256)),
                builder.add(launch("b", (x,), (y,), items=256)),
                builder.add(launch("c", (x,), (z,), items=256)),
            )
        )
    return builder.build(components=tuple(members))


GPU = Machine((Device("gpu0", "gpu", memory=1, compute_units=80, queues=4),))


def test_clustering_deals_a_component_out_to_the_queues() -> None:
    p = problem(clusters(2), [1.0], GPU, queues=[3], options={"resident": "1"})
    plan = plan_with("clustering", p)
    assert [a.queue for a in sorted(plan.assignments)] == [0, 1, 2, 0, 1, 2]
    assert plan.makespan == pytest.approx(4.0)  # one component after the other; b and c together


def test_clustering_holds_as_many_components_as_queues() -> None:
    p = problem(clusters(3), [1.0], GPU, queues=[3])
    plan = plan_with("clustering", p)
    assert [a.queue for a in sorted(plan.assignments)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert plan.makespan == pytest.approx(3.0)


def test_clustering_options_by_device() -> None:
    p = problem(clusters(2), [1.0], GPU, queues=[1], options={"queues": "cpu:7,gpu:2", "resident": "gpu:1"})
    assert {a.queue for a in plan_with("clustering", p).assignments} == {0, 1}
    for text in ("0", "x", "gpu:", ":3", "gpu:0", "2,,3"):
        with pytest.raises(PolicyError, match=r"clustering: option queues=.*DEVICE:NUMBER"):
            plan_with("clustering", problem(clusters(1), [1.0], GPU, options={"queues": text}))


def test_clustering_keeps_components_together_and_on_the_device_they_prefer() -> None:
    builder = GraphBuilder()
    for device in ("gpu", "cpu", "gpu"):
        x = builder.buffer(4)
        for _ in range(3):
            builder.add(launch("k", (x,), (x,), device=device))
    p = problem(builder.build(), [1.0, 50.0], machine((HOST, 1)))
    assert devices(plan_with("clustering", p)) == [1, 1, 1, 0, 0, 0, 1, 1, 1]


def test_clustering_spreads_components_over_equal_devices() -> None:
    plan = plan_with("clustering", problem(chains(4, 3), [1.0, 1.0], handover=0.01))
    assert plan.makespan < 6.2
    assert sorted(devices(plan)[:4]) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("items", "first", "expected"), [(256, 1.0, [0, 1]), (1 << 20, 0.9, [0, 1]), (256, 0.9, [0, 0])]
)
def test_clustering_weighs_what_runs_there_already(items: int, first: float, expected: list[int]) -> None:
    """Equal devices get equally many; one that is a little faster gets both only if it can run them
    together."""
    gpus = (Device(f"gpu{i}", "gpu", memory=1 + i, compute_units=80, queues=4) for i in range(2))
    p = problem(independent(2, items=items), [first, 1.0], Machine(tuple(gpus)), queues=[4, 4])
    assert devices(plan_with("clustering", p)) == expected


def test_clustering_gives_a_slow_device_what_would_wait_too_long() -> None:
    # 1 s on the first, 3.5 s on the second: the fourth would have to wait for three
    plan = plan_with("clustering", problem(independent(6), [1.0, 3.5]))
    assert sorted(devices(plan)) == [0, 0, 0, 0, 0, 1]
    assert plan.makespan == pytest.approx(5.0)


def test_clustering_looks_past_components_that_prefer_a_busy_device() -> None:
    builder = GraphBuilder()
    for i in range(200):
        builder.add(launch("k", (), (builder.buffer(4),), device="gpu" if i < 199 else "cpu"))
    p = problem(builder.build(), [1.0, 1.0], machine((HOST, 1)))
    plan = plan_with("clustering", p)
    assert next(a.start for a in plan.assignments if a.node == 199) == 0.0


def test_clustering_orders_components_by_the_rank_of_their_front() -> None:
    builder = GraphBuilder()
    buffers = [builder.buffer(4) for _ in range(2)]
    builder.add(launch("short", (), (buffers[0],)))
    builder.add(launch("long", (), (buffers[1],)))
    builder.add(launch("long", (buffers[1],), (buffers[1],)))
    one = Machine((Device("cpu0", "cpu"),))
    plan = plan_with("clustering", problem(builder.build(), [1.0], one))
    assert [a.node for a in plan.assignments] == [1, 2, 0]


def test_undeclared_components_are_the_connected_parts() -> None:
    assert connected(chains(3, 2)) == ((0, 3), (1, 4), (2, 5))


def test_undeclared_components_never_wait_for_themselves() -> None:
    builder = GraphBuilder()
    x = builder.buffer(4)
    for device in ("gpu", "cpu", "gpu"):
        builder.add(launch("k", (x,), (x,), device=device))
    builder.add(HostTask("h", print, (), (x,), ()))
    builder.add(launch("k", (x,), (x,), device="gpu"))
    assert connected(builder.build()) == ((0,), (1,), (2,), (3,), (4,))


def test_clustering_refuses_components_that_wait_for_one_another() -> None:
    builder = GraphBuilder()
    x, y = builder.buffer(4), builder.buffer(4)
    builder.add(launch("a", (), (x,)))
    builder.add(launch("b", (x,), (y,)))
    builder.add(launch("c", (y,), (x,)))
    graph = builder.build(components=((0, 2), (1,)))
    with pytest.raises(PolicyError, match="circle"):
        plan_with("clustering", problem(graph, [1.0, 1.0]))


def test_a_policy_object_can_plan_twice() -> None:
    policy = find("clustering")
    first = plan_with(policy, problem(chains(2, 2), [1.0, 1.0]))
    assert plan_with(policy, problem(chains(2, 2), [1.0, 1.0])) == first


def test_what_took_no_time_stands_before_what_began_then() -> None:
    builder = GraphBuilder()
    for name, rank in (("later", 1.0), ("sooner", 2.0)):
        builder.add(launch(name, (), (builder.buffer(64),), rank=rank))
    where = machine((HOST,))
    plan = plan_with("eager", problem(builder.build(), [[1.0], [0.0]], where))
    assert [(a.node, a.start, a.end) for a in plan.assignments] == [(1, 0.0, 0.0), (0, 0.0, 1.0)]
