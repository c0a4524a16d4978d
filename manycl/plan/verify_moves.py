"""Judging a plan with ranges or moves: every byte that is read was moved there in time, in the version that is due."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from manycl.machine import HOST
from manycl.plan.contents import INITIAL, Contents, Need
from manycl.plan.plan import MERGE, WHOLE, Move, Plan
from manycl.plan.problem import Problem

SLACK = 1e-9
"""Two times are equal when they differ by no more than this part of the makespan (sums of floats are not exact)."""


def check_data(plan: Plan, problem: Problem) -> Iterator[str]:
    """All faults of a plan's moves, and of what its assignments find in their memories."""
    faults = list(check_moves(plan, problem))
    if not faults:
        contents = Contents(plan, problem)
        faults = [
            *check_merges(plan, problem, contents),
            *check_inputs(plan, problem, contents),
            *check_sources(plan, contents),
        ]
    yield from faults


def slack_of(plan: Plan) -> float:
    """Seconds by which two times of a plan may differ and be equal."""
    return SLACK * max(abs(plan.makespan), max((abs(a.end) for a in plan.assignments), default=0.0))


def check_moves(plan: Plan, problem: Problem) -> Iterator[str]:
    """Every move is within a buffer, to or from the host on a queue of its own, and takes the time it takes; a
    transfer queue performs one after another, in the order of the plan."""
    slack, graph, machine = slack_of(plan), problem.graph, problem.machine
    lanes: dict[tuple[int, bool], list[tuple[int, Move]]] = {}
    for j, m in enumerate(plan.moves):
        size = graph.buffers[m.buffer].nbytes if m.buffer in graph.buffers else -1
        if not 0 <= m.low < m.high <= size or not INITIAL <= m.writer < len(graph):
            yield f"move {j} is of bytes {m.low} to {m.high} of buffer {m.buffer} by node {m.writer}"
            continue
        if not 0 <= m.device < len(machine.devices):
            yield f"move {j} is on the queue of device {m.device}"
            continue
        own = machine.devices[m.device].memory
        if own == HOST or {m.source, m.target} != {HOST, own}:
            yield f"move {j} goes from memory {m.source} to {m.target} on a queue of {plan.devices[m.device]}"
            continue
        least = problem.estimates.transfer(m.nbytes, m.source, m.target)
        if m.end - m.start < least - slack:
            yield f"move {j} takes {m.end - m.start} s, but is estimated at {least} s"
        if m.start < problem.not_before - slack:
            yield f"move {j} starts at {m.start}, before {problem.not_before}"
        lanes.setdefault((m.device, m.target == HOST), []).append((j, m))
    for (device, down), members in lanes.items():
        for (i, first), (j, second) in pairwise(members):
            if second.start < first.end - slack:
                queue = f"the {'download' if down else 'upload'} queue of {plan.devices[device]}"
                yield f"on {queue} move {j} starts before move {i} ends"


def check_merges(plan: Plan, problem: Problem, contents: Contents) -> Iterator[str]:
    """A node whose partial results lie in several memories is merged once, after all of them; others are not."""
    slack = slack_of(plan)
    for node in range(len(problem.graph)):
        members = [plan.assignments[i] for i in contents.members(node)]
        merges = [a for a in members if a.dimension == MERGE]
        parts = [a for a in members if a.dimension not in (MERGE, WHOLE)]
        if not parts and not merges:
            continue
        split = problem.splits[node]
        split.check(problem.graph.nodes[node].reads, problem.graph.nodes[node].writes)
        memories = {contents.memory(a) for a in parts}
        due = 1 if split.merge != "none" and len(memories) > 1 else 0
        if len(merges) != due:
            yield f"node {node} is merged {len(merges)} times, not {due}"
            continue
        for a in merges:
            others = len(memories - {contents.memory(a)})
            if contents.memory(a) not in memories:
                yield f"node {node} is merged on {plan.devices[a.device]}, where no part of it ran"
            if a.start < max(b.end for b in parts) - slack:
                yield f"node {node} is merged before all of it has run"
            least = problem.merge_seconds(node, a.device, others)
            if a.end - a.start < least - slack:
                yield f"the merge of node {node} takes {a.end - a.start} s, but is estimated at {least} s"


def check_inputs(plan: Plan, problem: Problem, contents: Contents) -> Iterator[str]:
    """Before an assignment starts, all that it touches has arrived in its memory."""
    slack, fixed = slack_of(plan), set(problem.fixed)
    for i, a in enumerate(plan.assignments):
        if a not in fixed:
            yield from _late(plan, contents.needs(i), a.start, f"node {a.node}", slack)


def check_sources(plan: Plan, contents: Contents) -> Iterator[str]:
    """What is moved is there when the move starts, and nothing overwrites it before the move ends."""
    slack = slack_of(plan)
    for j, m in enumerate(plan.moves):
        yield from _late(plan, contents.sources(j), m.start, f"move {j}", slack)
        for i in contents.overwriters(j):
            if plan.assignments[i].start < m.end - slack:
                yield f"move {j} ends after node {plan.assignments[i].node} began to overwrite what it moves"


def _late(plan: Plan, needs: Iterator[Need], start: float, what: str, slack: float) -> Iterator[str]:
    base = len(plan.assignments)
    for need in needs:
        where = f"bytes {need.low} to {need.high} of buffer {need.buffer}"
        if need.missing:
            yield f"{what} needs {where} as node {need.writer} leaves them, but nothing brings them"
        for i in need.bringers:
            end = plan.assignments[i].end if i < base else plan.moves[i - base].end
            if start < end - slack:
                yield f"{what} starts before {where} of node {need.writer} can have arrived"
