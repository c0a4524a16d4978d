"""The versions of a launch, as ``manycl analyze`` shows them: what each is, and how launches may be divided by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from manycl.errors import PolicyError
from manycl.graph.division import Division, apart, divide
from manycl.graph.graph import BufferKey, Launch, Version
from manycl.graph.versions.host_version import HostProgram
from manycl.graph.versions.sequence import SequenceProgram
from manycl.graph.versions.versions import run_as


@dataclass(frozen=True, slots=True)
class VersionView:
    """One version. ``what``: a kernel, a function, or kernels, and where they are; ``kinds``: of devices that it is for
    (none: any that the kernel cannot be built for); ``dimensions`` along which a launch may be divided by it, and
    ``reasons`` why not along the others, by dimension."""

    name: str
    what: str
    kinds: tuple[str, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    dimensions: tuple[int, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VersionsView:
    """A launch with its ``versions``, the kernel itself first. ``together``: by dimension along which several of them
    may be divided, why ranges may not run different ones (empty: they may)."""

    name: str
    kernel: str
    versions: tuple[VersionView, ...]
    together: Mapping[int, str]


def versions_of(launch: Launch, sizes: Mapping[BufferKey, int]) -> VersionsView:
    """The versions of a launch that has some; ``sizes``: bytes of its buffers by key."""
    views, divided = [], {}
    for index, version in enumerate(launch.versions):
        found, reasons = [], []
        for dimension in range(len(version.global_size)):
            try:
                divided[index, dimension] = divide(run_as(launch, index), dimension, sizes)
                found.append(dimension)
            except PolicyError as error:
                reasons.append(error.message)
        own = version.kernel.name, _what(version), version.kinds, version.global_size, version.local_size
        views.append(VersionView(*own, tuple(found), tuple(reasons)))
    together = {}
    for dimension in range(len(launch.global_size)):
        several = [division for (_, d), division in divided.items() if d == dimension]
        if len(several) > 1:
            together[dimension] = _together(several)
    return VersionsView(launch.name, launch.kernel.name, tuple(views), together)


def as_dict(view: VersionsView) -> dict[str, Any]:
    """Return it as JSON's types."""
    return asdict(view) | {"together": {str(dimension): why for dimension, why in view.together.items()}}


def lines(view: VersionsView) -> list[str]:
    """Return it as lines for people."""
    called = "" if view.name == view.kernel else f" ({view.name})"
    out = [f"{view.kernel}{called}: {len(view.versions)} versions"]
    for version in view.versions:
        local = "" if version.local_size is None else f" in work-groups of {_sizes(version.local_size)}"
        kinds = f" for {', '.join(version.kinds)}" if version.kinds else ""
        out.append(f"  {version.name}: {version.what}{kinds}; {_sizes(version.global_size)} work-items{local}")
        if version.dimensions:
            out.append(f"    divided along dimension {', '.join(map(str, version.dimensions))}")
        out += [f"    {reason}" for reason in version.reasons]
    for dimension, why in view.together.items():
        may = f"may not run in different versions: {why}" if why else "may run in different versions"
        out.append(f"  ranges along dimension {dimension} {may}")
    return out


def _what(version: Version) -> str:
    program, kernel = version.program, version.kernel
    if isinstance(program, SequenceProgram):
        names = ", ".join(step.kernel.name for step in program.steps)
        room = f" with {sum(program.temporaries):,} bytes of temporary memory" if program.temporaries else ""
        return f"kernels {names}{room}"
    return f"{'function' if isinstance(program, HostProgram) else 'kernel'} {program.path}:{kernel.line}"


def _together(divisions: Sequence[Division]) -> str:
    """Why two halves may not run in different versions; empty: they may."""
    groups = {division.groups for division in divisions}
    if len(groups) > 1:
        return f"they have {' and '.join(map(str, sorted(groups)))} work-groups"
    (count,) = groups
    if count < 2:
        return "there is one work-group"
    half = count // 2
    return apart(divisions, [divisions[0].range(0, half), divisions[0].range(half, count - half)])


def _sizes(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))
