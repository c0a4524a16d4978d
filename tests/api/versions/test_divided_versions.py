"""Launches with several versions on two real devices, one of which is made to count as a GPU: divided, each device with
its own version, they give what NumPy gives; what does not correspond is not divided."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.errors import PolicyError
from manycl.graph.graph import Launch
from manycl.model.estimates import Estimates
from manycl.model.history.history import identity, kernel_key
from manycl.model.occupancy import LaunchRange
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policy import find
from manycl.plan.splitting import split_of
from manycl.plan.verification.verify import verify
from manycl.run.session import session as session_module

N, GROUP = 256, 16
GROUPS = N // GROUP
SOURCE = """
kernel void affine(global const int *x, global int *y, int a, int b) {
  int i = get_global_id(0); y[i] = a * x[i] + b; }
kernel void fours(global const int *x, global int *y, int a, int b) {
  for (int i = 4 * get_global_id(0); i < 4 * get_global_id(0) + 4; i++) y[i] = a * x[i] + b; }
kernel void backwards(global const int *x, global int *y, int a, int b) {
  int i = get_global_size(0) - 1 - get_global_id(0); y[i] = a * x[i] + b; }
kernel void offset(global const int *x, global int *y, int a, int b) {
  int i = get_global_id(0) - get_global_offset(0); y[i] = a * x[i] + b; }
kernel void count(global const int *x, global int *y) { atomic_inc(&y[x[get_global_id(0)] & 7]); }
kernel void count_other(global const int *x, global int *y) {
  atomic_inc(&y[x[get_global_size(0) - 1 - get_global_id(0)] & 7]); }
"""
REFUSED = """int nowhere(int x);
kernel void affine(global const int *x, global int *y, int a, int b) {
  int i = get_global_id(0); y[i] = nowhere(a * x[i] + b); }
"""
PROGRAM = mc.Program(SOURCE)


@pytest.fixture(scope="module", params=["shared", "own"])
def kinds(request: pytest.FixtureRequest) -> Iterator[mc.Queue]:
    """``native/2`` is a CPU and what counts as a GPU, in one memory or with memories of their own."""
    real = session_module.opener(False)

    def opened(selection: Any) -> Any:
        machine, handles = real(selection)
        first, second = machine.devices
        return dataclasses.replace(machine, devices=(first, dataclasses.replace(second, kind="gpu"))), handles

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_module, "opener", lambda serve: opened)
        patch.setenv("MANYCL_ZERO_COPY", "1" if request.param == "shared" else "0")
        with mc.Queue("native/2", policy="balance") as queue:
            yield queue


def with_version(other: str, ndrange: Any = None, own: str = "affine") -> Any:
    kernel = mc.Program(SOURCE).kernel(own)
    kernel.add_version(PROGRAM.kernel(other), "gpu", ndrange=ndrange)
    return kernel


def quarter(size: Any, local: Any) -> Any:
    return (size[0] // 4,), (GROUP // 4,)


def launch_of(queue: mc.Queue, kernel: Any, *args: Any) -> tuple[mc.Prepared, Launch]:
    with queue.prepare() as prepared:
        kernel(queue, (N,), (GROUP,), *args)
    (task,) = prepared.graph.nodes
    assert isinstance(task, Launch)
    return prepared, task


def by_hand(queue: mc.Queue, pieces: list[tuple[int, int, int]]) -> Plan:
    """``pieces``: device, first group, version."""
    firsts = [first for _, first, _ in pieces]
    return Plan(
        tuple(
            Assignment(0, device, 0, 0.0, 0.0, 0, first, end - first, version)
            for (device, first, version), end in zip(pieces, [*firsts[1:], GROUPS], strict=True)
        ),
        "by hand",
        queue.devices,
        0.0,
    )


@settings(max_examples=25)
@given(cuts=st.sets(st.integers(1, GROUPS - 1), max_size=4), data=st.data())
def test_each_range_runs_the_version_of_its_device(kinds: mc.Queue, cuts: set[int], data: Any) -> None:
    kernel = with_version("fours", quarter)
    x = np.arange(N, dtype=np.int32)
    given_, y = kinds.array(x), kinds.zeros(N, np.int32)
    prepared, _ = launch_of(kinds, kernel, given_, y, 3, 7)
    places = [data.draw(st.sampled_from([(0, 0), (1, 0), (1, 1)])) for _ in range(len(cuts) + 1)]
    pieces = [(device, first, version) for first, (device, version) in zip([0, *sorted(cuts)], places, strict=True)]
    result = kinds.session.run(prepared.graph, by_hand(kinds, pieces))
    assert (y.get() == 3 * x + 7).all()
    assert {(m.device, m.step.first, m.step.version) for m in result.ranges(0)} == set(pieces)
    kernels = {(e.first, e.kernel) for e in result.trace.kernels()}
    assert kernels == {(first, ("affine", "fours")[version]) for _, first, version in pieces}


class Measured(Estimates):
    """Times with which dividing pays: of the GPU's version on the GPU, a half more."""

    def __init__(self, known: Estimates) -> None:
        self.known = known

    def launch(self, node: int, device: int) -> float:
        return (1.0, 1.5)[device]

    def transfer(self, nbytes: float, source: int, target: int) -> float:
        return 1e-12 * nbytes

    def version(self, node: int, device: int) -> int:
        return device  # whatever has been measured meanwhile


@pytest.mark.parametrize("policy", ["balance", "mkmd", "repara", "adaptive", "auto"])
def test_policies_divide_them(kinds: mc.Queue, policy: str) -> None:
    """With the version of each device, and the plan is one that its judge takes, and gives the result."""
    kernel = with_version("fours", quarter)
    x = np.arange(N, dtype=np.int32)
    y = kinds.zeros(N, np.int32)
    prepared, task = launch_of(kinds, kernel, kinds.array(x), y, -2, 5)
    assert task.versions[1].kinds == ("gpu",)
    problem = kinds.session.problem(prepared.graph)
    problem = dataclasses.replace(problem, estimates=Measured(problem.estimates))
    split = problem.splits[0]
    assert (split.dimension, split.groups, split.merge) == (0, GROUPS, "none")
    plan = find(policy).plan(problem)
    verify(plan, problem.graph, problem.machine, problem=problem)
    ranges = [a for a in plan.assignments if a.is_range]
    assert {(a.device, a.version) for a in ranges} == ({(0, 0), (1, 1)} if ranges else set())
    assert ranges or policy in ("adaptive", "auto"), "it divides what gains so much"
    kinds.session.run(prepared.graph, plan)
    assert (y.get() == -2 * x + 5).all()


@pytest.mark.parametrize(
    ("other", "own", "why"),
    [
        ("backwards", "affine", "do not touch the same in each of affine, backwards .argument y"),
        ("count_other", "count", "has to be merged"),
    ],
)
def test_versions_whose_ranges_differ_are_not_divided(kinds: mc.Queue, other: str, own: str, why: str) -> None:
    kernel = with_version(other, own=own)
    x = np.arange(N, dtype=np.int32)
    y = kinds.zeros(N, np.int32)
    prepared, task = launch_of(kinds, kernel, kinds.array(x), y, *((3, 7) if own == "affine" else ()))
    sizes = {key: b.nbytes for key, b in prepared.graph.buffers.items()}
    found = split_of(task, sizes)
    assert isinstance(found, str)
    assert re.search(why, found), found
    with pytest.raises(PolicyError, match=r"between versions|cannot be divided"):
        kinds.session.run(prepared.graph, by_hand(kinds, [(0, 0, 0), (1, GROUPS // 2, 1)]))
    prepared.run()
    expected = 3 * x + 7 if own == "affine" else np.bincount(x & 7, minlength=N)
    assert (y.get() == expected).all()
    assert not isinstance(split_of(task, sizes, ("cpu",)), str), "no GPU: its version does not matter"


def test_ranges_in_one_version_are_divided_whatever_the_others_do(kinds: mc.Queue) -> None:
    kernel = with_version("backwards")
    x = np.arange(N, dtype=np.int32)
    for version in (0, 1):
        y = kinds.zeros(N, np.int32)
        prepared, _ = launch_of(kinds, kernel, kinds.array(x), y, 3, 7)
        kinds.session.run(prepared.graph, by_hand(kinds, [(1, 0, version), (1, 5, version), (1, 9, version)]))
        assert (y.get() == 3 * x + 7).all()


def test_versions_that_a_device_may_not_run_are_refused(kinds: mc.Queue) -> None:
    prepared, _ = launch_of(
        kinds, with_version("fours", quarter), kinds.zeros(N, np.int32), kinds.zeros(N, np.int32), 1, 1
    )
    for pieces in ([(0, 0, 1), (1, 8, 1)], [(0, 0, 2), (1, 8, 0)], [(0, 0, -1), (1, 8, 0)]):
        with pytest.raises(PolicyError, match="which is not one for"):
            kinds.session.run(prepared.graph, by_hand(kinds, pieces))


def test_other_numbers_of_groups_do_not_correspond(kinds: mc.Queue) -> None:
    kernel = with_version("fours", lambda size, local: ((size[0] // 4,), local))
    x = np.arange(N, dtype=np.int32)
    y = kinds.zeros(N, np.int32)
    prepared, task = launch_of(kinds, kernel, kinds.array(x), y, 1, 1)
    found = split_of(task, {key: b.nbytes for key, b in prepared.graph.buffers.items()})
    assert found == f"its versions have different numbers of work-groups ({GROUPS // 4}, {GROUPS})"
    prepared.run()
    assert (y.get() == x + 1).all()


def test_models_learn_ranges_of_each_version(kinds: mc.Queue) -> None:
    kernel = with_version("fours", quarter)
    y = kinds.zeros(N, np.int32)
    prepared, task = launch_of(kinds, kernel, kinds.zeros(N, np.int32), y, 2, 1)
    session = kinds.session
    session.models.forget()
    names = [identity(d) for d in session.machine.devices]
    pairs = list(itertools.product(map(kernel_key, task.versions), names))
    for run in range(2):
        session.run(prepared.graph, by_hand(kinds, [(0, 0, 0), (1, 8, 1)]))
        session.devices.learn()
        known = [session.models.history.on(key, name) for key, name in pairs]
        assert [k is not None and any(s.range for s in k.series) for k in known] == [run > 0, False, False, run > 0]
    assert [k is not None for k in known] == [True, False, False, True]
    for found, items, where in (
        (known[0], N, LaunchRange(0, 8, GROUPS)),
        (known[3], N // 4, LaunchRange(8, 8, GROUPS)),
    ):
        assert found is not None
        # as a launch of its own, and as a part of the one that it is a range of
        assert {(s.global_size, s.range) for s in found.series} == {((items // 2,), None), ((items,), where)}
