"""The findings of the analysis about one launch, in words and as plain data: regions, verdicts, sub-kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from manycl.analysis.facts import ArgumentFacts
from manycl.analysis.launched import LaunchFacts
from manycl.analysis.regions.regions import Footprint
from manycl.analysis.summary import KernelSummary
from manycl.analysis.texts.rewrite import SubKernel
from manycl.graph.reduction import PROMISE
from manycl.group_range import GroupRange
from manycl.region import Rectangle
from manycl.report.analysis.as_text import cut
from manycl.report.analysis.expr import named
from manycl.report.words import count, nbytes, percent


@dataclass(frozen=True, slots=True)
class LaunchView:
    """A launch and a range of its work-groups. ``origin`` says per buffer argument where its size is from: ``given``,
    ``accesses`` (the smallest that holds them) or ``same as NAME``; ``scalars`` are values in words, by name;
    ``symbolic`` is the kernel in any launch; ``cache``: bytes for which sizes of slices are shown (0: for none)."""

    found: LaunchFacts
    groups: GroupRange
    origin: Mapping[int, str]
    scalars: Mapping[str, str]
    sub_kernel: SubKernel
    symbolic: KernelSummary
    cache: int = 0

    @property
    def buffers(self) -> list[ArgumentFacts]:
        return [a for a in self.found.facts.arguments if a.kind == "buffer"]

    def nbytes(self, argument: int) -> int:
        """Bytes of the memory behind a buffer argument."""
        launch = self.found.launch
        return launch.sizes[launch.same.get(argument, argument)]

    def regions(self) -> list[Footprint]:
        """Return what the range reads and writes, by argument; without what it certainly does not touch."""
        every = [self.region(a.index, kind) for a in self.buffers for kind in ("read", "write")]
        return [region for region in every if region.rectangles]

    def region(self, argument: int, kind: str) -> Footprint:
        return self.found.region(argument, kind, self.groups)


def rectangle_words(rect: Rectangle, size: int) -> str:
    """A rectangle in elements of ``size`` bytes, if they fill it, else in bytes: ``[0, 16) x 64 rows every 4096``."""
    size = size or 1
    parts = (rect.offset, rect.width, rect.pitch, rect.slice_pitch)
    if any(part % size for part in parts):
        return f"bytes {rect}"
    low, width, pitch, slice_pitch = (part // size for part in parts)
    return str(Rectangle(low, width, pitch, rect.rows, slice_pitch, rect.slices))


def lines(view: LaunchView, *, everything: bool = False) -> list[str]:
    """A launch in words. Long lists are cut unless ``everything`` is wanted."""
    parts = [_head(view), _range(view, everything), _verdicts(view, everything)]
    return [line for part in parts for line in (*part, "")]


def _head(view: LaunchView) -> list[str]:
    launch = view.found.launch
    groups = [launch.groups(d) for d in range(len(launch.global_size))]
    words = f"{_by(launch.global_size)} work-items in {_by(groups)} work-groups of {_by(launch.local_size)}"
    if any(launch.offset):
        words += f" from {_by(launch.offset)} on"
    found = [f"launch of {words}"]
    if view.scalars:
        found.append("  " + ", ".join(f"{name} = {value}" for name, value in view.scalars.items()))
    for argument in view.buffers:
        size, origin = view.nbytes(argument.index), view.origin[argument.index]
        how = "the smallest size that holds its accesses" if origin == "accesses" else origin
        elements = count(size // (argument.size or 1), "element")
        found.append(f"  {argument.name}: {elements}, {nbytes(size)} ({how})")
    return found


def _by(sizes: Any) -> str:
    return " x ".join(map(str, sizes))


def _range(view: LaunchView, everything: bool) -> list[str]:
    launch = view.found.launch
    (dimension, first, count), last = view.groups, view.groups.end - 1
    which = f"work-group {last}" if count == 1 else f"work-groups {first} to {last}"
    found = [f"{which} of {launch.groups(dimension)} along dimension {dimension}"]
    for region in view.regions():
        found += _region(view, region, everything)
    if len(found) == 1:
        found.append("  touches no buffers" if count == 1 else "  touch no buffers")
    return found


def _region(view: LaunchView, region: Footprint, everything: bool) -> list[str]:
    argument = view.found.facts.arguments[region.argument]
    whole = view.nbytes(region.argument)
    verb = "reads " if region.kind == "read" else "writes"
    share = percent(region.nbytes / whole) if whole else percent(0)
    words = [region.shape, f"{nbytes(region.nbytes)} ({share})"]
    if region.exact and region.tight:
        words.append("exact")
    elif region.exact:
        words.append("exactly the set that is computed, which these rectangles contain")
    else:
        words.append(f"at most: {named(region.reason, view.found.facts)}")
    rectangles = [rectangle_words(rect, argument.size) for rect in region.rectangles]
    if len(rectangles) == 1:
        return [f"  {verb} {argument.name}  {rectangles[0]}  {', '.join(words)}"]
    rows = [f"      {rect}" for rect in rectangles]
    return [f"  {verb} {argument.name}  {len(rectangles)} pieces, {', '.join(words[1:])}", *cut(rows, everything)]


def _verdicts(view: LaunchView, everything: bool) -> list[str]:
    facts, found = view.found.facts, []
    for d, split in view.found.splits.items():
        if split.reasons:
            promised = [f"    {PROMISE}"] if split.promisable else []
            words = [*cut([f"    {named(reason, facts)}" for reason in split.reasons], everything), *promised]
            found += [f"dimension {d} does not split", *words]
        elif split.merges:
            merges = (f"{facts.arguments[i].name} by {how}" for i, how in split.merges.items())
            found.append(f"dimension {d} splits if copies are merged: {', '.join(merges)}")
        else:
            found.append(f"dimension {d} splits")
    reasons = [f"    {named(reason, facts)}" for reason in view.found.repeat.reasons]
    if reasons:
        found += ["running it twice differs from running it once", *cut(reasons, everything)]
    else:
        found.append("running it twice is running it once (idempotent)")
    found.append(_sub_kernel(view.sub_kernel))
    outside = [f"    {words}" for words in view.found.out_of_bounds]
    return [*found, "out of bounds", *cut(outside, everything)] if outside else found


def _sub_kernel(sub: SubKernel) -> str:
    if sub.reason:
        return f"sub-kernels cannot be made: {sub.reason}"
    if not sub.edited:
        return "sub-kernels run the source as it is"
    return f"sub-kernels are rewritten, with hidden arguments (ulong4): {', '.join(sub.hidden)}"


def as_dict(view: LaunchView) -> dict[str, Any]:
    """Return all of it as JSON's types; offsets, widths and pitches are in bytes."""
    found, launch = view.found, view.found.launch
    names = [a.name for a in found.facts.arguments]
    return {
        "global_size": list(launch.global_size),
        "local_size": list(launch.local_size),
        "offset": [launch.start(d) for d in range(len(launch.global_size))],
        "groups": [launch.groups(d) for d in range(len(launch.global_size))],
        "scalars": dict(view.scalars),
        "buffers": [
            {"argument": a.index, "name": a.name, "bytes": view.nbytes(a.index), "size_from": view.origin[a.index]}
            for a in view.buffers
        ],
        "failure": found.summary.failure,
        "range": view.groups._asdict(),
        "regions": [_region_dict(view, view.region(a.index, k)) for a in view.buffers for k in ("read", "write")],
        "splits": [
            {
                "dimension": d,
                "splittable": split.splittable,
                "merges": {names[i]: how for i, how in split.merges.items()},
                "reasons": list(split.reasons),
                "promisable": split.promisable,
            }
            for d, split in found.splits.items()
        ],
        "idempotent": found.repeat.idempotent,
        "not_idempotent": list(found.repeat.reasons),
        "out_of_bounds": list(found.out_of_bounds),
        "sub_kernel": {
            "possible": not view.sub_kernel.reason,
            "byte_identical": not view.sub_kernel.edited and not view.sub_kernel.reason,
            "hidden": list(view.sub_kernel.hidden),
            "reason": view.sub_kernel.reason,
        },
    }


def _region_dict(view: LaunchView, region: Footprint) -> dict[str, Any]:
    return {
        "argument": region.argument,
        "name": view.found.facts.arguments[region.argument].name,
        "kind": region.kind,
        "shape": region.shape,
        "boxes": [rect._asdict() for rect in region.rectangles],
        "bytes": region.nbytes,
        "tight": region.tight,
        "exact": region.exact,
        "reason": named(region.reason, view.found.facts),
    }
