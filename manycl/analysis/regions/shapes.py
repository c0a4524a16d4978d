"""Shapes of one-dimensional sets: intervals, and rectangles in two and three dimensions, as copies take them."""

from __future__ import annotations

from typing import Any

from manycl.analysis.symbolic.affine import value
from manycl.analysis.symbolic.isl import isl
from manycl.region import Rectangle

_SET = isl.dim_type.set
MOST_RECTANGLES = 64


class TooComplexError(Exception):
    """isl needs more operations than it is given, or does not agree with itself."""


def interval(low: int, high: int) -> Any:
    """The basic set of the numbers from ``low`` to ``high``."""
    whole = isl.BasicSet.universe(isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, 1))
    return whole.lower_bound_val(_SET, 0, value(low)).upper_bound_val(_SET, 0, value(high))


def bounds(elements: Any) -> tuple[int, int] | None:
    """The least and the greatest element, None where there is none (or no bound). Raises :class:`TooComplexError` where
    isl contradicts itself: of a set with two existentials and a floor it found (islpy 2026.2.2) another least element
    than of the same set printed and read again."""
    if elements.is_empty():
        return None
    least, greatest = elements.dim_min_val(0), elements.dim_max_val(0)
    if not least.is_int() or not greatest.is_int():
        return None
    ends = least.to_python(), greatest.to_python()
    if not elements.is_subset(isl.Set.from_basic_set(interval(*ends))):
        raise TooComplexError
    return ends


def moved_alike(relation: Any, groups: int, unit: int) -> tuple[int, int, int]:
    """Return a group, and one past another one, between which each group's elements are those of the one before, moved
    by a number of bytes, and this number; zeros: none are. They are all of ``groups`` around the middle that are so.
    ``unit``: bytes of an element."""

    def within(low: int, high: int) -> Any:
        return isl.Set.from_basic_set(interval(low, high))

    middle = groups // 2
    here, there = (bounds(relation.intersect_domain(within(g, g)).range()) for g in (middle - 1, middle))
    if groups < 2 or here is None or there is None:
        return 0, 0, 0
    step = there[0] - here[0]
    back = isl.Map(f"{{ [g] -> [g + {step}] }}").reverse() if step >= 0 else isl.Map(f"{{ [g] -> [g + {-step}] }}")
    moved = isl.Map("{ [g] -> [g + 1] }").apply_range(relation).apply_range(back)
    wrong = relation.subtract(moved).union(moved.subtract(relation)).domain()
    below, above = bounds(wrong.intersect(within(0, middle - 1))), bounds(wrong.intersect(within(middle, groups - 2)))
    return 0 if below is None else below[1] + 1, groups if above is None else above[0] + 1, step * unit


def _as_set(rect: Rectangle) -> Any:
    """A rectangle as a set."""
    dims, low = [], rect.offset
    for count, stride in ((rect.slices, rect.slice_pitch), (rect.rows, rect.pitch), (rect.width, 1)):
        if count > 1:
            dims.append((count, stride))
    space = isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, len(dims))
    domain = isl.BasicSet.universe(space)
    aff = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space)).set_constant_val(value(low))
    for place, (count, stride) in enumerate(dims):
        domain = domain.lower_bound_val(_SET, place, value(0)).upper_bound_val(_SET, place, value(count - 1))
        aff = aff.set_coefficient_val(isl.dim_type.in_, place, value(stride))
    return isl.Map.from_aff(aff).intersect_domain(isl.Set.from_basic_set(domain)).range()


def classify(elements: Any) -> Rectangle | None:
    """The one rectangle that a set is, in units of its elements; None if it is none."""
    ends = bounds(elements)
    if ends is None:
        return None
    low, high = ends
    hull = isl.Set.from_basic_set(interval(low, high))
    gaps = hull.subtract(elements)
    if gaps.is_empty():
        return Rectangle(low, high - low + 1)
    width = gaps.dim_min_val(0).to_python() - low
    rest = elements.subtract(isl.Set.from_basic_set(interval(low, low + width - 1)))
    second = rest.dim_min_val(0)
    if not second.is_int():
        return None
    pitch = second.to_python() - low
    if width < 1 or pitch <= width:  # an empty part that isl did not notice as such has its least element at 0
        return None
    rows = (high - low) // pitch + 1
    candidate = Rectangle(low, width, pitch, rows)
    if candidate.end - 1 == high and elements.is_equal(_as_set(candidate)):
        return candidate
    filled = _as_set(candidate)
    wrong = elements.subtract(filled).union(filled.subtract(elements))
    first = wrong.dim_min_val(0)
    if not first.is_int():
        return None
    rows = -(-(first.to_python() - low) // pitch)
    if rows < 1:
        return None
    slice_ = isl.Set.from_basic_set(interval(low, low + (rows - 1) * pitch + width - 1))
    rest = elements.subtract(slice_)
    if rest.is_empty():
        return None
    slice_pitch = rest.dim_min_val(0).to_python() - low
    span = high - low + 1 - ((rows - 1) * pitch + width)
    if slice_pitch <= 0 or span % slice_pitch:
        return None
    rect = Rectangle(low, width, pitch if rows > 1 else 0, rows, slice_pitch, span // slice_pitch + 1)
    if rows == 1:
        rect = Rectangle(low, width, slice_pitch, rect.slices)
    return rect if elements.is_equal(_as_set(rect)) else None


def rectangles(elements: Any) -> tuple[tuple[Rectangle, ...], bool]:
    """Rectangles that cover a set, disjoint ones if possible, and whether they are just the set."""
    ends = bounds(elements)
    if ends is None:
        return (), True
    single = classify(elements)
    if single is not None:
        return (single,), True
    if elements.n_basic_set() <= MOST_RECTANGLES:
        parts = elements.make_disjoint()
        if parts.n_basic_set() <= MOST_RECTANGLES:
            found = [classify(isl.Set.from_basic_set(part)) for part in parts.get_basic_sets()]
            if all(rect is not None for rect in found):
                return tuple(sorted((b for b in found if b is not None), key=lambda b: b.offset)), True
    return (Rectangle(ends[0], ends[1] - ends[0] + 1),), False
