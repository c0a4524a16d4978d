"""All that a run will use is built before time starts, where it will be used, and not again for the same run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.errors import SourceError
from manycl.graph.graph import BufferArg, Graph, HostTask, Launch, Version
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.run.building import Builder
from manycl.run.steps import Lowered, Step

PROGRAMS = [ProgramFacts(text, (), {name: KernelFacts(name, 1, ()) for name in "ab"}) for text in ("one", "other")]


class Programs:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.built: list[tuple[str, int]] = []
        self.kernels: set[tuple[str, str, int]] = set()
        self.versions: set[tuple[str, int]] = set()

    def build(self, programs: Iterable[ProgramFacts], devices: Iterable[int]) -> None:
        wanted = list(programs)
        self.built += [(p.source, d) for d in devices for p in wanted]

    def kernel(self, program: ProgramFacts, name: str, device: int) -> None:
        self.kernels.add((program.source, name, device))

    def version(self, launch: Launch, device: int) -> None:
        self.versions.add((launch.name, device))
        raise SourceError("none of them compiles")


@st.composite
def graphs(draw: Any) -> Graph:
    nodes: list[Launch | HostTask] = []
    for i in range(draw(st.integers(1, 6))):
        program, name = draw(st.sampled_from(PROGRAMS)), draw(st.sampled_from("ab"))
        several = (Version(program, program.kernels[name], (4,), None),) if draw(st.integers(0, 3)) == 0 else ()
        task = Launch(f"n{i}", program, program.kernels[name], (4,), None, (BufferArg(0),), (), (), versions=several)
        nodes.append(HostTask(f"h{i}", print, (), (), ()) if draw(st.integers(0, 4)) == 0 else task)
    return Graph(tuple(nodes), {}, ((),) * len(nodes))


@given(graphs(), st.lists(st.integers(0, 2), min_size=3, max_size=3), st.booleans(), st.booleans(), st.data())
def test_kernels_are_built_where_they_run(
    graph: Graph, queues: list[int], planned: bool, stepwise: bool, data: Any
) -> None:
    """Where a plan says so, of its steps; else on all devices that are used."""
    devices = [d for d, n in enumerate(queues) if n]
    assigned = []
    for node, task in enumerate(graph.nodes):
        device = ON_HOST if isinstance(task, HostTask) else data.draw(st.integers(0, 2))
        assigned.append(Assignment(node, device, 0, 0.0, 0.0))
    plan = Plan(tuple(assigned), "p", ("a", "b", "c"), 0.0) if planned else None
    lowered = Lowered(graph, plan, tuple(Step(n) for n in range(len(graph))) if stepwise else ())
    places: list[tuple[Launch, int]] = []
    for a in assigned:
        task = graph.nodes[a.node]
        if isinstance(task, Launch):
            places += [(task, d) for d in ([a.device] if planned and stepwise else devices)]
    programs = Programs()
    builder = Builder(programs)  # type: ignore[arg-type]
    builder.build(lowered, queues)
    assert programs.kernels == {(t.program.source, t.kernel.name, d) for t, d in places if not t.versions}
    assert programs.versions == {(t.name, d) for t, d in places if t.versions}
    assert set(programs.built) == {(t.program.source, d) for t, d in places if not t.versions}
    again = Builder(programs)  # type: ignore[arg-type]
    again.build(lowered, queues)
    before = list(programs.built)
    programs.kernels.clear()
    again.build(lowered, queues)
    assert (programs.built, programs.kernels) == (before, set()), "it is the same run"
    other = Lowered(Graph(graph.nodes, {}, graph.predecessors), plan, lowered.steps)
    again.build(other, queues)
    assert programs.kernels == {(t.program.source, t.kernel.name, d) for t, d in places if not t.versions}
    if not (planned and stepwise):
        programs.kernels.clear()
        again.build(other, [1, 1, 1, 1])
        plain = any(isinstance(task, Launch) and not task.versions for task in graph.nodes)
        assert {d for *_, d in programs.kernels} == (set(range(4)) if plain else set())
