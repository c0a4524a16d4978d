"""Packets that are begun anew on other devices, under chaos: nearly all that can be are, whatever it costs, while
devices leave, come, become slower and are lost. The result is the sequential one, or the run says what it has lost."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Graph, HostTask, Launch
from manycl.machine import HOST, DeviceIndex, Machine
from manycl.plan.plan import Assignment, Plan
from manycl.run.engine.engine import RunFailure
from manycl.run.lowering.steps import DROPPED
from manycl.run.stealing.worker import Packet
from manycl.trace import KernelEvent
from tests.run.chaos import losses, transitions
from tests.run.chaos.chaos import ChaosBackend
from tests.run.chaos.chaos_parts import Faults
from tests.run.chaos.losses import Loss
from tests.run.chaos.test_divided_chaos import GROUP, ITEMS, NBYTES, launch, plans, small_chunks, within
from tests.run.chaos.test_moving_chaos import StolenAnyhow
from tests.run.chaos.test_state import machine
from tests.run.chaos.transitions import validated

__all__ = ["small_chunks", "validated"]  # fixtures of the module

EXAMPLES = int(os.environ.get("MANYCL_TEST_INTERLEAVINGS", "30"))
"""Of each kind."""
OFTEN = ["map", "stencil", "reversed", "columns", "maybe"] * 2 + ["change", "scatter", "count", "part"]
GROUPS = ITEMS // GROUP
SEEN: Counter[str] = Counter()


class Restarting(StolenAnyhow):
    """Whatever an idle device can begin anew, it does, but for one in eight."""

    def restart(self, device: DeviceIndex, now: float, may: Any) -> tuple[float, Packet] | None:
        thief = self.workers[device]
        if not thief.is_idle or self._random.random() < 0.125:
            return None
        given = [p for w in self.workers.values() if w is not thief for p, _, _ in w.given]
        packets = [p for p in given if p.last - p.first > p.again + 1 and not self.workers[p.device].shortens]
        packets = [p for p in packets if may(p)]
        return (now, self._random.choice(packets)) if packets else None

    def _end_of_packet(self, member: Any, first: int, end: int, now: float) -> int:
        """Packets of several chunks."""
        return min(end, super()._end_of_packet(member, first, end, now) + self._random.randint(0, 2))


@st.composite
def graphs(draw: Any) -> Graph:
    builder = GraphBuilder()
    buffers = [builder.buffer(NBYTES, f"b{i}") for i in range(draw(st.integers(3, 5)))]
    for i in range(draw(st.integers(1, 7))):
        keys = draw(st.permutations(buffers))
        kind = draw(st.integers(0, 11))
        if kind == 0:
            builder.add(HostTask(f"h{i}", print, (), tuple(keys[:2]), tuple(keys[1:2])))
        elif kind == 1:
            builder.add(draw(within(*keys[:2])))
        else:
            builder.add(launch(draw(st.sampled_from(OFTEN)), keys))
    return builder.build()


@st.composite
def machines(draw: Any, domains: bool) -> Machine:
    """Devices with memories of their own, and often one or two in the host's."""
    own = draw(st.integers(1, 3))
    memories = draw(st.permutations([*range(1, own + 1), *[HOST] * draw(st.integers(own < 2, 2))]))
    order = {m: n for n, m in enumerate(sorted({HOST, *memories}))}
    pairs = [(a, b) for a in range(1, own + 1) for b in range(1, own + 1) if a != b]
    found = machine([order[m] for m in memories], draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else ())
    domain = draw(st.sampled_from(["", "a"])) if domains else ""
    devices = (replace(d, shortens=draw(st.booleans()), event_domain=domain) for d in found.devices)
    return replace(found, devices=tuple(devices))


@st.composite
def shares(draw: Any, graph: Graph, where: Machine) -> Plan:
    """Shares of all launches that can be divided, which move from the start."""
    plan: Plan = draw(plans(graph, where))
    can = [n for n, task in enumerate(graph.nodes) if isinstance(task, Launch) and task.name != "part"]
    out = [a for a in plan.assignments if a.node not in can]
    for n in can:
        places = draw(st.permutations(range(len(where.devices))))
        cuts = sorted(draw(st.sets(st.integers(1, GROUPS - 1), max_size=len(places) - 1)))
        queue = draw(st.integers(0, 1))
        for d, low, high in zip(places, [0, *cuts], [*cuts, GROUPS], strict=False):
            out.append(Assignment(n, DeviceIndex(d), queue, 0.0, 0.0, 0, low, high - low))
    in_turn = tuple(n for n in can if draw(st.integers(0, 3)) == 0)
    return replace(plan, assignments=tuple(sorted(out)), movable=tuple(can), in_turn=in_turn)


@pytest.fixture(scope="module", autouse=True)
def restarting() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losses, "StolenAnyhow", Restarting)
        yield


KINDS = ["undisturbed", "devices leave and come", "devices are lost"]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=EXAMPLES)
@given(data=st.data(), graph=graphs(), seed=st.integers(0, 2**32))
def test_packets_that_are_begun_anew_change_no_result(kind: str, data: Any, graph: Graph, seed: int) -> None:
    are_lost = kind == "devices are lost"
    where = data.draw(machines(domains=not are_lost))
    loss = Loss(data, graph, where, defined=are_lost)
    loss.anyhow = data.draw(st.integers(0, 7)) > 0
    count, faults = len(where.devices), Faults()
    if are_lost:
        dying = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=max(1, count - 1)))
        faults = Faults(
            dies={d: data.draw(st.integers(0, 60)) for d in dying},
            drains=data.draw(st.booleans()),
            goes_on=data.draw(st.booleans()),
            exact=data.draw(st.booleans()),
        )
    happening = loss.happening(data, data.draw(st.integers(1, 4))) if kind != KINDS[0] else []
    backend = ChaosBackend(where, seed, faults=faults, happening=happening)
    before = len(transitions.DROPPED)
    said = ""
    try:
        result = loss.run(data.draw(shares(graph, where)), backend)
    except RunFailure as error:
        said = str(error)
    else:
        SEEN[kind, bool(result.lost)] += len(transitions.DROPPED) - before
        assert result.playback is not None
        assert result.playback.complete == len(result.playback.graph)
        told = [e for e in result.trace.events if isinstance(e, KernelEvent) and e.role == DROPPED]
        assert len(told) <= len(transitions.DROPPED) - before
    if said:
        assert are_lost
        assert happening or "it cannot go on without: " in said


def test_many_were_begun_anew() -> None:
    """What precedes has seen them, also in runs that have lost devices."""
    if len(SEEN) > 3:
        assert sum(SEEN.values()) > 0, SEEN
        assert (SEEN[KINDS[0], False] > EXAMPLES / 8 and SEEN[KINDS[2], True] > 0) or EXAMPLES < 300, SEEN
