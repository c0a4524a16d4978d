"""The judge of command graphs: each edge that a small command graph has is needed, and each fault is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.graph.graph import Graph
from manycl.machine import Machine
from manycl.plan.plan import ON_HOST
from manycl.plan.problem import Problem
from manycl.plan.splitting import Splits
from manycl.run.commands.backend import Copy, HostCall, Run
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.commands.compiler import compiled
from manycl.run.commands.transfers import Subject
from manycl.run.data.coherence import Directory
from manycl.run.lowering.lower import lower
from tests.run.chaos.test_divided_chaos import graphs, plans
from tests.run.chaos.test_state import Unit, machines
from tests.run.commands.test_command_graph import WHERE, command_graph_of, defined, handed_on
from tests.run.commands.verify_commands import CommandGraphError, verify_commands


def small() -> CommandGraph:
    graph, _ = handed_on()
    return command_graph_of(graph, [0, 1, ON_HOST], defined(graph))


def without_one_edge(command_graph: CommandGraph) -> Iterator[CommandGraph]:
    """Command graphs that wait for one thing less."""
    for edges in ("hears", "frees"):
        for before, freed in getattr(command_graph, edges).items():
            for i in freed:
                if (
                    edges == "hears"
                    and before < len(command_graph.lowered.graph)
                    and isinstance(command_graph.commands[i], HostCall)
                ):
                    continue  # a function also hears of what made its data, lest that has failed
                left = {**getattr(command_graph, edges), before: [j for j in freed if j != i]}
                waits = {**command_graph.waits, i: command_graph.waits[i] - 1}
                changes: dict[str, Any] = {edges: left, "waits": {j: n for j, n in waits.items() if n}}
                yield replace(command_graph, **changes)


def test_a_command_graph_that_waits_for_less_is_wrong() -> None:
    command_graph = small()
    verify_commands(command_graph)
    found = list(without_one_edge(command_graph))
    assert len(found) >= 4
    for broken in found:
        with pytest.raises(CommandGraphError):
            verify_commands(broken)


def test_a_launch_that_runs_beside_what_it_reads_is_wrong() -> None:
    """In a queue, where its order alone has one come after the other."""
    graph, _ = handed_on()
    command_graph = command_graph_of(graph, [0, 0, ON_HOST], defined(graph))
    verify_commands(command_graph)
    first, second = (i for i, c in enumerate(command_graph.commands) if isinstance(c, Run))
    beside = [c._replace(beside=i == second) if isinstance(c, Run) else c for i, c in enumerate(command_graph.commands)]
    assert first < second
    with pytest.raises(CommandGraphError):
        verify_commands(replace(command_graph, commands=tuple(beside)))


def test_a_command_graph_without_a_transfer_is_wrong() -> None:
    command_graph = small()
    for i, command in enumerate(command_graph.commands):
        if isinstance(command, Copy) and not command_graph.waits:
            rest = (*command_graph.commands[:i], *command_graph.commands[i + 1 :])
            with pytest.raises(CommandGraphError, match="not valid"):
                verify_commands(replace(command_graph, commands=rest))


def test_what_is_said_of_the_end_is_true() -> None:
    command_graph = small()
    for key, mask in command_graph.leaves.items():
        with pytest.raises(CommandGraphError, match="at the end"):
            verify_commands(
                replace(command_graph, leaves={**command_graph.leaves, key: mask ^ (1 << WHERE.memories) - 1})
            )
    written = {key for task in command_graph.lowered.graph.nodes for key in task.writes}
    for key in written:
        with pytest.raises(CommandGraphError, match="nothing is said"):
            verify_commands(replace(command_graph, leaves={k: m for k, m in command_graph.leaves.items() if k != key}))


@settings(max_examples=100)
@given(st.data(), graphs(), machines())
def test_what_the_compiler_makes_is_right(data: Any, graph: Graph, where: Machine) -> None:
    """From contents in any memories, of divided launches too."""
    directory = Directory()
    for key in graph.buffers:
        if data.draw(st.integers(0, 3)):
            homes = data.draw(st.sets(st.integers(0, where.memories - 1), min_size=1))
            directory.define(key, min(homes))
            for m in homes:
                directory.copied(key, m)
    plan = data.draw(plans(graph, where))
    problem = Problem(graph, where, Unit(), tuple(2 for _ in where.devices), splits=Splits(graph))
    lowered = lower(problem, plan, directory)
    directory.open(lowered.cut, lowered.lies)
    command_graph = compiled(Subject(problem, lowered, directory.valid), plan)
    verify_commands(command_graph)
    assert command_graph.fits(directory)
