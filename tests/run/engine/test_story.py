"""What is told of single instructions: of simulated runs, whose times are known, and of real ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import manycl as mc
from manycl.errors import ManyclError
from manycl.graph.graph import Graph
from manycl.plan.policy import find
from manycl.run.commands.backend import Command, Evict, Report
from manycl.run.data.coherence import Directory
from manycl.run.engine.engine import RunFailure, execute
from manycl.run.engine.explain import node_of
from manycl.run.engine.observers import Observer
from manycl.run.engine.playback import Playback, State
from manycl.run.simulation.disturbance import Disturbance
from manycl.run.simulation.simulator import SimBackend
from tests.run.chaos.test_state import Unit, launch
from tests.run.engine.test_engine import PLAN, WHERE, handed_on

READS = """\
kernel reads (node 1) on d1, queue 0: done, 3000.000 ms to 4000.000 ms
  waited (device) for upload of buffer 0 (4 bytes), d1, 2000.000 ms to 3000.000 ms
    waited (report) for download of buffer 0 (4 bytes), d0, 1000.000 ms to 2000.000 ms
      waited (device) for kernel makes (node 0) on d0, queue 0, 0.000 ms to 1000.000 ms"""
LOOKS = """\
host function looks (node 2): done, 5000.000 ms to 5000.000 ms
  waited (report) for kernel reads (node 1) on d1, queue 0, 3000.000 ms to 4000.000 ms
  waited (report) for download of buffer 1 (4 bytes), d1, 4000.000 ms to 5000.000 ms (the last to end)
    waited (device) for kernel reads (node 1) on d1, queue 0, 3000.000 ms to 4000.000 ms"""


class States(Observer):
    """Looks at every instruction whenever something happens: how often each has been in each state."""

    def __init__(self) -> None:
        self.seen: dict[int, list[State]] = {}

    def _look(self, playback: Playback) -> None:
        for command in playback.written().commands:
            if not isinstance(command, Evict):
                states = self.seen.setdefault(command.token, [])
                now = playback.state(command.token)
                if not states or states[-1] is not now:
                    states.append(now)

    def begun(self, playback: Playback, name: str, now: float) -> None:
        self._look(playback)

    def issued(self, playback: Playback, commands: Sequence[Command], now: float) -> None:
        assert all(playback.state(c.token) is not State.HELD for c in commands if not isinstance(c, Evict))
        self._look(playback)

    def heard(self, playback: Playback, reports: Sequence[Report], now: float) -> None:
        self._look(playback)

    def advanced(self, playback: Playback, now: float) -> None:
        self._look(playback)

    def ended(self, playback: Playback, now: float) -> None:
        self._look(playback)


def test_what_something_waited_for_and_which_of_that_was_the_last() -> None:
    result = execute(handed_on(), PLAN, SimBackend(WHERE, Unit()), Directory())
    assert result.story("looks") == result.story(2) == LOOKS
    assert result.story("reads") == READS
    with pytest.raises(ManyclError, match="no node is called 'none'"):
        result.story("none")
    with pytest.raises(ManyclError, match="no node 3; the graph has 3"):
        result.story(3)
    with pytest.raises(ManyclError, match="2 nodes are called 'twice'"):
        node_of(Graph((launch("twice", (), ()), launch("twice", (), ())), {}, ((), ())), "twice")


@pytest.mark.parametrize("policy", ["eager", "heft", "in_order"])
def test_every_instruction_is_held_or_issued_and_then_done(policy: str) -> None:
    problem, states = handed_on(), States()
    execute(problem, find(policy), SimBackend(WHERE, Unit()), Directory(), observers=[states])
    assert {tuple(seen) for seen in states.seen.values()} <= {
        (State.HELD, State.ISSUED, State.DONE),
        (State.ISSUED, State.DONE),
        (State.HELD, State.DONE),  # nobody heard of it alone
        (State.DONE,),
    }
    assert {seen[-1] for seen in states.seen.values()} == {State.DONE}


def test_what_a_failure_leaves_is_cancelled() -> None:
    states = States()
    broken = SimBackend(WHERE, Unit(), disturbance=Disturbance(failing={1: "worn out"}))
    with pytest.raises(RunFailure):
        execute(handed_on(), PLAN, broken, Directory(), observers=[states])
    last = {token: seen[-1] for token, seen in states.seen.items()}
    assert (last[0], last[1], last[2]) == (State.DONE, State.ISSUED, State.CANCELLED)


def test_ranges_and_transfers_of_a_real_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    program = mc.Program("kernel void up(global int *x) { x[get_global_id(0)] += 1; }")
    with mc.Queue("cpu/2#0,cpu/2#1", policy="balance") as queue:
        x = queue.array(np.zeros(1 << 20, np.int32))
        program.up(queue, (1 << 20,), (64,), x)
        queue.finish()
        told = queue.result.story("up").splitlines()
    kernels = [line for line in told if line.startswith("kernel up (node 0")]
    assert kernels
    assert all(": done, " in line for line in kernels)
    if len(kernels) == 2:
        assert all("work-groups" in line for line in kernels)
    assert any("for upload of " in line for line in told)
