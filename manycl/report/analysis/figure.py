"""The regions of a range of work-groups as a picture: a panel per buffer, drawn by matplotlib without a display."""

from __future__ import annotations

from typing import Any

import numpy as np

from manycl.report.analysis.grid import BOTH, NOTHING, OUTSIDE, READ, WRITTEN, Grid, grid
from manycl.report.analysis.launch_report import LaunchView, rectangle_words
from manycl.report.charts.drawing import drawn
from manycl.report.words import printable

COLOURS = {READ: "#4477aa", WRITTEN: "#ee7733", BOTH: "#aa3377", NOTHING: "#e4e4e4", OUTSIDE: "#ffffff"}
_NAMES = {READ: "read", WRITTEN: "written", BOTH: "read and written", NOTHING: "not touched"}
_PANEL, _COLUMNS = (4.2, 3.6), 3  # inches of a panel; panels side by side
_LONGEST = 52  # letters of a line in a title
_FAINTEST = 0.35  # of a cell's colour, if hardly any of its elements are touched


def picture(view: LaunchView, kind: str) -> bytes:
    """The regions of the view's range of work-groups as ``png``, ``svg`` or ``pdf``; equal views, equal bytes."""
    return drawn(lambda: figure(view), kind, font_size=8)


def figure(view: LaunchView) -> Any:
    """The picture as a matplotlib figure: one axes per buffer argument, in their order."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    buffers = view.buffers
    columns = max(1, min(_COLUMNS, len(buffers)))
    rows = max(1, -(-len(buffers) // columns))
    drawn = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * rows + 0.8), layout="constrained")
    for place, argument in enumerate(buffers):
        _panel(drawn.add_subplot(rows, columns, place + 1), view, grid(view, argument.index))
    launch = view.found.launch
    which = f"work-groups {view.groups.first} to {view.groups.end - 1} of {launch.groups(view.groups.dimension)}"
    words = f"{printable(view.found.facts.name)}: {which} along dimension {view.groups.dimension}"
    drawn.suptitle(words, fontsize=10).set_parse_math(False)
    handles = [Patch(facecolor=COLOURS[code], label=name) for code, name in _NAMES.items()]
    drawn.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return drawn


def _panel(axes: Any, view: LaunchView, found: Grid) -> None:
    axes.imshow(
        _colours(found),
        extent=(0, found.columns, found.rows, 0),
        interpolation="nearest",
        aspect="equal" if found.columns / 4 <= found.rows <= found.columns * 2 else "auto",
    )
    slices = -(-found.rows // found.slice_rows) if found.slice_rows else 1
    if slices <= 64:
        for place in range(1, slices):
            axes.axhline(place * found.slice_rows, color="#00000099", linewidth=0.6)
    axes.set_title(_title(view, found, slices), loc="left", fontsize=8, parse_math=False)
    axes.set_xlabel("element of the row" if found.rows > 1 else "element")
    axes.set_ylabel("row" if found.rows > 1 else "")
    if found.rows == 1:
        axes.set_yticks([])
        axes.set_box_aspect(0.15)
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)


def _colours(found: Grid) -> np.ndarray:
    """Red, green and blue of every cell: the paler, the fewer of its elements are touched."""
    from matplotlib.colors import to_rgb

    palette = np.array([to_rgb(COLOURS[code]) for code in range(len(COLOURS))])
    strength = np.where(found.share > 0, _FAINTEST + (1 - _FAINTEST) * found.share, 1.0)[..., None]
    return np.asarray(strength * palette[found.cells] + (1 - strength) * palette[NOTHING])


def _title(view: LaunchView, found: Grid, slices: int) -> str:
    argument = view.found.facts.arguments[found.argument]
    sizes = [found.rows, found.columns] if found.rows > 1 else [found.columns]
    if slices > 1:
        sizes = [slices, found.slice_rows, found.columns]
    shape = " x ".join(map(str, sizes)) if found.elements % found.columns == 0 else f"{found.elements}, in rows"
    lines = [f"{argument.name}: {argument.element}, {shape}"]
    for kind, verb in (("read", "reads"), ("write", "writes")):
        region = view.region(found.argument, kind)
        if region.rectangles:
            words = [rectangle_words(b, argument.size) for b in region.rectangles]
            which = words[0] if len(words) == 1 else f"{len(words)} pieces"
            lines.append(f"{verb}{'' if region.exact else ' at most'} {which}")
    return "\n".join(_short(line) for line in (lines if len(lines) > 1 else [*lines, "not touched"]))


def _short(line: str) -> str:
    line = printable(line)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
