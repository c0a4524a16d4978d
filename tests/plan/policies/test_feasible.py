"""Kernels that do not run on every device, do not fit there, or may not run there: respected by every policy, or an
error that says so."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.errors import PolicyError
from manycl.graph.graph import Graph, HostTask, Launch, Placement
from manycl.model.estimates import Estimates, Wrapped
from manycl.plan.plan import MERGE, WHOLE, Plan
from manycl.plan.problem import Problem
from manycl.plan.verification.verify import verify
from manycl.run.simulation.simulate import plan_with
from tests.plan.policies.test_exact import OPTIONS, holds
from tests.plan.split_cases import GROUPS, split_problems

WHOLE_ONLY = ("in_order", "cpop", "peft", "portfolio", "optimal")
IN_RANGES = ("mkmd_coarse", "mkmd", "balance", "auto", "pns", "hop", "mig_heft", "tenths", "repara", "adaptive")
DYNAMIC = ("eager", "heft", "clustering", "fcfs")


class Picky(Wrapped):
    """Estimates of others, but some devices have no version of some nodes, and others another one than the first."""

    def __init__(self, known: Estimates, versions: Mapping[tuple[int, int], int]) -> None:
        super().__init__(known)
        self._versions = versions  # -1: none

    def launch(self, node: int, device: int) -> float:
        return math.inf if self._versions[node, device] < 0 else self.known.launch(node, device)

    def groups(self, node: int, device: int, count: int, of: int) -> float:
        whole = self.launch(node, device)
        return whole if whole == math.inf else whole * (0.1 + 0.9 * count / of)

    def version(self, node: int, device: int) -> int:
        return self._versions[node, device]


@st.composite
def tight(draw: Any) -> Problem:
    p = draw(split_problems())
    sizes = st.sampled_from([1 << 30, 1 << 30, 300, 140, 100, 20])
    devices = tuple(replace(d, global_memory=(m := draw(sizes)), max_allocation=m) for d in p.machine.devices)
    pairs = [(n, d) for n in range(len(p.graph)) for d in range(len(devices))]
    versions = {pair: draw(st.sampled_from([0, 0, 0, 1, 2, -1])) for pair in pairs}
    for node, split in p.splits.items():
        if split.merge != "none":  # what ranges write is put together in one version only (plan/splitting.py)
            versions |= {(node, d): min(versions[node, d], 0) for d in range(len(devices))}
    devices = tuple(
        replace(d, double=draw(MOSTLY), max_work_group=draw(st.sampled_from([1, 4096, 4096]))) for d in devices
    )
    for task in p.graph.nodes:
        if isinstance(task, Launch):
            task.kernel = replace(task.kernel, uses_double=not draw(MOSTLY))
            words = st.lists(st.sampled_from(["cpu", "gpu", devices[0].name]), max_size=1)
            limits = Placement(draw(words), draw(words), draw(st.integers(0, 2)), draw(st.sampled_from(["", "gpu"])))
            task.device = draw(st.sampled_from(["", "", "gpu", limits]))
    return replace(
        p, machine=replace(p.machine, devices=devices), estimates=Picky(p.estimates, versions), not_before=0.0
    )


MOSTLY = st.sampled_from([True, True, True, False])


def able(p: Problem, node: int, d: int) -> bool:
    """Whether a device may run a node, and has what its kernel needs."""
    task, device = p.graph.nodes[node], p.machine.devices[d]
    assert isinstance(task, Launch)
    if isinstance(task.device, Placement):
        only, never = set(task.device.only), set(task.device.never)
        if {device.kind, device.name} & never or (only and not {device.kind, device.name} & only):
            return False
    items = math.prod(task.local_size or (1,))
    return (device.double or not task.kernel.uses_double) and items <= device.max_work_group


def wanted(p: Problem, node: int) -> list[int]:
    """The devices that may run a node, or those of them that it prefers."""
    task, every = p.graph.nodes[node], range(len(p.machine.devices))
    assert isinstance(task, Launch)
    limits = task.device if isinstance(task.device, Placement) else Placement(prefer=task.device)
    may = [d for d in every if isinstance(task.device, str) or able(replace(p, graph=free(p, node)), node, d)]
    return [d for d in may if limits.prefer in (p.machine.devices[d].kind, p.machine.devices[d].name)] or may


def free(p: Problem, node: int) -> Graph:
    """The graph with a node that needs nothing: only its user's limits are left."""
    nodes = list(p.graph.nodes)
    task = nodes[node]
    assert isinstance(task, Launch)
    nodes[node] = replace(task, kernel=replace(task.kernel, uses_double=False), local_size=None)
    return replace(p.graph, nodes=tuple(nodes))


def needed(p: Problem, node: int, group: int | None) -> Sequence[int]:
    """The bytes of every buffer that a group of a node touches (None: all groups)."""
    task = p.graph.nodes[node]
    out = []
    for key in {*task.reads, *task.writes}:
        size = p.graph.buffers[key].nbytes
        part = p.splits[node].regions.get(key) if group is not None else None
        if part is not None and group is not None:
            low = part.offset + part.stride * group
            high = low + (part.width or part.stride)
            size = max(1, min(high, size) - min(max(low, 0), size - 1))
        out.append(size)
    return out


def nowhere(p: Problem, ranges: bool) -> bool:
    """Whether some node can run on no device that it prefers."""
    for node, task in enumerate(p.graph.nodes):
        if isinstance(task, HostTask):
            continue
        can = False
        for d in wanted(p, node):
            if math.isinf(p.estimates.launch(node, d)) or not able(p, node, d):
                continue
            room = p.machine.devices[d].global_memory
            tries = [None, *(range(GROUPS) if ranges and node in p.splits else ())]
            fitting = [sum(needed(p, node, g)) <= room for g in tries]
            can |= fitting[0] or (len(fitting) > 1 and all(fitting[1:]))
        if not can:
            return True
    return False


def check(p: Problem, plan: Plan) -> None:
    check_devices(p, plan)
    for a in plan.assignments:
        if a.device >= 0 and a.dimension is not MERGE:
            assert a.version == max(0, p.estimates.version(a.node, a.device))  # type: ignore[attr-defined]
            assert a.dimension is not WHOLE or sum(needed(p, a.node, None)) <= p.machine.devices[a.device].global_memory


def check_devices(p: Problem, plan: Plan, preferences: bool = True) -> None:
    on: dict[int, set[int]] = {}
    for a in plan.assignments:
        if a.device >= 0 and a.dimension is not MERGE:
            assert able(p, a.node, a.device)
            assert not preferences or a.device in wanted(p, a.node)
            on.setdefault(a.node, set()).add(a.device)
            limits = p.graph.nodes[a.node].device  # type: ignore[union-attr]
            assert isinstance(limits, str) or not limits.at_most or len(on[a.node]) <= limits.at_most


@pytest.mark.parametrize("name", [*WHOLE_ONLY, *IN_RANGES])
@settings(max_examples=40, deadline=None)
@given(p=tight())
def test_plans_are_possible_or_refused(name: str, p: Problem) -> None:
    if name == "optimal":
        pytest.importorskip("ortools")
    if nowhere(p, ranges=name in IN_RANGES):
        with pytest.raises(PolicyError, match="no device can run node"):
            plan_with(name, replace(p, options=OPTIONS.get(name, {})))
    else:
        check(p, holds(name, p))


@pytest.mark.parametrize("name", DYNAMIC)
@settings(max_examples=40, deadline=None)
@given(p=tight())
def test_also_while_running(name: str, p: Problem) -> None:
    whole = replace(p, splits={})
    found = plan_or_error(name, whole)
    if isinstance(found, Plan):
        verify(found, p.graph, p.machine, whole, preferences=name != "eager")
        check_devices(whole, found, preferences=name != "eager")
    else:
        assert name == "clustering" or nowhere(whole, ranges=False)
        # a component of several kernels needs one device for all
        assert "no device can run node" in found or "no one device meets" in found


def plan_or_error(name: str, p: Problem) -> Plan | str:
    try:
        return plan_with(name, p)
    except PolicyError as error:
        return str(error)
