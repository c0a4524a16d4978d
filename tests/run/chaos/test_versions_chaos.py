"""Launches that are divided between versions of their kernel, under chaos: any cuts, any version for each range, any
legal order of events."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis import parse_program
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, HostTask, Launch, Node, Version
from manycl.graph.versions.host_version import RUNS_ON, ArrayForm, host_program
from manycl.machine import Machine
from manycl.plan.plan import ON_HOST, WHOLE, Assignment, Plan
from manycl.region import Region
from manycl.run.data.coherence import Directory
from tests.run.chaos.chaos import ChaosBackend
from tests.run.chaos.test_divided_chaos import GROUP, ITEMS, NBYTES, Values, check_valid, one_run, small_chunks
from tests.run.chaos.test_state import machines
from tests.run.chaos.transitions import validated

__all__ = ["small_chunks", "validated"]  # fixtures of the module

PROGRAM = parse_program("""
kernel void map(global const int *a, global int *b) { b[get_global_id(0)] = a[get_global_id(0)]; }
kernel void map_by_twos(global const int *a, global int *b) {
    for (int i = 2 * get_global_id(0); i < 2 * get_global_id(0) + 2; i++) b[i] = a[i];
}
kernel void stencil(global const int *a, global int *b) {
    int i = get_global_id(0), n = get_global_size(0);
    if (i > 0 && i < n - 1) b[i] = a[i - 1] + a[i + 1];
}
kernel void stencil_of_all(global const int *a, global int *b) {
    int i = get_global_id(0), n = get_global_size(0), s = 0;
    for (int k = 0; k < n; k++) if (k == i - 1 || k == i + 1) s += a[k];
    if (i > 0 && i < n - 1) b[i] = s;
}
kernel void change(global const int *a, global int *b) { b[get_global_id(0)] += 1; }
""")
OTHERS = {"map": ("map_by_twos", 2), "stencil": ("stencil_of_all", 1), "change": None}


def versioned(name: str, keys: list[int]) -> Launch:
    facts = PROGRAM.kernels[name]
    of = list(zip(keys, facts.arguments, strict=False))
    own = Version(PROGRAM, facts, (ITEMS,), (GROUP,))
    other = OTHERS[name]
    if other is None:
        forms = (ArrayForm((ITEMS,), np.dtype("i4")),) * 2
        program = host_program(print, PROGRAM, facts, forms, 0)
        second = Version(program, program.kernels["print"], (ITEMS,), (GROUP,), RUNS_ON)
    else:
        second = Version(PROGRAM, PROGRAM.kernels[other[0]], (ITEMS // other[1],), (GROUP // other[1],))
    args = tuple(BufferArg(k) for k, _ in of)
    reads, writes = tuple(k for k, f in of if f.reads), tuple(k for k, f in of if f.writes)
    return Launch(name, PROGRAM, facts, (ITEMS,), (GROUP,), args, reads, writes, versions=(own, second))


@st.composite
def graphs_of_versions(draw: Any) -> Graph:
    builder = GraphBuilder()
    buffers = [builder.buffer(NBYTES, f"b{i}") for i in range(draw(st.integers(3, 4)))]
    for i in range(draw(st.integers(1, 5))):
        keys = draw(st.permutations(buffers))
        task: Node = versioned(draw(st.sampled_from(list(OTHERS))), keys)
        if draw(st.integers(0, 6)) == 0:
            task = HostTask(f"h{i}", print, (), tuple(keys[:2]), tuple(keys[1:2]))
        builder.add(task, ())
    return builder.build()


@st.composite
def plans_of_versions(draw: Any, graph: Graph, where: Machine) -> Plan:
    device, groups = st.integers(0, len(where.devices) - 1), ITEMS // GROUP
    out: list[Assignment] = []
    for n, task in enumerate(graph.nodes):
        if isinstance(task, HostTask):
            out.append(Assignment(n, ON_HOST, 0, 0.0, 0.0))
            continue
        assert isinstance(task, Launch)
        cuts = sorted(draw(st.sets(st.integers(1, groups - 1), max_size=3)))
        for a, b in draw(st.permutations(list(itertools.pairwise([0, *cuts, groups])))):
            d = draw(device)
            able = not task.versions[1].kinds or where.devices[d].kind == "cpu"
            version = draw(st.integers(0, 1 if able else 0))
            out.append(Assignment(n, d, 0, 0.0, 0.0, 0, a, b - a, version))
    assert all(a.dimension is not WHOLE or a.device == ON_HOST for a in out)
    return Plan(tuple(out), "random", tuple(d.name for d in where.devices), 0.0)


@settings(max_examples=40)
@given(st.data(), graphs_of_versions(), machines(), st.integers(0, 2**32))
def test_launches_divided_between_versions_give_the_sequential_result(
    data: Any, graph: Graph, where: Machine, seed: int
) -> None:
    directory, values = Directory(), Values(graph, where.memories)
    for key in graph.buffers:
        home = data.draw(st.integers(0, where.memories - 1))
        directory.define(key, home)
        for m in range(-1, where.memories):
            values.put(m, key, Region.span(0, NBYTES), f"initial {key}" if m in (-1, home) else f"stale {m} {key}")
    for turn in range(2):
        plan = data.draw(plans_of_versions(graph, where))
        one_run(graph, where, plan, directory, values, ChaosBackend(where, seed + turn))
        check_valid(graph, where, directory, values)
