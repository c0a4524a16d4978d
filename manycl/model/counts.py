"""Counted work of launches: operations by kind and bytes, as the analysis finds them for the launch itself. Counting
takes one to three milliseconds a launch, so only so many launches of a graph are counted. Others of the same kernel get
the counts of the one that is nearest in T f, in proportion, and say so. Where the analysis cannot tell
(``Work.operations`` is empty), ``Work.reason`` says why."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from manycl.analysis.costs.cost import Work
from manycl.errors import ManyclError
from manycl.graph.access import is_partial, touched
from manycl.graph.graph import Buffer, BufferArg, BufferKey, Launch, Version
from manycl.graph.versions.host_version import analysed
from manycl.graph.versions.sequence import SequenceProgram
from manycl.model.history.history import KernelKey, kernel_key
from manycl.model.work import work_of
from manycl.utilities.unforeseen import told

if TYPE_CHECKING:
    from manycl.analysis.launched import LaunchFacts

MOST = 64  # launches of a graph that are counted, or by which models are compared, at most; our own choice
EACH = 8  # launches of one kernel that are counted, or by which a guess is scaled, at most; our own choice
PROPORTION = "in proportion to another launch of the kernel"


class _Kind(NamedTuple):
    """A kind of launches of a kernel that are counted once."""

    global_size: tuple[int, ...]
    f: float
    nbytes: int


class Counts:
    """The work of launches on these buffers; each kind is counted when first asked for, if ``counted``."""

    def __init__(self, buffers: Mapping[BufferKey, Buffer], *, counted: bool = True) -> None:
        self._buffers = buffers
        self._found: dict[KernelKey, dict[_Kind, Work]] = {}
        self._left = MOST if counted else 0

    def work(self, launch: Launch, chosen: Launch | Version) -> Work:
        """Return the work of a whole launch of an implementation. ``global_bytes`` is what it moves if everything
        touched before is still cached: the bytes of its buffers, or of all accesses if fewer."""
        plain = work_of(launch, chosen)
        nbytes = buffer_bytes(self._buffers, launch)
        kind = _Kind(chosen.global_size, plain.f, nbytes)
        known = self._found.setdefault(kernel_key(chosen), {})
        found = known.get(kind)
        if found is None:
            hopeless = any(not w.operations for w in known.values())
            if self._left <= 0 or len(known) >= EACH or hopeless:
                return _in_proportion(known.values(), plain, nbytes)
            self._left -= 1
            found = known[kind] = _counted(launch, chosen, plain, self._buffers, nbytes)
        return found

    def of_steps(self, launch: Launch, program: SequenceProgram) -> list[Work]:
        """Return the work of each kernel of a sequence that a launch may run as."""
        temporaries = {key: Buffer(key, nbytes) for key, nbytes in program.sizes().items()}
        counts = Counts({**self._buffers, **temporaries}, counted=self._left > 0)
        return [counts.work(step, step) for step in program.launches(launch)]


def buffer_bytes(buffers: Mapping[BufferKey, Buffer], launch: Launch) -> int:
    """Return the bytes of the buffers, or parts of them, that a launch reads, and of those it writes."""
    nbytes = 0
    if is_partial(launch):
        keys = (*launch.reads, *launch.writes)
        for regions in touched(launch, {key: buffers[key].nbytes for key in keys}):
            nbytes += sum(region.nbytes for region in regions.values())
        return nbytes
    for key in launch.reads:
        nbytes += buffers[key].nbytes
    for key in launch.writes:
        nbytes += buffers[key].nbytes
    return nbytes


def _counted_steps(program: SequenceProgram, launch: Launch, plain: Work, buffers: Mapping[BufferKey, Buffer]) -> Work:
    """Return the work of all kernels of a sequence."""
    found = Counts(buffers).of_steps(launch, program)
    operations: dict[str, float] = {}
    for work in found:
        for kind, n in work.operations.items():
            operations[kind] = operations.get(kind, 0.0) + n
    return replace(
        plain,
        operations=operations if all(work.operations for work in found) else {},
        global_bytes=sum(work.global_bytes for work in found),
        local_bytes=sum(work.local_bytes for work in found),
        exact=all(work.exact for work in found),
        reason="; ".join(dict.fromkeys(work.reason for work in found if work.reason)),
    )


def facts_of(launch: Launch, chosen: Launch | Version, sizes: Mapping[BufferKey, int]) -> LaunchFacts | None:
    """Return what the analysis finds of an implementation on such buffers; None: no source. Raises ManyclError."""
    program, kernel = analysed(chosen.program, chosen.kernel)
    if not program.tree:  # facts made by hand
        return None
    from manycl.analysis.service import launched
    from manycl.graph.known import known_launch

    # where the driver chooses the work-groups, those of one work-item stand for them: few counts depend on it
    local = chosen.local_size or (1,) * len(chosen.global_size)
    version = Version(program, kernel, chosen.global_size, local, annotations=chosen.annotations)
    return launched(program, kernel.name, known_launch(launch, sizes, version))


def _counted(
    launch: Launch, chosen: Launch | Version, plain: Work, buffers: Mapping[BufferKey, Buffer], nbytes: int
) -> Work:
    if isinstance(chosen.program, SequenceProgram):
        return _counted_steps(chosen.program, launch, plain, buffers)
    try:
        sizes = {a.key: buffers[a.key].nbytes for a in launch.args if isinstance(a, BufferArg)}
        facts = facts_of(launch, chosen, sizes)
        if facts is None:
            return replace(plain, global_bytes=nbytes, reason="there is no source to analyse")
        found = facts.work()
    except ManyclError as error:
        return replace(plain, global_bytes=nbytes, reason=error.message)
    except Exception as error:
        reason = told(error, f"counting kernel {chosen.kernel.name}")
        return replace(plain, global_bytes=nbytes, reason=reason)
    if not found.operations:
        return replace(plain, global_bytes=nbytes, reason=found.reason or "it does nothing")
    return replace(
        plain,
        operations=found.operations,
        global_bytes=min(nbytes, found.global_bytes),
        local_bytes=found.local_bytes,
        scattered=found.scattered,
        shared=found.shared,
        exact=found.exact,
        reason=found.reason,
    )


def _in_proportion(known: Collection[Work], plain: Work, nbytes: int) -> Work:
    """Return the work of a launch, in proportion to the one of its kernel that is nearest in T f."""
    if not known:
        return replace(plain, global_bytes=nbytes, reason="the graph has too many kinds of launches to count all")
    near = min(known, key=lambda w: abs(math.log(w.cost / plain.cost)))
    if not near.operations:
        return replace(plain, global_bytes=nbytes, reason=near.reason)
    factor, items = plain.cost / near.cost, plain.work_items / near.work_items
    return replace(
        plain,
        operations={kind: n * factor for kind, n in near.operations.items()},
        global_bytes=min(nbytes, near.global_bytes * items),
        local_bytes=near.local_bytes * factor,
        scattered=near.scattered * factor,
        shared=near.shared * factor,
        reason=PROPORTION,
    )
