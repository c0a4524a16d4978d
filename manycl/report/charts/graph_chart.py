"""A graph drawn, as MKMD's Figure 11 is: kernels, host functions, and which buffers with how many bytes pass from one
to the next. As a picture, or as text for Graphviz.

Nodes are in layers, as K. Sugiyama, S. Tagawa and M. Toda place them ("Methods for Visual Understanding of Hierarchical
System Structures", IEEE Trans. Systems, Man, and Cybernetics 11(2), 1981): a node is one layer below the lowest of
those that it waits for; an edge passes each layer between at a place of its own; the places of a layer are ordered by
the mean place of their neighbours above, then below, a few times.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from manycl.errors import ManyclError
from manycl.graph.graph import BufferKey, DeviceTask, Graph, HostTask, Launch, ResultTask
from manycl.plan.plan import ON_HOST, Plan
from manycl.plan.problem import contents_needed
from manycl.report.charts.drawing import check_kind, drawn
from manycl.report.charts.lanes import HOST_COLOUR, TRANSFER_COLOUR, styles
from manycl.report.words import count, nbytes, printable

SUFFIXES = (".dot", ".png", ".svg", ".pdf")
MOST_NODES = 2000
"""Of a picture."""
MOST_LABELS = 120
"""Edges of a picture that say what they stand for; where there are more, none does."""
_NAMES = 3  # buffers that an edge names
_WIDE, _HIGH = 1.7, 0.95  # inches that a node has


class ChartBox(NamedTuple):
    """``kind``: ``kernel``, ``host``, or ``end`` (where inputs come from, what the host reads then). ``where``: the
    devices that run it by a plan; ``colour`` tells kernels apart."""

    key: int
    name: str
    kind: str
    where: str
    colour: str


class Arrow(NamedTuple):
    """An edge from box to box. ``label``: the buffers and their bytes; empty: nothing passes, one only comes after the
    other (it overwrites what that has read or written)."""

    source: int
    target: int
    label: str


class Chart(NamedTuple):
    name: str
    boxes: tuple[ChartBox, ...]
    arrows: tuple[Arrow, ...]


def chart(
    graph: Graph, plan: Plan | None = None, inputs: Collection[BufferKey] = (), *, numbered: bool = False
) -> Chart:
    """``inputs``: buffers that come from a box, MKMD's source. ``numbered``: names begin with kernels' numbers."""
    nodes, source = range(len(graph)), -1
    look = styles(_function(n) for n in graph.nodes if not isinstance(n, HostTask))
    where = _where(plan)
    passing: dict[tuple[int, int], list[BufferKey]] = {}
    for node in nodes:
        for p in graph.predecessors[node]:
            passing[p, node] = []
    writer = dict.fromkeys(inputs, source)
    for node in nodes:
        for key in contents_needed(graph.nodes[node]):
            if key in writer:
                passing.setdefault((writer[key], node), []).append(key)
        writer.update(dict.fromkeys(graph.nodes[node].writes, node))
    arrows = tuple(Arrow(a, b, _label(graph, keys)) for (a, b), keys in sorted(passing.items()))
    boxes = [
        ChartBox(
            n,
            f"{n + 1} {_name(task)}" if numbered else _name(task),
            "kernel",
            where.get(n, ""),
            look[_function(task)].colour,
        )
        if not isinstance(task, HostTask)
        else ChartBox(n, task.name, "end", "", TRANSFER_COLOUR)
        if isinstance(task, ResultTask)
        else ChartBox(n, task.name, "host", "host" if plan is not None else "", HOST_COLOUR)
        for n, task in enumerate(graph.nodes)
    ]
    if any(a.source == source for a in arrows):
        boxes.insert(0, ChartBox(source, "inputs", "end", "", TRANSFER_COLOUR))
    return Chart(graph.name, tuple(boxes), arrows)


def _function(task: DeviceTask) -> str:
    return task.kernel.name if isinstance(task, Launch) else task.function


def _name(task: DeviceTask) -> str:
    function = _function(task)
    return task.name if task.name == function else f"{task.name}: {function}"


def _where(plan: Plan | None) -> dict[int, str]:
    found: dict[int, dict[str, None]] = {}
    for a in plan.assignments if plan is not None else ():
        if plan is not None and a.device != ON_HOST:
            found.setdefault(a.node, {})[plan.devices[a.device]] = None
    return {node: ", ".join(sorted(names)) for node, names in found.items()}


def _label(graph: Graph, keys: list[BufferKey]) -> str:
    if not keys:
        return ""
    names = [printable(graph.buffers[key].name or f"buffer {key}") for key in keys]
    more = [f"{len(names) - _NAMES} more"] if len(names) > _NAMES else []
    return f"{', '.join([*names[:_NAMES], *more])}: {nbytes(sum(graph.buffers[key].nbytes for key in keys))}"


def dot(given: Chart) -> str:
    """The chart in Graphviz's language."""
    shapes = {"kernel": "ellipse", "host": "box", "end": "plaintext"}
    lines = [f"digraph {_quoted(given.name or 'graph')} {{", "  node [style=filled, fontname=Helvetica];"]
    for box in given.boxes:
        fill = f'fillcolor="{box.colour}55"' if box.kind != "end" else "style=solid"
        lines.append(f"  {_id(box.key)} [label={_quoted(_text(box))}, shape={shapes[box.kind]}, {fill}];")
    for arrow in given.arrows:
        look = f"label={_quoted(arrow.label)}" if arrow.label else "style=dashed"
        lines.append(f"  {_id(arrow.source)} -> {_id(arrow.target)} [{look}];")
    return "\n".join([*lines, "}", ""])


def _id(key: int) -> str:
    return f"n{key}" if key >= 0 else "inputs"


def _text(box: ChartBox) -> str:
    return "\n".join(filter(None, (printable(box.name), box.where)))


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text).replace("\n", "\\n") + '"'


def picture(given: Chart, kind: str) -> bytes:
    """The chart as ``png``, ``svg`` or ``pdf``; the same chart gives the same bytes. Raises :class:`ManyclError` for
    more than MOST_NODES nodes."""
    if len(given.boxes) > MOST_NODES:
        raise ManyclError(
            f"a graph of {count(len(given.boxes), 'node')} is too large for a picture ({MOST_NODES:,})",
            hint="write a .dot file, which Graphviz lays out",
        )
    return drawn(lambda: _figure(given), kind, font_size=8)


def _figure(given: Chart) -> Any:
    from matplotlib.figure import Figure

    edges = [(a.source, a.target) for a in given.arrows]
    layout = laid_out([box.key for box in given.boxes], edges)
    size = min(60.0, 1.0 + _WIDE * layout.width), min(60.0, 1.0 + _HIGH * layout.height)
    figure = Figure(figsize=size)
    axes = figure.add_subplot()
    axes.set(xlim=(0, max(layout.width, 1.0)), ylim=(max(layout.height, 1.0) - 0.4, -0.6))
    axes.set_axis_off()
    axes.set_title(printable(given.name or "graph"), loc="left", parse_math=False)
    said = sum(bool(a.label) for a in given.arrows) <= MOST_LABELS
    for arrow, way in zip(given.arrows, layout.ways, strict=True):
        _draw_arrow(axes, arrow, way, said)
    for box in given.boxes:
        _draw_box(axes, box, *layout.at[box.key])
    return figure


def _draw_arrow(axes: Any, arrow: Arrow, way: Any, said: bool) -> None:
    style: Mapping[str, Any] = {"color": "0.35", "linewidth": 0.8, "linestyle": "-" if arrow.label else (0, (3, 3))}
    xs, ys = zip(*way, strict=True)
    axes.plot(xs[:-1], ys[:-1], **style, zorder=1)
    (x0, y0), (x1, y1) = way[-2], way[-1]
    # the end of the arrow is at the box's edge
    axes.annotate(
        "", (x1, y1 - 0.21), (x0, y0), arrowprops={"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, **style}, zorder=1
    )
    if arrow.label and said:
        where = (0.55 * x0 + 0.45 * x1, 0.55 * y0 + 0.45 * y1)
        box = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
        words = arrow.label.replace(": ", "\n")
        axes.text(*where, words, ha="center", va="center", fontsize=5.5, bbox=box, zorder=2, parse_math=False)


def _draw_box(axes: Any, box: ChartBox, x: float, y: float) -> None:
    from matplotlib.patches import Ellipse, Rectangle

    width, height = 0.86, 0.42
    look: Mapping[str, Any] = {"facecolor": "white", "edgecolor": box.colour, "linewidth": 1.4, "zorder": 3}
    if box.kind == "kernel":
        axes.add_patch(Ellipse((x, y), width, height, **look))
    elif box.kind == "host":
        axes.add_patch(Rectangle((x - width / 2, y - height / 2), width, height, **look))
    words = "\n".join(w if len(w) <= 22 else f"{w[:19]}..." for w in _text(box).split("\n"))
    bare = {"boxstyle": "square,pad=0.2", "facecolor": "white", "edgecolor": "none"} if box.kind == "end" else None
    axes.text(x, y, words, ha="center", va="center", fontsize=6.5, zorder=4, parse_math=False, bbox=bare)


def write_graph(given: Chart, path: str | Path) -> None:
    """Write a chart: .dot, .png, .svg or .pdf. Raises :class:`ManyclError` for another suffix and a picture of too many
    nodes, OSError as writing does."""
    path = Path(path)
    check_suffix(path)
    kind = path.suffix.lower()
    if kind == ".dot":
        path.write_text(dot(given), encoding="utf-8")
    else:
        path.write_bytes(picture(given, kind[1:]))


def check_suffix(path: str | Path) -> None:
    """Raises :class:`ManyclError` for a file that :func:`write_graph` cannot write."""
    check_kind(path, "drawing", SUFFIXES)


SWEEPS = 6
Point = tuple[float, float]


class Layout(NamedTuple):
    """``at[node]`` and the ``ways`` of edges, each from its source to its target: x grows to the right from 0, y by one
    a layer downwards. ``width`` and ``height``: of all of it."""

    at: Mapping[int, Point]
    ways: Sequence[Sequence[Point]]
    width: float
    height: float


def laid_out(nodes: Sequence[int], edges: Sequence[tuple[int, int]]) -> Layout:
    """``nodes`` in a topological order."""
    layer = _layers(nodes, edges)
    rows: list[list[int]] = [[] for _ in range(1 + max(layer.values(), default=-1))]
    for node in nodes:
        rows[layer[node]].append(node)
    chains: list[list[int]] = []
    free = max(nodes, default=0) + 1
    for source, target in edges:
        passed = range(free, free + layer[target] - layer[source] - 1)
        free += len(passed)
        for place, row in zip(passed, range(layer[source] + 1, layer[target]), strict=True):
            rows[row].append(place)
        chains.append([source, *passed, target])
    _order(rows, chains)
    width = max(map(len, rows), default=0)
    at = {node: ((i + 0.5) * width / len(row), float(y)) for y, row in enumerate(rows) for i, node in enumerate(row)}
    ways = [[at[place] for place in chain] for chain in chains]
    return Layout({node: at[node] for node in nodes}, ways, float(width), float(len(rows)))


def _layers(nodes: Sequence[int], edges: Sequence[tuple[int, int]]) -> dict[int, int]:
    before: dict[int, list[int]] = {node: [] for node in nodes}
    for source, target in edges:
        before[target].append(source)
    found: dict[int, int] = {}
    for node in nodes:
        found[node] = 1 + max((found[p] for p in before[node]), default=-1)
    return found


def _order(rows: list[list[int]], chains: Sequence[Sequence[int]]) -> None:
    """Sort every row by the mean place of the neighbours in the row before (every other time: behind)."""
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for chain in chains:
        for a, b in pairwise(chain):
            above.setdefault(b, []).append(a)
            below.setdefault(a, []).append(b)
    for sweep in range(SWEEPS):
        near = below if sweep % 2 else above
        sequence = reversed(rows) if sweep % 2 else rows
        place: dict[int, float] = {}
        for row in sequence:
            means = {
                node: sum(place[n] for n in of) / len(of) if (of := near.get(node)) else (i + 0.5) / len(row)
                for i, node in enumerate(row)
            }
            row.sort(key=means.__getitem__)
            place |= {node: (i + 0.5) / len(row) for i, node in enumerate(row)}
