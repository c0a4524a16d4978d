"""Who runs what, and when it may be enqueued: PySchedCL's Algorithm 1 against a model of it, with random graphs, task
components and choices; and what plans are refused."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Graph, HostTask
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.policy import Choice, Component, DeviceState, KernelByKernel
from manycl.plan.problem import Problem
from manycl.plan.search.queues import setup_cq
from manycl.plan.search.rank import bottom_levels
from manycl.run.commands.backend import Run
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.commands.compiler import compiled
from manycl.run.commands.transfers import Subject
from manycl.run.data.coherence import Directory
from manycl.run.engine.assign import Ask, Assigned
from manycl.run.lowering.steps import Lowered
from manycl.trace import DecisionEvent
from tests.run.chaos.test_state import Unit, launch, machine


class Times(Unit):
    def launch(self, node: int, device: int) -> float:
        return 1.0 + node * 0.25 + device * 0.125


class Chooses(KernelByKernel):
    """By chance; what it is told is kept. A component is some nodes that follow one another in the graph's order."""

    def __init__(self, chance: random.Random, parts: list[tuple[int, ...]], devices: int) -> None:
        self.chance, self.parts = chance, parts
        self.wide = [chance.randint(1, 4) for _ in range(devices)]
        self.places = [chance.randint(0, 3) for _ in range(devices)]
        self.asked: list[tuple[tuple[Component, ...], list[DeviceState], float, Choice | None]] = []

    def components(self, graph: Graph) -> tuple[tuple[int, ...], ...]:
        return tuple(self.parts)

    def queues(self, device: int) -> int:
        return self.wide[device]

    def resident(self, device: int) -> int:
        return self.places[device]

    def select(self, frontier: Sequence[Component], devices: Sequence[DeviceState], now: float) -> Choice | None:
        free = [d.index for d in devices if d.free]
        choice = None
        if free and (len(free) == len(devices) or self.chance.random() < 0.7):
            choice = Choice(self.chance.choice(frontier).index, self.chance.choice(free))
        self.asked.append((tuple(frontier), list(devices), now, choice))
        return choice


def of_chance(chance: random.Random) -> tuple[Graph, list[tuple[int, ...]]]:
    builder = GraphBuilder()
    keys = [builder.buffer(4) for _ in range(5)]
    parts: list[tuple[int, ...]] = []
    count = chance.randint(1, 14)
    for n in range(count):
        reads, writes = (tuple(chance.sample(keys, chance.choice((0, 1, 1, 2)))) for _ in range(2))
        if chance.random() < 0.12:
            builder.add(HostTask(f"h{n}", print, (), reads, writes))
        else:
            rank = chance.random() if chance.random() < 0.15 else None
            builder.add(replace(launch(f"n{n}", reads, writes), rank=rank))
        if parts and chance.random() < 0.5:
            parts[-1] = (*parts[-1], n)
        else:
            parts.append((n,))
    chance.shuffle(parts)
    return builder.build(), parts


def test_components_are_chosen_and_placed_as_the_algorithm_says() -> None:
    for seed in range(250):
        try:
            follow(random.Random(seed))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def follow(chance: random.Random) -> None:
    graph, parts = of_chance(chance)
    memories = [chance.choice((0, 1)) for _ in range(chance.randint(1, 3))]
    where = machine(memories)
    problem = Problem(graph, where, Times(), (1,) * len(memories))
    policy = Chooses(chance, parts, len(memories))
    asked = Ask(problem, policy, {})
    places = [max(1, n) for n in policy.places]
    assert asked.queues == tuple(policy.wide)
    of = {n: c for c, nodes in enumerate(parts) for n in nodes}
    levels = bottom_levels(problem)
    done: set[int] = set()
    given: dict[int, Assigned] = {}
    running: dict[int, tuple[int, int, float]] = {}  # component: device, place on it, until
    waiting: list[int] = []
    now = 0.0
    out = asked.start(now)
    seen = 0
    while True:
        # what has become ready: all that its nodes wait for outside is complete
        ready = [
            c
            for c, nodes in enumerate(parts)
            if all(p in done for n in nodes for p in graph.predecessors[n] if of[p] != c)
        ]
        expected: list[Assigned] = []
        on_host = [c for c in ready if all(isinstance(graph.nodes[n], HostTask) for n in parts[c])]
        assert {n for c in on_host for n in parts[c]} <= given.keys() | {a.node for a in out}
        waiting = [c for c in ready if c not in on_host and c not in running and not set(parts[c]) <= given.keys()]
        for frontier, devices, at, choice in policy.asked[seen:]:
            assert at == now
            assert {c.index for c in frontier} == set(waiting)
            keys = []
            for c in frontier:
                assert c.nodes == parts[c.index]
                own = [r for n in c.nodes if (r := graph.nodes[n].rank) is not None]
                inside = set(c.nodes)
                front = [levels[n] for n in c.nodes if not inside & set(graph.predecessors[n])]
                assert c.rank == (max(own) if own else max(front))
                assert c.devices == tuple(range(len(memories)))
                kernels = [n for n in c.nodes if not isinstance(graph.nodes[n], HostTask)]
                assert c.seconds == tuple(sum(Times().launch(n, d) for n in kernels) for d in range(len(memories)))
                keys.append((not own, -c.rank, c.index))
            assert keys == sorted(keys), "what users rank comes first, then what has most behind it"
            for d in devices:
                mine = [c for c, (device, _, _) in running.items() if device == d.index]
                assert (d.device, d.running) == (where.devices[d.index], tuple(mine))
                assert d.free == places[d.index] - len(mine)
                assert d.ready_at == max([now, *(running[c][2] for c in mine)])
            if choice is not None:
                c, device = choice.component, choice.device
                taken = {slot for where_, slot, _ in running.values() if where_ == device}
                slot = min(set(range(places[device])) - taken)
                seconds = sum(Times().launch(n, device) for n in parts[c] if not isinstance(graph.nodes[n], HostTask))
                running[c] = device, slot, now + seconds
                waiting.remove(c)
                share = max(1, policy.wide[device] // places[device])
                order = setup_cq(graph, parts[c], share, slot * share % policy.wide[device])
                last = {queue: n for n, queue in order}
                for n, queue in order:
                    if isinstance(graph.nodes[n], HostTask):
                        expected.append(Assigned(n, ON_HOST, 0, True))
                    else:
                        told = last[queue] == n or any(of[s] != c for s in graph.successors[n])
                        expected.append(Assigned(n, device, queue, told, seconds / len(parts[c])))
                event = DecisionEvent(now, c, parts[c], where.devices[device].name)
                assert event in asked.decisions
        assert [a for a in out if of[a.node] not in on_host] == expected
        assert all(a == Assigned(a.node, ON_HOST, 0, True) for a in out if of[a.node] in on_host)
        assert not given.keys() & {a.node for a in out}, "once"
        given.update((a.node, a) for a in out)
        if len(done) == len(graph):
            break
        now += 1.0
        seen = len(policy.asked)
        can = [n for n in given if n not in done and all(p in done for p in graph.predecessors[n])]
        ended = sorted(chance.sample(can, chance.randint(1, len(can))))
        done.update(ended)
        for c in [c for c in running if set(parts[c]) <= done]:
            del running[c]
        out = asked.completed(ended, now, {})
    assert given.keys() == set(range(len(graph)))
    assert len(asked.decisions) == len([c for c in parts if not all(isinstance(graph.nodes[n], HostTask) for n in c)])


def two() -> Problem:
    builder = GraphBuilder()
    a = builder.buffer(4)
    for name in ("one", "two"):
        builder.add(launch(name, (a,), ()))
    return Problem(builder.build(), machine([0, 0]), Unit(), (1, 1))


def plan(*places: tuple[int, int, int], names: tuple[str, ...] = ("d0", "d1")) -> Plan:
    return Plan(tuple(Assignment(n, d, q, 1.0, 3.5) for n, d, q in places), "given", names, 0.0)


def command_graph_of(given: Plan, host: bool = False) -> CommandGraph:
    problem = two()
    if host:
        problem = replace(problem, graph=replace(problem.graph, nodes=(problem.graph.nodes[0], looks())))
    return compiled(Subject(problem, Lowered(problem.graph), Directory().valid), given)


def looks() -> HostTask:
    return HostTask("looks", print, (), (), ())


def test_a_plan_is_followed_in_its_order() -> None:
    command_graph = command_graph_of(plan((1, 1, 2), (0, 0, 0)))
    assert command_graph.queues == (1, 3)
    assert [c for c in command_graph.commands if isinstance(c, Run)] == [Run(1, 1, 2, (), True), Run(0, 0, 0, (), True)]
    assert command_graph_of(plan((0, 1, 0), (1, 1, 0))).queues == (0, 1)
    assert command_graph_of(plan((0, 0, 0), (1, ON_HOST, 3)), host=True).queues == (1, 0), "the host has no queues"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (plan((0, 0, 0), (1, 0, 0), names=("d0", "gone")), "for devices d0, gone, not for d0, d1"),
        (plan((0, 0, 0), (2, 0, 0)), "not valid.*node=2"),
        (plan((0, 0, 0), (-1, 0, 0)), "not valid.*node=-1"),
        (plan((0, 0, 0), (1, 2, 0)), "not valid.*device=2"),
        (plan((0, 0, 0), (1, -2, 0)), "not valid.*device=-2"),
        (plan((0, 0, 0), (1, 0, -1)), "not valid.*queue=-1"),
        (plan((0, 0, 0), (0, 1, 0)), "not valid.*node=0"),
        (plan((0, 0, 0)), "given planned 1 of 2 nodes"),
    ],
)
def test_a_plan_that_cannot_be_followed_is_refused(given: Plan, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        command_graph_of(given)


def test_what_has_begun_is_not_continued() -> None:
    problem = replace(two(), fixed=(Assignment(0, 0, 0, 0.0, 1.0),))
    with pytest.raises(PolicyError, match="partial schedule"):
        compiled(Subject(problem, Lowered(problem.graph), Directory().valid), plan((0, 0, 0), (1, 0, 0)))
    with pytest.raises(PolicyError, match="partial schedule"):
        Ask(problem, KernelByKernel(), {})


def test_components_that_wait_for_one_another_are_refused() -> None:
    builder = GraphBuilder()
    a, b, c = (builder.buffer(4) for _ in range(3))
    builder.add(launch("first", (), (a,)))
    builder.add(launch("between", (a,), (b,)))
    builder.add(launch("last", (b,), (c,)))
    builder.add(launch("behind", (c,), ()))
    policy = Chooses(random.Random(0), [(0, 2), (1,), (3,)], 1)
    with pytest.raises(PolicyError, match=r"task components \[0, 1, 2\] wait for one another"):
        Ask(Problem(builder.build(), machine([0]), Unit(), (1,)), policy, {})


def test_times_of_kernels_that_fit_nowhere_are_not_foreseen() -> None:
    """And of a device that does not take a kernel, they are infinite."""
    builder = GraphBuilder()
    builder.add(launch("large", (builder.buffer(100),), ()))
    small = replace(machine([1]).devices[0], name="small", memory=2, global_memory=10)
    where = replace(machine([1]), devices=(machine([1]).devices[0], small))
    policy = Chooses(random.Random(0), [(0,)], 2)
    asked = Ask(Problem(builder.build(), where, Unit(), (1, 1)), policy, {})
    (given,) = asked.start(0.0)
    assert policy.asked[0][0][0].seconds == (1.0, inf)
    assert given.seconds == (1.0 if given.device == 0 else 0.0)


def told_of(graph: Graph, parts: list[tuple[int, ...]], memories: list[int]) -> tuple[Ask, Chooses]:
    policy = Chooses(random.Random(1), parts, len(memories))
    return Ask(Problem(graph, machine(memories), Unit(), (1,) * len(memories)), policy, {0: 1, 1: 1}), policy


def test_what_several_kernels_of_a_component_read_is_brought_once() -> None:
    """And what one of them makes is not brought; what is valid is so when it is asked."""
    builder = GraphBuilder()
    a, b, c = (builder.buffer(4) for _ in range(3))
    builder.add(launch("one", (a,), (b,)))
    builder.add(launch("two", (a, b), ()))
    builder.add(launch("makes", (), (c,)))
    builder.add(launch("then", (c,), ()))
    asked, policy = told_of(builder.build(), [(0, 1), (2,), (3,)], [0, 1])
    given = asked.start(0.0)
    while not {0, 1, 2} <= {a.node for a in given}:
        given += asked.completed([], 1.0, {})
    seconds = {c.index: c.seconds for frontier, *_ in policy.asked for c in frontier}
    assert seconds[0] == (2.0, 2.0 + 1.0)
    count = len(policy.asked)
    asked.completed([2], 2.0, {c: 1 << 1})
    assert policy.asked[count][0][-1].seconds == (1.0 + 1.0, 1.0)


def test_a_component_runs_where_all_its_kernels_may() -> None:
    builder = GraphBuilder()
    for i, device in enumerate(("", "d1", "d2")):
        builder.add(replace(launch(f"n{i}", (builder.buffer(4),), ()), device=device))
    graph = builder.build()
    asked, policy = told_of(graph, [(0, 1), (2,)], [0, 0, 0])
    asked.start(0.0)
    assert {c.index: c.devices for c in policy.asked[0][0]} == {0: (1,), 1: (2,)}
    asked, _ = told_of(graph, [(0,), (1, 2)], [0, 0, 0])
    with pytest.raises(PolicyError, match=r"no one device meets the preferences of all .*: n1, n2"):
        asked.start(0.0)


def test_components_beside_a_circle_are_not_part_of_it() -> None:
    builder = GraphBuilder()
    a, b, c = (builder.buffer(4) for _ in range(3))
    for reads, writes in (((), (a,)), ((a,), (b,)), ((b,), (c,)), ((), ()), ((), ())):
        builder.add(launch("n", reads, writes))
    with pytest.raises(PolicyError, match=r"task components \[0, 2\] wait"):
        told_of(builder.build(), [(0, 2), (3,), (1,), (4,)], [0])
