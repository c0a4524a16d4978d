"""Signatures of graphs: what those have in common that do the same with other buffers. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from operator import attrgetter
from typing import NamedTuple

from manycl.graph.dependences import Batch
from manycl.graph.graph import BufferArg, BufferKey, CopyTask, FillTask, HostTask, Launch, version_contents

_NBYTES = attrgetter("nbytes")
_SignedLaunch = tuple[object, list[bytes], list[bytes]]
"""What a launch is but for its buffers and scalars, its scalars, and those of them that decide."""


class Signature(NamedTuple):
    """``structure``: all that a batch consists of but the values of scalars and which buffers it names, by the order in
    which the nodes name them. ``scalars``: their values. ``keys``: of the buffers, in that order. ``deciding``: the
    scalars that subscripts and trip counts may depend on, which decide what a plan is worth. Programs count by
    identity, so a signature means something as long as one of its graphs is kept."""

    structure: Hashable
    scalars: tuple[bytes, ...]
    keys: tuple[BufferKey, ...]
    deciding: tuple[bytes, ...] = ()


def signature(batch: Batch) -> Signature | None:
    """Return what a batch has in common with others. None for one with host functions: each has to run as it was given.
    Takes some microsecond a node."""
    places: dict[BufferKey, int] = {}
    nodes: list[object] = []
    scalars: list[bytes] = []
    deciding: list[bytes] = []
    repeat = 2 * len(set(map(id, batch.nodes))) < len(batch.nodes)  # most launches come again and again
    known: dict[int, _SignedLaunch] = {}
    for task in batch.nodes:
        if isinstance(task, Launch):
            found = known.get(id(task)) or _running(task, places)
            if repeat:
                known[id(task)] = found
            node, values, decide = found
            nodes.append(node)
            scalars += values
            deciding += decide
        elif isinstance(task, HostTask):
            return None
        else:
            nodes.append(_moving(task, places))
    keys = tuple(places)
    if len(keys) != len(batch.buffers):
        return None  # it has buffers that no node names
    sizes = tuple(map(_NBYTES, map(batch.buffers.__getitem__, keys)))
    structure = tuple(nodes), tuple(batch.after.items()), batch.components, sizes
    return Signature(structure, tuple(scalars), keys, tuple(deciding))


def _running(task: Launch, places: dict[BufferKey, int]) -> _SignedLaunch:
    args: list[object] = []
    scalars: list[bytes] = []
    deciding: list[bytes] = []
    for a, facts in zip(task.args, task.kernel.arguments, strict=True):
        if type(a) is bytes:
            scalars.append(a)
            args.append(None)
            if facts.decides:
                deciding.append(a)
        elif type(a) is BufferArg:
            at = places.setdefault(a.key, len(places))
            args.append(at if a.nbytes is None else (at, a.offset, a.nbytes))
        else:  # local memory
            args.append(a)
    node = (
        id(task.program),
        id(task.kernel),
        task.global_size,
        task.local_size,
        task.global_offset,
        *args,
        tuple(map(places.get, task.reads)),
        tuple(map(places.get, task.writes)),
        tuple(map(places.get, task.overwrites)),
        task.device,
        task.rank,
        task.annotations,
        task.partition,
        task.versions and version_contents(task.versions),
    )
    return node, scalars, deciding


def _moving(task: CopyTask | FillTask, places: dict[BufferKey, int]) -> tuple[object, ...]:
    what = (task.source_offset,) if isinstance(task, CopyTask) else (task.pattern,)
    args = tuple([places.setdefault(a.key, len(places)) for a in task.args])
    return task.function, args, task.nbytes, task.target_offset, *what, task.overwrites != (), task.device, task.rank
