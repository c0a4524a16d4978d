"""Graphs, machines and estimates for the tests of planning."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, HostTask, Launch
from manycl.machine import HOST, Device, Machine
from manycl.model.estimates import Estimates
from manycl.plan.plan import Plan
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem
from manycl.plan.verification.verify import verify

FACTS = KernelFacts("k", 1, ())
PROGRAM = ProgramFacts("", (), {"k": FACTS})


def launch(
    name: str,
    reads: tuple[int, ...],
    writes: tuple[int, ...],
    *,
    device: str = "",
    rank: float | None = None,
    items: int = 1 << 20,
    overwrites: tuple[int, ...] = (),
) -> Launch:
    args = tuple(BufferArg(k) for k in dict.fromkeys((*reads, *writes)))
    where = (items,), None
    return Launch(name, PROGRAM, FACTS, *where, args, reads, writes, None, device, rank, overwrites=overwrites)


def estimated(name: str, p: Problem) -> Plan:
    """The plan of a static policy, as it estimates it, judged."""
    policy = find(name)
    assert isinstance(policy, StaticPolicy)
    plan = policy.plan(p)
    verify(plan, p.graph, p.machine, p)
    return plan


class Table(Estimates):
    """Estimates from a table: ``seconds[node][device]``; a byte takes ``per_byte`` seconds, any transfer
    ``latency``."""

    def __init__(self, seconds: Sequence[Sequence[float]], latency: float = 0.0, per_byte: float = 0.0) -> None:
        self.seconds = seconds
        self.latency = latency
        self.per_byte = per_byte

    def launch(self, node: int, device: int) -> float:
        return self.seconds[node][device]

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 0.0 if source == target else self.latency + nbytes * self.per_byte


def machine(memories: Sequence[int] = (HOST, HOST), kinds: Sequence[str] = ()) -> Machine:
    names = itertools.count()
    kinds = kinds or ["cpu" if m == HOST else "gpu" for m in memories]
    return Machine(tuple(Device(f"{k}{next(names)}", k, memory=m) for k, m in zip(kinds, memories, strict=True)))


def problem(
    graph: Graph,
    seconds: Sequence[Sequence[float]] | Sequence[float],
    where: Machine | None = None,
    *,
    queues: Sequence[int] = (),
    options: Mapping[str, str] | None = None,
    latency: float = 0.0,
    per_byte: float = 0.0,
    handover: float = 0.0,
    valid: Mapping[int, frozenset[int]] | None = None,
    not_before: float = 0.0,
) -> Problem:
    """``seconds``: a row per node, or one row for all."""
    where = where or machine()
    rows: Any = seconds
    if rows and not isinstance(rows[0], (list, tuple)):
        rows = [seconds] * len(graph)
    return Problem(
        graph=graph,
        machine=where,
        estimates=Table(rows, latency, per_byte),
        queues=tuple(queues) or tuple(1 for _ in where.devices),
        valid={} if valid is None else valid,
        options=options or {},
        handover=handover,
        not_before=not_before,
    )


def brief(p: Problem) -> Problem:
    """All in milliseconds: the engine gives a queue no more than a second of work ahead."""
    known = p.estimates
    assert isinstance(known, Table)
    shorter = Table([[s / 1e3 for s in row] for row in known.seconds], known.latency / 1e3, known.per_byte / 1e3)
    return replace(p, estimates=shorter, handover=p.handover / 1e3, not_before=p.not_before / 1e3)


def chains(count: int, length: int, **more: Any) -> Graph:
    """``count`` independent chains; nodes are numbered level by level."""
    builder = GraphBuilder()
    buffers = [builder.buffer(64) for _ in range(count)]
    for level in range(length):
        for c, b in enumerate(buffers):
            builder.add(launch(f"c{c}.{level}", (b,), (b,), **more))
    return builder.build()


def begun(p: Problem, plan: Plan, now: float, ahead: float = 0.0) -> Problem:
    """The problem as it is at a time: what began before (or would within ``ahead`` seconds), and all that it waits for,
    is fixed."""
    starts: dict[int, list[float]] = {}
    for a in plan.assignments:
        starts.setdefault(a.node, []).append(a.start)
    nodes: set[int] = set()
    for n in range(len(p.graph)):
        if max(starts[n]) < now + ahead and nodes.issuperset(p.graph.predecessors[n]):
            nodes.add(n)
    return replace(p, fixed=tuple(a for a in plan.assignments if a.node in nodes), not_before=now)


@st.composite
def graphs(draw: Any, max_nodes: int = 12) -> Graph:
    builder = GraphBuilder()
    buffers = [builder.buffer(draw(st.integers(1, 1000))) for _ in range(draw(st.integers(1, 5)))]
    some = st.lists(st.sampled_from(buffers), max_size=3, unique=True).map(tuple)
    for i in range(draw(st.integers(1, max_nodes))):
        reads, writes = draw(some), draw(some)
        rank = draw(st.sampled_from([None, None, None, 1.0, 2.0]))
        if draw(st.integers(0, 7)) == 0:
            builder.add(HostTask(f"h{i}", print, (), reads, writes, rank))
        else:
            device = draw(st.sampled_from(["", "", "cpu", "gpu", "cpu0"]))
            items = draw(st.sampled_from([1, 300, 5000]))
            whole = tuple(k for k in writes if draw(st.booleans()))
            builder.add(launch(f"n{i}", reads, writes, device=device, rank=rank, items=items, overwrites=whole))
    return builder.build()


@st.composite
def problems(draw: Any, own_memory: bool = True) -> Problem:
    graph = draw(graphs())
    count = draw(st.integers(1, 3))
    own = itertools.count(1)
    memories = [next(own) if own_memory and draw(st.booleans()) else HOST for _ in range(count)]
    where = machine(memories)
    times = st.floats(0.001, 10.0)
    seconds = [[draw(times) for _ in range(count)] for _ in graph.nodes]
    places = st.frozensets(st.integers(0, where.memories - 1), max_size=2)
    return problem(
        graph,
        seconds,
        where,
        queues=[draw(st.integers(1, 3)) for _ in range(count)],
        latency=draw(st.sampled_from([0.0, 0.5])),
        per_byte=draw(st.sampled_from([0.0, 0.01])),
        handover=draw(st.sampled_from([0.0, 0.1])),
        valid={key: draw(places) for key in graph.buffers},
    )
