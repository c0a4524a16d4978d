"""Random problems whose launches may be split, for the tests of the policies that split."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, HostTask, Launch
from manycl.graph.reduction import Reduction
from manycl.machine import HOST, Device, Machine
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion, Split
from tests.plan.plan_cases import FACTS, PROGRAM, Table, problem

GROUPS = 12
ROW = 10  # bytes of a buffer that a group writes


class Affine(Table):
    """As a table, and ranges take their part of the time beside ``once`` seconds."""

    once = 0.0

    def groups(self, node: int, device: int, count: int, of: int) -> float:
        whole = self.seconds[node][device]
        once = min(self.once, whole)
        return once + (whole - once) * (count / GROUPS)


def rows(name: str, reads: tuple[int, ...], writes: tuple[int, ...], device: str = "") -> Launch:
    args = tuple(BufferArg(k) for k in dict.fromkeys((*reads, *writes)))
    return Launch(name, PROGRAM, FACTS, (16 * GROUPS,), (16,), args, reads, writes, None, device)


@st.composite
def split_problems(
    draw: Any, *, whole: bool = False, one_queue: bool = True, most: int = 9, devices: int = 4
) -> Problem:
    """``whole``: nothing may be split. ``most``: nodes, and ``devices``, at most."""
    builder = GraphBuilder()
    # what ranges write leaves the ends of a buffer as they were
    buffers = [builder.buffer((GROUPS + 2) * ROW) for _ in range(draw(st.integers(1, 5)))]
    some = st.lists(st.sampled_from(buffers), max_size=3, unique=True).map(tuple)
    splits: dict[int, Split] = {}
    count = draw(st.integers(1, most))
    for i in range(count):
        reads, writes = draw(some), draw(some)
        if draw(st.integers(0, 6)) == 0:
            builder.add(HostTask(f"h{i}", print, (), reads, writes))
            continue
        kind = "whole" if whole else draw(st.sampled_from(["whole", "rows", "rows", "rows", "merged"]))
        if kind == "merged":
            writes = tuple(k for k in writes if k not in reads)
        builder.add(rows(f"n{i}", reads, writes, draw(st.sampled_from(["", "", "", "cpu", "gpu"]))))
        if kind == "rows":
            linear = {k: LinearRegion(ROW, offset=draw(st.sampled_from([0, ROW]))) for k in writes}
            linear |= {k: LinearRegion(ROW, 3 * ROW, -ROW) for k in reads if k not in writes and draw(st.booleans())}
            splits[i] = Split(0, GROUPS, linear)
        elif kind == "merged":
            linear = {k: LinearRegion(ROW) for k in reads if draw(st.booleans())}
            merge = draw(st.sampled_from([Reduction.SCATTER, Reduction.DIFFERENCE]))
            splits[i] = Split(0, GROUPS, linear, merge, draw(st.sampled_from([(), (0.3,) * 4])))
    memories: list[int] = []
    for _ in range(draw(st.integers(1, devices))):  # a memory of its own, that of a device before, or the host's
        memories.append(draw(st.integers(HOST, 1 + max(memories, default=0))))
    all_of = [Device(f"{'gpu' if m else 'cpu'}{i}", "gpu" if m else "cpu", memory=m) for i, m in enumerate(memories)]
    where = Machine(tuple(all_of))
    seconds = [[draw(st.floats(0.01, 10.0)) for _ in all_of] for _ in range(count)]
    places = st.frozensets(st.integers(0, where.memories - 1), max_size=2)
    p = problem(
        builder.build(),
        seconds,
        where,
        handover=draw(st.sampled_from([0.0, 0.1])),
        valid={key: draw(places) for key in buffers},
        not_before=draw(st.sampled_from([0.0, 1.5])),
    )
    estimates = Affine(seconds, draw(st.sampled_from([0.0, 0.5])), draw(st.sampled_from([0.0, 0.01])))
    estimates.once = draw(st.sampled_from([0.0, 0.2]))
    return replace(p, estimates=estimates, splits=splits)


@st.composite
def alike_chains(draw: Any) -> Problem:
    """Several chains of the same kernels on one input, as the heads of a transformer, on devices of unlike speed; each
    kernel may be divided, and reads all that the one before wrote, or the rows of its groups."""
    builder = GraphBuilder()
    length, count, devices = draw(st.integers(1, 4)), draw(st.integers(2, 6)), draw(st.integers(2, 3))
    linear = [draw(st.booleans()) for _ in range(length)]
    base = [draw(st.floats(0.01, 1.0)) for _ in range(length)]
    speeds = [draw(st.floats(0.3, 3.0)) for _ in range(devices)]
    first = builder.buffer(GROUPS * ROW)
    splits: dict[int, Split] = {}
    for chain in range(count):
        last = first
        for level in range(length):
            made = builder.buffer(GROUPS * ROW)
            node = builder.add(rows(f"c{chain}.{level}", (last,), (made,)))
            regions = {key: LinearRegion(ROW) for key in ((last, made) if linear[level] else (made,))}
            splits[node], last = Split(0, GROUPS, regions), made
    memories = [HOST if draw(st.booleans()) else d + 1 for d in range(devices)]
    dense = sorted({*memories} - {HOST})
    memories = [m and dense.index(m) + 1 for m in memories]
    where = Machine(tuple(Device(f"d{i}", "gpu" if m else "cpu", memory=m) for i, m in enumerate(memories)))
    seconds = [[b * s for s in speeds] for _ in range(count) for b in base]
    valid = {first: frozenset({HOST})}
    p = problem(builder.build(), seconds, where, handover=draw(st.sampled_from([0.0, 0.1])), valid=valid)
    estimates = Affine(seconds, draw(st.sampled_from([0.0, 0.05])), draw(st.sampled_from([0.0, 0.001, 0.01])))
    estimates.once = draw(st.sampled_from([0.0, 0.02, 0.2]))
    return replace(p, estimates=estimates, splits=splits)


class Shared(Table):
    """As a table, and ranges take their part of the time."""

    def groups(self, node: int, device: int, count: int, of: int) -> float:
        return self.seconds[node][device] * (count / of)


@st.composite
def tiny_problems(draw: Any) -> Problem:
    """Launches of one to three work-groups on buffers of few bytes, some of which take no time, on devices with many
    compute units, some without a place for them, on links that may be infinitely fast."""
    builder = GraphBuilder()
    counts = [draw(st.integers(1, 3)) for _ in range(draw(st.integers(1, 4)))]
    buffers = [builder.buffer(12) for _ in range(draw(st.integers(1, 4)))]
    some = st.lists(st.sampled_from(buffers), max_size=2, unique=True).map(tuple)
    splits: dict[int, Split] = {}
    for i, count in enumerate(counts):
        reads, writes = draw(some), draw(some)
        if draw(st.integers(0, 5)) == 0:
            builder.add(HostTask(f"h{i}", print, (), reads, writes))
            continue
        if merged := draw(st.booleans()):
            writes = tuple(k for k in writes if k not in reads)
        args = tuple(BufferArg(k) for k in dict.fromkeys((*reads, *writes)))
        local = draw(st.sampled_from([1, 64]))
        builder.add(Launch(f"n{i}", PROGRAM, FACTS, (local * count,), (local,), args, reads, writes))
        if draw(st.integers(0, 3)):
            regions = {} if merged else {k: LinearRegion(draw(st.sampled_from([1, 4]))) for k in writes}
            splits[i] = Split(
                0,
                count,
                regions,
                draw(st.sampled_from([Reduction.SCATTER, Reduction.DIFFERENCE])) if merged else Reduction.NONE,
            )
    kinds = draw(st.lists(st.sampled_from(["cpu", "gpu"]), min_size=1, max_size=3))
    memories = itertools.count(1)
    where = Machine(
        tuple(
            Device(
                f"{kind}{i}",
                kind,
                memory=HOST if kind == "cpu" else next(memories),
                compute_units=draw(st.sampled_from([1, 2, 64])),
                launch_overhead=draw(st.sampled_from([0.0, 1e-5])),
                queues=draw(st.sampled_from([1, 4])),
            )
            for i, kind in enumerate(kinds)
        )
    )
    times = st.sampled_from([0.0, 1e-9, 1e-3, 1e-3, 10.0])
    seconds = [[draw(times) for _ in where.devices] for _ in counts]
    places = st.frozensets(st.integers(0, where.memories - 1), max_size=2)
    p = problem(
        builder.build(),
        seconds,
        where,
        queues=[d.queues for d in where.devices],
        handover=draw(st.sampled_from([0.0, 1e-4])),
        valid={key: draw(places) for key in buffers},
    )
    estimates = Shared(seconds, draw(st.sampled_from([0.0, 1e-5])), draw(st.sampled_from([0.0, 1e-6])))
    return replace(p, estimates=estimates, splits=splits)
