"""Graphs drawn: every dependence is an arrow that says what passes, and nothing lies on anything else."""

from __future__ import annotations

import random

import pytest

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.errors import ManyclError
from manycl.graph.dependences import GraphBuilder, with_results
from manycl.graph.graph import BufferArg, Graph, HostTask, Launch
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.report.charts import graph_chart
from manycl.report.charts.graph_chart import Arrow, chart, dot, laid_out, picture, write_graph

FACTS = KernelFacts("k", 1, ())
PROGRAM = ProgramFacts("", (), {"k": FACTS})


def launch(name: str, reads: tuple[int, ...], writes: tuple[int, ...]) -> Launch:
    args = tuple(BufferArg(k) for k in dict.fromkeys((*reads, *writes)))
    return Launch(name, PROGRAM, FACTS, (64,), None, args, reads, writes, overwrites=writes)


def small() -> Graph:
    """Two kernels that hand data on, one that overwrites what the second reads, and a host function."""
    builder = GraphBuilder()
    a, b, c, d = (builder.buffer(1000 * (i + 1), name) for i, name in enumerate("abcd"))
    builder.add(launch("one", (a,), (b,)))
    builder.add(launch("k", (b, d), (c,)))
    builder.add(launch("three", (), (b,)))
    builder.add(HostTask("look", print, (), (b, c), ()))
    return builder.build(name='a "small" graph')


def test_what_passes_and_what_only_comes_after() -> None:
    drawn = chart(with_results(small(), [1]), inputs=[0, 3])
    assert [(b.key, b.name, b.kind) for b in drawn.boxes] == [
        (-1, "inputs", "end"),
        (0, "one: k", "kernel"),
        (1, "k", "kernel"),
        (2, "three: k", "kernel"),
        (3, "look", "host"),
        (4, "results", "end"),
    ]
    assert set(drawn.arrows) == {
        Arrow(-1, 0, "a: 1.00 kB"),
        Arrow(-1, 1, "d: 4.00 kB"),
        Arrow(0, 1, "b: 2.00 kB"),
        Arrow(1, 2, ""),
        Arrow(1, 3, "c: 3.00 kB"),
        Arrow(2, 3, "b: 2.00 kB"),
        Arrow(2, 4, "b: 2.00 kB"),
    }


def test_who_runs_what() -> None:
    ranges = [Assignment(0, d, 0, 0.0, 1.0, 0, 4 * d, 4) for d in (1, 0)]
    rest = [Assignment(1, 1, 0, 1.0, 2.0), Assignment(2, 0, 0, 2.0, 3.0), Assignment(3, ON_HOST, 0, 3.0, 3.0)]
    plan = Plan((*ranges, *rest), "by hand", ("cpu0", "gpu1"), 3.0)
    assert [b.where for b in chart(small(), plan).boxes] == ["cpu0, gpu1", "gpu1", "cpu0", "host"]


def test_text_for_graphviz() -> None:
    lines = dot(chart(small(), inputs=[0])).split("\n")
    assert lines[0] == r'digraph "a \"small\" graph" {'
    assert '  n0 -> n1 [label="b: 2.00 kB"];' in lines
    assert "  n1 -> n2 [style=dashed];" in lines
    assert '  inputs -> n0 [label="a: 1.00 kB"];' in lines
    assert lines[-2:] == ["}", ""]


@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_pictures_are_the_same_every_time(kind: str) -> None:
    drawn = chart(with_results(small(), [1]), inputs=[0, 3])
    assert picture(drawn, kind) == picture(drawn, kind)
    if kind == "svg":
        text = picture(drawn, kind).decode()
        assert all(f"<!-- {name} -->" in text for name in ("inputs", "one: k", "look", "results", "2.00 kB"))


@pytest.mark.parametrize("seed", range(20))
def test_every_dependence_is_an_arrow_and_every_arrow_leads_down(seed: int) -> None:
    chance = random.Random(seed)
    builder = GraphBuilder()
    buffers = [builder.buffer(64, f"b{i}") for i in range(chance.randint(1, 6))]
    for i in range(chance.randint(1, 40)):
        some = [tuple(chance.sample(buffers, chance.randint(0, min(2, len(buffers))))) for _ in range(2)]
        builder.add(launch(f"n{i}", *some) if chance.random() < 0.8 else HostTask(f"h{i}", print, (), *some))
    graph = builder.build()
    drawn = chart(with_results(graph, buffers[:1]), inputs=buffers)
    edges = [(a.source, a.target) for a in drawn.arrows]
    assert set(graph.edges) <= set(edges)
    assert len(set(edges)) == len(edges)
    keys = [box.key for box in drawn.boxes]
    found = laid_out(keys, edges)
    assert sorted(found.at) == sorted(keys)
    assert len(set(found.at.values())) == len(keys), "two boxes in one place"
    inner = [point for way in found.ways for point in way[1:-1]]
    assert len({*inner, *found.at.values()}) == len(inner) + len(keys), "an arrow through a box, or another one's bend"
    for (source, target), way in zip(edges, found.ways, strict=True):
        assert (way[0], way[-1]) == (found.at[source], found.at[target])
        assert [y for _, y in way] == [way[0][1] + i for i in range(len(way))]
        assert len(way) > 1
        assert all(0.0 <= x <= found.width for x, _ in way)


def test_what_cannot_be_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    drawn = chart(small())
    with pytest.raises(ManyclError, match="not a known kind of drawing"):
        write_graph(drawn, "graph.gif")
    monkeypatch.setattr(graph_chart, "MOST_NODES", 3)
    with pytest.raises(ManyclError, match="a graph of 4 nodes is too large for a picture") as error:
        picture(drawn, "svg")
    assert "dot" in error.value.hint


def test_an_empty_graph_is_drawn() -> None:
    empty = chart(GraphBuilder().build())
    assert picture(empty, "svg").startswith(b"<?xml")
    assert dot(empty).startswith('digraph "graph" {')
