"""The judge of versions: do they leave what the kernel leaves, in all buffers and all bytes?

Each version that a device can run is run there on copies of the arguments, as a whole and, where launches may be
divided along a dimension, each half of the work-groups alone: what it leaves is compared with what the kernel itself
leaves on the first device that can run it. So the check finds a version that writes bytes which the kernel does not
write, or that does another range of the work than it should.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manycl.api.arrays.arrays import Array
from manycl.errors import PolicyError, ResultError, VersionError
from manycl.graph.division import divide
from manycl.graph.graph import Buffer, BufferArg, BufferKey, Graph, Launch
from manycl.graph.rename import renamed
from manycl.graph.versions.versions import preferred, run_as
from manycl.group_range import GroupRange
from manycl.machine import DeviceIndex
from manycl.plan.plan import alone
from manycl.run.lowering.ranges import launches_of

if TYPE_CHECKING:
    from manycl.api.arrays.array_queue import ArrayQueue as Queue

_POISON = 0xA5  # each byte of arrays that have no contents; our own choice

_Bytes = npt.NDArray[np.uint8]


class CheckedVersion(NamedTuple):
    """A version that leaves what the kernel leaves: its name, the device's, and the groups that it did (None: all)."""

    version: str
    device: str
    groups: GroupRange | None


class Tolerance(NamedTuple):
    """The difference that elements which the kernel writes may have, as for ``numpy.isclose``; 0 and 0: no bit."""

    relative: float = 0.0
    absolute: float = 0.0


def check_versions(
    queue: Queue, graph: Graph, arrays: Mapping[BufferKey, Array], within: Tolerance
) -> list[CheckedVersion]:
    """Check the versions of the one launch of a graph that has several. Raises VersionError for the first that does
    something else, and what a run raises."""
    nodes = [n for n, task in enumerate(graph.nodes) if isinstance(task, Launch) and task.versions]
    if not nodes:
        return []
    return list(_Check(queue, graph, nodes[0], arrays, within).all())


class _Check:
    def __init__(
        self, queue: Queue, graph: Graph, node: int, arrays: Mapping[BufferKey, Array], within: Tolerance
    ) -> None:
        task = graph.nodes[node]
        assert isinstance(task, Launch)
        self._queue, self._graph, self._node, self._launch = queue, graph, node, task
        self._arrays, self._within = arrays, within
        self._machine = queue.session.machine
        self._before = {key: _contents(array) for key, array in arrays.items()}

    def all(self) -> Iterator[CheckedVersion]:
        """Check all versions on all devices, and yield what was checked, one after another."""
        programs, versions = self._queue.session.backend.programs, self._launch.versions
        able = {
            (index, device): not programs.fault(versions[index], device)
            for device, found in self._machine.numbered()
            for index in preferred(versions, found.kind)
        }
        home = next((d for (index, d), can in able.items() if index == 0 and can), None)
        if home is None:
            raise VersionError(
                f"kernel {self._launch.name} runs on no device: there is nothing to compare its versions with"
            )
        for groups, of in self._parts():
            expected = self._left(of[0], home)
            for (index, device), can in able.items():
                if can and index in of and (index or device != home):
                    self._compare(self._left(of[index], device), expected, index, device, groups)
                    name = versions[index].kernel.name
                    yield CheckedVersion(name, self._machine.devices[device].name, groups)

    def _parts(self) -> Iterator[tuple[GroupRange | None, Mapping[int, Launch]]]:
        """Yield all of the launch, and each half of its work-groups; with each, by version, the launch that does it."""
        launch, sizes = self._launch, {key: b.nbytes for key, b in self._graph.buffers.items()}
        yield None, {i: replace(launch, versions=(v,)) for i, v in enumerate(launch.versions)}
        for dimension in range(len(launch.global_size)):
            found = {}
            for index in range(len(launch.versions)):
                with suppress(PolicyError):
                    found[index] = divide(run_as(launch, index), dimension, sizes)
            if 0 not in found or found[0].groups < 2:
                continue
            alike = {i: division for i, division in found.items() if division.groups == found[0].groups}
            half = found[0].groups // 2
            for groups in (found[0].range(0, half), found[0].range(half, found[0].groups - half)):
                yield groups, {i: launches_of(division).range(groups, {}) for i, division in alike.items()}

    def _left(self, launch: Launch, device: DeviceIndex) -> dict[BufferKey, _Bytes]:
        """Return what a launch in the place of the graph's leaves, on a device, on copies of all arrays."""
        queue, graph = self._queue, self._graph
        copies = {key: queue.array(contents) for key, contents in self._before.items()}
        new = {key: copy.buffer.key for key, copy in copies.items()}
        buffers = {**graph.buffers, **{k: Buffer(k, graph.buffers[old].nbytes) for old, k in new.items()}}
        nodes = tuple(launch if n == self._node else task for n, task in enumerate(graph.nodes))
        exchanged = {**new, **{k: old for old, k in new.items()}}
        moved = renamed(replace(graph, nodes=nodes, buffers=buffers), exchanged)
        moved = replace(moved, buffers={k: b for k, b in buffers.items() if k not in new})
        queue.session.run(moved, alone(moved, device, self._machine, "check_versions"))
        queue.session.devices.learn()  # learns how long each version takes
        return {key: copy.get() for key, copy in copies.items()}

    def _compare(
        self,
        left: Mapping[BufferKey, _Bytes],
        expected: Mapping[BufferKey, _Bytes],
        index: int,
        device: DeviceIndex,
        groups: GroupRange | None,
    ) -> None:
        for key, array in self._arrays.items():
            written = key in self._launch.writes
            found, wanted = (data[key].view(array.dtype) for data in (left, expected))
            wrong = _different(found, wanted, self._within if written else Tolerance())
            if not wrong.any():
                continue
            first = int(np.argmax(wrong))
            names = [
                self._launch.kernel.arguments[i].name
                for i, a in enumerate(self._launch.args)
                if isinstance(a, BufferArg) and a.key == key
            ]
            what = f"argument {', '.join(names)}" if names else array.name or "an array"
            part = "all of it" if groups is None else f"work-groups {groups}"
            only = "" if written else ", which the kernel does not write"
            raise VersionError(
                f"version {self._launch.versions[index].kernel.name} of kernel {self._launch.kernel.name}, {part} on"
                f" {self._machine.devices[device].name}, does not leave what the kernel leaves: {what}{only}:"
                f" {int(wrong.sum())} of {wrong.size} elements, the first is number {first}: {found[first]} instead of"
                f" {wanted[first]}"
            )


def _contents(array: Array) -> _Bytes:
    """Return the bytes of an array, or made-up ones where its contents are undefined."""
    try:
        return np.ascontiguousarray(array.get()).reshape(-1).view(np.uint8)
    except ResultError:
        return np.full(array.nbytes, _POISON, np.uint8)


def _different(found: npt.NDArray[Any], wanted: npt.NDArray[Any], within: Tolerance) -> npt.NDArray[np.bool_]:
    """Return for each element whether it differs by more than a tolerance."""
    if within != Tolerance() and found.dtype.kind in "iufcb":
        with np.errstate(all="ignore"):
            close = np.isclose(found, wanted, rtol=within.relative, atol=within.absolute, equal_nan=True)
        far: npt.NDArray[np.bool_] = np.logical_not(close)
        return far
    bits = [data.view(np.uint8).reshape(-1, found.dtype.itemsize) for data in (found, wanted)]
    differ: npt.NDArray[np.bool_] = (bits[0] != bits[1]).any(axis=1)
    return differ
