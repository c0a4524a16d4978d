"""The elements of a buffer laid out as a grid, with what a range of work-groups reads and writes in it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np

from manycl.analysis.regions.regions import Footprint
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr
from manycl.report.analysis.launch_report import LaunchView

NOTHING, READ, WRITTEN, BOTH, OUTSIDE = range(5)
MOST_CELLS = 400
"""Cells of a grid along each side; a cell stands for a block of elements where there are more."""
_MOST_ATOMS = 1 << 23  # runs of elements that are told apart before they become cells
_MOST_RUNS = 1 << 22
_MOST_POINTS = 1 << 18  # of a set that is no union of rectangles
_SLIMMEST = 1000  # rows per column
_ONE_ROW = 64  # elements that fit one row


@dataclass(frozen=True)
class Grid:
    """``elements`` elements in rows of ``columns``; ``slice_rows`` rows are a slice of a 3-D array (0: it is none).
    ``cells``: per cell READ, WRITTEN, BOTH or NOTHING of its elements, or OUTSIDE behind the last element; ``share``:
    the part of its elements that are touched. ``exact``: the regions are exact and drawn as they are."""

    argument: int
    elements: int
    columns: int
    slice_rows: int
    cells: np.ndarray
    share: np.ndarray
    exact: bool

    @property
    def rows(self) -> int:
        return -(-self.elements // self.columns)


def grid(view: LaunchView, argument: int) -> Grid:
    """The grid of a buffer argument, for the view's range of work-groups."""
    size = view.found.facts.arguments[argument].size or 1
    elements = max(1, -(-view.nbytes(argument) // size))
    regions = [view.region(argument, kind) for kind in ("read", "write")]
    columns, slice_rows = _layout(view, argument, regions, elements)
    atoms = -(-elements // _MOST_ATOMS)  # elements per atom; rows start with an atom of their own
    across = -(-columns // atoms)
    rows = -(-elements // columns)
    touched, exact = [], True
    for region in regions:
        starts, ends, right = _runs(region, size, elements)
        exact = exact and right and region.exact
        change = np.zeros(rows * across + 1, np.int32)
        np.add.at(change, _atom(starts, columns, across, atoms), 1)
        np.add.at(change, _atom(ends - 1, columns, across, atoms) + 1, -1)
        touched.append((np.cumsum(change[:-1]) > 0).reshape(rows, across))
    there = np.arange(rows * across).reshape(rows, across) <= _atom(np.array([elements - 1]), columns, across, atoms)
    read, written = (_reduced(mask) > 0 for mask in touched)
    known, present = _reduced(touched[0] | touched[1]), _reduced(there)
    cells = np.where(present > 0, READ * read + WRITTEN * written, OUTSIDE).astype(np.int8)
    return Grid(argument, elements, columns, slice_rows, cells, known / np.maximum(present, 1), exact)


def _atom(places: np.ndarray, columns: int, across: int, atoms: int) -> np.ndarray:
    return np.asarray(places // columns * across + places % columns // atoms)


def _reduced(mask: np.ndarray) -> np.ndarray:
    """Return how many of the elements of every cell are marked."""
    found = mask.astype(np.int64)
    for axis in (0, 1):
        step = -(-mask.shape[axis] // MOST_CELLS)
        found = np.add.reduceat(found, np.arange(0, mask.shape[axis], step), axis)
    return found


def _runs(region: Footprint, size: int, elements: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """First elements, ends, and whether these are just the region."""
    starts, ends, right = [], [], region.tight
    if not region.tight and region.elements is not None:
        low, high = min(b.offset for b in region.rectangles), max(b.end for b in region.rectangles)
        if (high - low) // region.unit <= _MOST_POINTS:
            edges = np.diff(region.mask(high).astype(np.int8), prepend=0, append=0)
            starts, ends, right = [np.flatnonzero(edges == 1)], [np.flatnonzero(edges == -1)], True
    if not starts:
        for rect in region.rectangles:
            whole = rect.rows * rect.slices <= _MOST_RUNS
            first = rect.starts() if whole else np.array([rect.offset])
            starts.append(first)
            ends.append(first + rect.width if whole else np.array([rect.end]))
            right = right and whole
    if not starts:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), right
    first = np.clip(np.concatenate(starts) // size, 0, elements)
    end = np.clip(-(-np.concatenate(ends) // size), 0, elements)
    return first[end > first], end[end > first], right


# -- rows


def _layout(view: LaunchView, argument: int, regions: list[Footprint], elements: int) -> tuple[int, int]:
    """Elements per row and rows per slice: as the regions are repeated, as subscripts multiply, or about square."""
    size = view.found.facts.arguments[argument].size or 1
    rectangles = sorted(
        (b for r in regions for b in r.rectangles if b.pitch), key=lambda b: (-b.rows * b.slices, b.pitch)
    )
    for rect in rectangles:
        found = _fitting([p // size for p in (rect.pitch, rect.slice_pitch) if p and p % size == 0], elements)
        if found:
            return found
    return _fitting(_multipliers(view, argument, size), elements) or (_square(elements), 0)


def _fitting(lengths: list[int], elements: int) -> tuple[int, int] | None:
    lengths = sorted({n for n in lengths if 1 < n < elements and elements / n / n <= _SLIMMEST})
    if not lengths:
        return None
    inner, outer = lengths[0], lengths[-1]
    return inner, outer // inner if outer > inner and outer % inner == 0 and outer < elements else 0


def _square(elements: int) -> int:
    return elements if elements <= _ONE_ROW else 1 << (isqrt(elements - 1)).bit_length()


def _multipliers(view: LaunchView, argument: int, size: int) -> list[int]:
    """Return what ids and counters are multiplied by in the subscripts of an argument, in elements."""
    values = {}
    for a in view.found.facts.arguments:
        data = view.found.launch.scalars.get(a.index)
        if data is not None and a.lanes == 1 and a.base not in ("half", "float", "double"):
            values[a.name] = x.const(int.from_bytes(data, "little", signed=not a.base.startswith("u")))
    found = set()
    for access in view.symbolic.accesses:
        if access.argument != argument or access.operation == "unknown":
            continue
        offset = access.offset.args[0] if access.offset.op == "wrap" else access.offset
        for atom, factor in zip(offset.args, offset.terms, strict=True) if offset.op == "sum" else ():
            product = _scalar_part(atom, values) * abs(factor)
            if product % size == 0:
                found.add(product // size)
    return list(found)


def _scalar_part(atom: Expr, values: dict[str, Expr]) -> int:
    """The product of an atom's scalars; 0 if it has no ids or counters, 1 if it has no scalars."""
    factors = atom.args if atom.op == "mul" else (atom,)
    if all(f.op == "var" and f.key in values for f in factors):
        return 0
    product = 1
    for factor in factors:
        product *= values[factor.key].value if factor.op == "var" and factor.key in values else 1
    return abs(product)
