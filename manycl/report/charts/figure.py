"""A Gantt chart as a picture, drawn by matplotlib without a display."""

from __future__ import annotations

from typing import Any

from manycl.report.charts import lanes as lanes_of
from manycl.report.charts.drawing import drawn
from manycl.report.charts.lanes import FAILURE_COLOUR, HOST_COLOUR, TRANSFER_COLOUR, Lane, Style
from manycl.report.summary import summarise
from manycl.report.words import percent, printable, seconds
from manycl.trace import FailureEvent, HostEvent, KernelEvent, Trace, TransferEvent

_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\")
_MOST_LEGEND = 24
_MOST_LETTERS = 40
_WIDTH, _ROW, _FRAME = 11.0, 0.30, 1.2  # inches: the figure, a row, title and axis


def picture(trace: Trace, kind: str) -> bytes:
    """The chart as ``png``, ``svg`` or ``pdf``; the same trace gives the same bytes."""
    return drawn(lambda: _figure(trace), kind, font_size=9)


def _figure(trace: Trace) -> Any:
    from matplotlib.figure import Figure

    rows = lanes_of.lanes(trace)
    style = lanes_of.styles(map(lanes_of.function, trace.kernels()))
    height = sum(lane.rows for lane in rows)
    figure = Figure(figsize=(_WIDTH, min(60.0, _FRAME + _ROW * max(height, 2))))
    axes = figure.add_subplot()
    start, end = lanes_of.extent(trace)
    scale, unit = next(((s, u) for s, u in ((1.0, "s"), (1e3, "ms")) if end * s >= 1), (1e6, "us"))
    top, ticks = 0, []
    for lane in rows:
        _draw(axes, lane, top, scale, style, (end - start) / 250)
        ticks.append(top + lane.rows / 2)
        top += lane.rows
        axes.axhline(top, color="#00000022", linewidth=0.6)
    for event in trace.events:
        if isinstance(event, FailureEvent):
            when = min(max(start, event.time), end)  # at the edge of the chart it must not be cut in half
            axes.axvline(when * scale, color=FAILURE_COLOUR, linewidth=1.5, clip_on=False)
    axes.set_xlim(start * scale, end * scale)
    axes.set_ylim(max(top, 1), 0)
    axes.set_yticks(ticks, [_short(lane.label) for lane in rows])
    axes.set_xlabel(f"time [{unit}]")
    axes.grid(axis="x", color="#00000022", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title(_title(trace), loc="left", parse_math=False)
    _legend(axes, trace, style)
    for text in axes.get_yticklabels():
        text.set_parse_math(False)
    return figure


def _draw(axes: Any, lane: Lane, top: int, scale: float, style: dict[str, Style], narrow: float) -> None:
    """One collection per row and look; bars of less than ``narrow`` seconds are too small for a pattern."""
    looks: dict[tuple[int, str, str, bool], list[tuple[float, float]]] = {}
    for bar, row, length in zip(lane.bars, lane.row_of, _lengths(lane, narrow / 4), strict=True):
        wide = bar.end - bar.start >= narrow
        if isinstance(bar, KernelEvent):
            look = style[lanes_of.function(bar)]
            key = (row, look.colour, _HATCHES[look.pattern % len(_HATCHES)] if wide else "", wide)
        else:
            key = (row, HOST_COLOUR if isinstance(bar, HostEvent) else TRANSFER_COLOUR, "", wide)
        looks.setdefault(key, []).append((bar.start * scale, length * scale))
    for (row, colour, hatch, wide), spans in looks.items():
        # a white edge separates neighbours of one name; a narrow bar would vanish in it
        edge, line = ("white", 0.4) if wide else (colour, 0.0)
        place = (top + row + 0.1, 0.8)
        axes.broken_barh(spans, place, facecolor=colour, hatch=hatch, edgecolor=edge, linewidth=line)


def _lengths(lane: Lane, least: float) -> list[float]:
    """Seconds to draw for every bar: its own, but at least ``least`` (about a pixel, or it would vanish) where
    that covers nothing of the next bar in its row."""
    lengths: list[float] = []
    last: dict[int, int] = {}  # row to the latest bar in it
    for i, (bar, row) in enumerate(zip(lane.bars, lane.row_of, strict=True)):
        if (before := last.get(row)) is not None:
            room = bar.start - lane.bars[before].start
            lengths[before] = max(min(lengths[before], room), _own(lane.bars[before]))
        lengths.append(max(least, _own(bar)))
        last[row] = i
    return lengths


def _own(bar: lanes_of.Bar) -> float:
    return max(0.0, bar.end - bar.start)


def _title(trace: Trace) -> str:
    summary = summarise(trace)
    words = [summary.kind, f"policy {_short(summary.policy)}", seconds(summary.makespan)]
    if summary.compiled:
        words.append(f"{seconds(summary.compiled)} of compiling left out")
    used = [d for d in summary.devices if d.kernels]
    if len(used) <= 4:
        words += [f"{_short(d.name)} {percent(d.share)} busy" for d in used]
    if summary.failures:
        words.append("FAILED")
    return f"{_short(summary.application or 'application')}\n{', '.join(words)}"


def _short(name: str) -> str:
    name = printable(name)
    return name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 3]}..."


def _legend(axes: Any, trace: Trace, style: dict[str, Style]) -> None:
    from matplotlib.patches import Patch

    entries = [(name, look.colour, _HATCHES[look.pattern % len(_HATCHES)]) for name, look in style.items()]
    if len(entries) > _MOST_LEGEND:
        entries = [*entries[:_MOST_LEGEND], (f"{len(entries) - _MOST_LEGEND} more", "none", "")]
    if any(isinstance(e, TransferEvent) for e in trace.events):
        entries.append(("transfer", TRANSFER_COLOUR, ""))
    if any(isinstance(e, HostEvent) for e in trace.events):
        entries.append(("host function", HOST_COLOUR, ""))
    if not entries:
        return
    handles = [Patch(facecolor=colour, hatch=hatch, edgecolor="white") for _, colour, hatch in entries]
    # the names are set afterwards: as labels, those that begin with an underscore would be left out
    rows = max(6, int(axes.figure.get_figheight() / 0.22))
    legend = axes.legend(
        handles,
        ["x"] * len(entries),
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        frameon=False,
        ncols=-(-len(entries) // rows),
    )
    for text, (name, _, _) in zip(legend.get_texts(), entries, strict=True):
        text.set_parse_math(False)
        text.set_text(_short(name))
