"""What graphs have in common that do the same with other buffers. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from manycl.graph.dependences import Batch
from manycl.graph.graph import Argument, BufferArg, BufferKey, CopyTask, FillTask, HostTask, Launch, version_contents
from manycl.graph.known import FLOATS


class Signature(NamedTuple):
    """``structure``: all that a batch consists of but the values of scalars and which buffers it names, by the order in
    which the nodes name them. ``scalars``: their values. ``keys``: of the buffers, in that order. Programs count by
    identity, so a signature means something as long as one of its graphs is kept."""

    structure: Hashable
    scalars: tuple[bytes, ...]
    keys: tuple[BufferKey, ...]


def signature(batch: Batch) -> Signature | None:
    """What a batch has in common with others.

    None for one with host functions: what those do is theirs, and each has to run as it was given. Takes some
    microsecond a node.
    """
    places: dict[BufferKey, int] = {}
    place = places.setdefault
    nodes: list[object] = []
    scalars: list[bytes] = []
    for task in batch.nodes:
        if isinstance(task, Launch):
            args: list[object] = []
            for a in task.args:
                if type(a) is bytes:
                    scalars.append(a)
                    args.append(None)
                else:
                    args.append(_at(a, places))
            named = [*task.reads, None, *task.writes, None, *task.overwrites]
            nodes.append(
                (
                    id(task.program),
                    id(task.kernel),
                    task.global_size,
                    task.local_size,
                    task.global_offset,
                    *args,
                    *[key if key is None else place(key, len(places)) for key in named],
                    task.device,
                    task.rank,
                    task.annotations,
                    task.partition,
                    task.versions and version_contents(task.versions),
                )
            )
        elif isinstance(task, HostTask):
            return None
        else:
            nodes.append(_moving(task, places))
    keys = tuple(places)
    if len(keys) != len(batch.buffers):
        return None  # it has buffers that no node names
    sizes = tuple([batch.buffers[key].nbytes for key in keys])
    return Signature((tuple(nodes), tuple(batch.after.items()), batch.components, sizes), tuple(scalars), keys)


def deciding_scalars(batch: Batch) -> tuple[bytes, ...]:
    """The scalars that subscripts and trip counts may depend on, which decide what a plan is worth: all but
    floating-point ones."""
    return tuple(
        [
            value
            for task in batch.nodes
            if isinstance(task, Launch)
            for value, facts in zip(task.args, task.kernel.arguments, strict=True)
            if type(value) is bytes and facts.base not in FLOATS
        ]
    )


def _moving(task: CopyTask | FillTask, places: dict[BufferKey, int]) -> tuple[object, ...]:
    what = (task.source_offset,) if isinstance(task, CopyTask) else (task.pattern,)
    args = tuple([places.setdefault(a.key, len(places)) for a in task.args])
    return task.function, args, task.nbytes, task.target_offset, *what, task.overwrites != (), task.device, task.rank


def _at(argument: Argument, places: dict[BufferKey, int]) -> object:
    """Which buffer an argument is, and which part of it; or how much local memory."""
    if type(argument) is BufferArg:
        place = places.setdefault(argument.key, len(places))
        return place if argument.nbytes is None else (place, argument.offset, argument.nbytes)
    return argument
