"""The engine waits only for what will come: a run that has come to a stand ends, says so, and leaves data alone."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

import manycl as mc
from manycl.errors import RunError
from manycl.graph.dependences import GraphBuilder
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.commands.backend import Done, Evict, HostCall, Report, Run
from manycl.run.data.coherence import Directory
from manycl.run.engine.engine import Liveness, execute
from manycl.run.engine.playback import Playback
from manycl.run.simulation.simulator import SimBackend
from tests.run.chaos.chaos import ChaosBackend
from tests.run.chaos.chaos_parts import download, upload
from tests.run.chaos.test_state import Unit, launch, machine

COUNT = 1 << 15  # ints: a third of the device's memory
PROGRAM = mc.Program("""
kernel void three(global const int *a, global const int *b, global int *c) {
    int i = get_global_id(0);
    c[i] = a[i] - b[i];
}
kernel void four(global const int *a, global const int *b, global const int *c, global int *d, int n) {
    int i = get_global_id(0);
    d[i] = a[i] + b[i] - c[(i * 5) % n];
}
""")


class _Held:
    def held_up(self) -> str:
        return "node 1 is held up"


def test_only_what_is_reported_is_waited_for() -> None:
    awaited, held = Liveness(), cast("Playback", _Held())
    awaited.issued([Run(0, 0, 0, (), False), upload(3, 0, 0, (), False), Evict(0, 1)])
    with pytest.raises(RunError, match=r"nothing is under way. node 1 is held up"):
        awaited.check(held)
    awaited.issued([Run(1, 0, 0, (), True), HostCall(2), download(4, 0, 0, (), True)])
    for token in (1, 2, 4):
        awaited.check(held)
        awaited.heard([Done(token, 0.0)])
    with pytest.raises(RunError):
        awaited.check(held)


class _Deaf(Playback):
    """Forgets that queues wait."""

    def handle(self, *reports: Report) -> Any:
        commands = super().handle(*reports)
        return [c for c in commands if not isinstance(c, Run)]


@pytest.mark.parametrize("kind", [ChaosBackend, SimBackend])
def test_a_stand_is_an_error_on_every_back_end(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manycl.run.engine.setup.Playback", _Deaf)
    builder = GraphBuilder()
    a, b, c = (builder.buffer(4, name) for name in "abc")
    builder.add(launch("first", (a,), (b,)))
    builder.add(launch("second", (b,), (c,)))
    where = machine([1, 2])
    plan = Plan(tuple(Assignment(n, n, 0, 0.0, 0.0) for n in range(2)), "given", ("d0", "d1"), 0.0)
    directory = Directory()
    directory.define(a)
    graph = builder.build()
    backend = kind(where, 0) if kind is ChaosBackend else kind(where, Unit())
    with pytest.raises(RunError, match="itself is at fault"):
        execute(Problem(graph, where, Unit(), (1, 1)), plan, backend, directory)
    directory.validate(3)
    assert directory.valid[a] & 1
    assert c not in directory.valid


def little(monkeypatch: pytest.MonkeyPatch, policy: str) -> mc.Queue:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setenv("MANYCL_DEVICE_MEMORY", str(3 * 4 * COUNT + 4096))
    return mc.Queue("cpu/2", policy=policy)


@pytest.mark.parametrize("policy", ["eager", "heft", "clustering"])
def test_what_fits_nowhere_whole_runs_in_ranges_also_where_a_policy_decides_while_it_runs(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with little(monkeypatch, policy) as queue:
        want = [np.arange(COUNT, dtype=np.int32) * k for k in range(4)]
        arrays = [queue.array(x) for x in want]
        for _ in range(2):
            PROGRAM.three(queue, (COUNT,), (64,), *arrays[1:])
            PROGRAM.four(queue, (COUNT,), (64,), *arrays, COUNT)
            want[3] = want[0] + want[1] - want[2][(np.arange(COUNT) * 5) % COUNT]
            queue.finish()
            assert len(queue.result.ranges(1)) > 1
        assert (arrays[3].get() == want[3]).all()
