"""Alternatives of groups: one launch, or the kernels of a version of it as nodes of their own. Policies take what is
better of graphs that are written by hand; runs in units leave what the kernel leaves, on all devices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.applications.load import load_application
from manycl.applications.planning import PlanningTarget, described_machine, problem_of
from manycl.graph.graph import Placement
from manycl.graph.versions.units import in_units
from manycl.plan.plan import Assignment, Plan, same_plan
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem
from manycl.plan.search.alternatives import following, variant, with_units
from manycl.plan.verification.verify import verify
from manycl.run.engine.asking_policies import planned
from manycl.run.simulation.simulate import plan_with, simulate

SOURCE = """
int scan(global const int *x, int n) {
  int s = 0;
  for (int r = 0; r < 100; r++) for (int k = 0; k < n; k++) s += x[k] * (r - 49);
  return s;
}
kernel void both(global const int *x, global const int *y, global int *u, global int *v, int n) {
  u[0] = scan(x, n); v[0] = scan(y, n);
}
kernel void one(global const int *x, global int *t, int n) { t[0] = scan(x, n); }
kernel void centred(global const int *x, global int *y, int n) {
  int i = get_global_id(0);
  y[i] = x[i] * n - scan(x, n);
}
kernel void minus(global const int *x, global const int *t, global int *y, int n) {
  int i = get_global_id(0), s = 0;
  for (int r = 0; r < 2000; r++) s += r * x[i] % 17;
  y[i] = x[i] * n - t[0] + 0 * s;
}
"""
MACHINE = """
name = "two alike"
source = "invented"
[[device]]
name = "cpu0"
kind = "cpu"
memory = "host"
compute_units = 4
clock = "1 GHz"
flops = "20 GFLOP/s"
bandwidth = "20 GB/s"
global_memory = "4 GiB"
[[device]]
name = "cpu1"
kind = "cpu"
memory = "own"
compute_units = 4
clock = "1 GHz"
flops = "20 GFLOP/s"
bandwidth = "20 GB/s"
global_memory = "4 GiB"
[[link]]
from = "host"
to = "cpu1"
both_ways = true
bandwidth = "8 GB/s"
latency = "10 us"
"""
N = 1 << 16
BUFFERS: dict[str, Any] = {
    **{name: {"type": "int", "shape": "n", "init": "random"} for name in ("x", "y")},
    **{name: {"type": "int", "shape": 1, "init": "undefined"} for name in ("u", "v")},
    "z": {"type": "int", "shape": "n", "init": "undefined"},
}
BOTH = {"name": "both", "global": 1, "args": ["x", "y", "u", "v", "n"]}
SCANS = [{"name": "one", "global": 1, "args": ["x", "u", "n"]}, {"name": "one", "global": 1, "args": ["y", "v", "n"]}]
CENTRED = {"name": "centred", "global": "n", "local": 64, "args": ["x", "z", "n"]}
STEPS = [
    {"name": "one", "global": 1, "args": ["x", "t", "n"]},
    {"name": "minus", "global": "n", "local": 64, "args": ["x", "t", "z", "n"]},
]
TEMPORARY = {"t": {"type": "int", "shape": 1}}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> PlanningTarget:
    path = tmp_path_factory.mktemp("machine") / "two.toml"
    path.write_text(MACHINE)
    return described_machine(str(path))


def asked(folder: Path, place: PlanningTarget, kernels: list[dict[str, Any]], **of: Any) -> Problem:
    hand = {"t": {**TEMPORARY["t"], "init": "undefined"}}
    document = {"manycl": 1, "source": "k.cl", "parameters": {"n": N}, "kernels": kernels, "outputs": ["u", "v", "z"]}
    used = {name for k in kernels for name in k["args"]}
    document["buffers"] = {name: b for name, b in (BUFFERS | hand).items() if name in used}
    document["outputs"] = [name for name in ("u", "v", "z") if name in used]
    (folder / "k.cl").write_text(SOURCE)
    (folder / "app.json").write_text(json.dumps(document))
    return problem_of(load_application(folder / "app.json"), place, {}, {}, **of)[0]


def with_version(kernel: dict[str, Any], steps: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """The kernel with steps, which are given its arguments, as a version. (Parameters' names are arguments' here.)"""
    names = {"both": {}, "centred": {"z": "y"}}[kernel["name"]]
    steps = [step | {"args": [names.get(a, a) for a in step["args"]]} for step in steps]
    buffers = TEMPORARY if any("t" in step["args"] for step in steps) else {}
    return kernel | {"versions": [{"for": ["cpu", "gpu"], "buffers": buffers, "kernels": steps} | fields]}


@pytest.mark.parametrize(
    ("policy", "groups"),
    [
        *product(["mkmd", "repara", "auto"], [(0,), (1,)]),
        ("mkmd_coarse", (0,)),
        ("balance", (0, 1)),
        ("repara", (0, 1)),
    ],
)
def test_the_better_one_of_graphs_by_hand_is_planned(
    tmp_path: Path, place: PlanningTarget, policy: str, groups: tuple[int, ...]
) -> None:
    large, small, chosen = (BOTH, CENTRED), (SCANS, STEPS), find(policy)
    assert isinstance(chosen, StaticPolicy)
    by_hand = {}
    for units in product((False, True), repeat=len(groups)):
        kernels = [k for g, u in zip(groups, units, strict=True) for k in (small[g] if u else [large[g]])]
        p = asked(tmp_path, place, kernels)
        by_hand[units] = plan_with(chosen, p).makespan
    p = asked(tmp_path, place, [with_version(large[g], small[g]) for g in groups])
    plan = plan_with(chosen, p)
    # beside these graphs there are those whose launches have all kernels of a version on one device
    assert plan.makespan <= min(by_hand.values()) + p.handover * len(groups)
    units = tuple(node in dict(plan.in_units) for node in range(len(groups)))
    if all(units):
        assert plan.makespan == pytest.approx(by_hand[units])
    if len(groups) == 1 and (policy != "auto" or groups == (0,)):  # (it divides no first guesses)
        alone = min(simulate(p, p.all_on(d, "alone")).makespan for d in p.machine.indices)
        assert all(units)
        assert plan.makespan < 0.7 * alone
    assert simulate(p, plan).makespan == pytest.approx(plan.makespan)
    assert same_plan(Plan.from_json(plan.to_json()), plan)
    verify(plan, following(p, plan).graph, p.machine, following(p, plan))


def test_a_large_unit_stays_where_it_is_better(tmp_path: Path, place: PlanningTarget) -> None:
    p = asked(tmp_path, place, [with_version(CENTRED, [STEPS[0], *[STEPS[1]] * 9]) | {"global": 64}])
    assert p.estimates.launch(0, p.machine.indices[0]) > 0
    for name in ("mkmd_coarse", "repara"):
        policy = find(name)
        assert isinstance(policy, StaticPolicy)
        plan, units = planned(p, policy), ((0, 1),)
        assert plan is not None
        other = policy.plan(variant(p, units))
        assert (plan.in_units == units) == (other.makespan + p.handover < policy.plan(p).makespan)


def test_units_keep_what_the_launch_says_and_depend_as_they_touch(tmp_path: Path, place: PlanningTarget) -> None:
    p = asked(
        tmp_path,
        place,
        [with_version(BOTH, SCANS, **{"for": "cpu"}), with_version(CENTRED, STEPS, **{"for": "gpu"}), CENTRED],
    )
    graph = in_units(p.graph, ((0, 1), (1, 1)))
    assert [node.name.rpartition(".")[2] for node in graph.nodes[:4]] == ["one", "one", "one", "minus"]
    assert graph.origins == (0, 0, 1, 1, 2, 3)
    assert graph.predecessors[:5] == ((), (), (), (2,), (3,))
    assert [graph.nodes[n].device for n in (0, 2, 3)] == [
        Placement(only="cpu"),
        Placement(only="gpu"),
        Placement(only="gpu"),
    ]
    (own,) = graph.own
    assert graph.buffers[own].nbytes == 4
    assert own in graph.nodes[2].writes
    assert own in graph.nodes[3].reads
    back = replace(p, graph=replace(p.graph, origins=graph.origins))
    assert with_units(back, lambda q: Plan((), "", (), float(q is back))).makespan == 1.0, "its nodes are units already"


def centred(queue: Any, size: Any, local: Any, x: Any, y: Any, n: Any) -> None:
    t = queue.empty(1, np.int32)
    PROGRAM.one(queue, (1,), (1,), x, t, n)
    PROGRAM.minus(queue, size, local, x, t, y, n)


PROGRAM = mc.Program(SOURCE)


@pytest.fixture(params=["native/2", "native/2 own", "opencl/2"])
def queue(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[mc.Queue]:
    devices, _, own = request.param.partition(" ")
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0" if own else "1")
    with mc.Queue(devices) as queue:
        yield queue


def expected(x: Any) -> Any:
    return (len(x) * x.astype(np.int64) - 50 * x.sum(dtype=np.int64)).astype(np.int32)


@pytest.mark.parametrize("divided", [False, True])
def test_runs_in_units(queue: mc.Queue, divided: bool) -> None:
    n, kernel, given = 256, mc.Program(SOURCE).centred, np.arange(256, dtype=np.int32)
    kernel.add_sequence(centred, ("cpu", "gpu"))
    x, y, z = queue.array(given), queue.empty(n, np.int32), queue.empty(n, np.int32)
    with queue.prepare() as prepared:
        kernel(queue, (n,), (16,), x, y, n)
        kernel(queue, (n,), (16,), y, z, n)
    first, second = queue.session.machine.indices
    at = []
    for node, device in enumerate((first, second, second, first)):
        ranges = [(device, 0, 16)] if node % 2 == 0 or not divided else [(first, 0, 9), (second, 9, 7)]
        own = {"dimension": 0} if len(ranges) > 1 else {}
        at += [Assignment(node, d, 0, 0.0, 0.0, **own, first=f, groups=g if own else 0) for d, f, g in ranges]
    names = tuple([d.name for d in queue.session.machine.devices])
    plan = Plan(tuple(at), "by hand", names, 0.0, in_units=((0, 1), (1, 1)))
    for turn in range(4):
        x.set(given + turn)
        result = queue.session.run(prepared.graph, plan)
        assert (y.get() == expected(given + turn)).all()
        assert (z.get() == expected(expected(given + turn))).all()
        ran = [(e.kernel, e.device) for e in result.trace.kernels()]
        assert {("one", names[0]), ("one", names[1]), ("minus", names[0]), ("minus", names[1])} == {*ran}
        assert len(ran) == (6 if divided else 4)
        assert sorted(result.times) == [0, 1], "of the launches, whatever their units"
