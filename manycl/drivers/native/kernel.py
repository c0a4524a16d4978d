"""Kernels of native devices with what their arguments are set to, and launches of them."""

from __future__ import annotations

import ctypes
import math
import struct
from array import array
from collections.abc import Mapping, Sequence
from operator import mod
from typing import Any, NamedTuple

from manycl.analysis.work_group.group_function import MOST_OWN, NARROW
from manycl.drivers.addresses import address_of, aligned
from manycl.drivers.driver import Bytes, DirectLaunch, DriverError, End, Source
from manycl.drivers.native.compiler.compiled import ALIGNMENT, NativeKernel
from manycl.graph.graph import LocalArg
from manycl.group_range import RangeParts

MOST_FRAME = 1 << 28  # bytes, of each of a device's threads
_PAGE = 4096
_MOSTSHAPES = 64  # of a kernel that are kept
SHAPE = struct.Struct("@19QI4x")  # struct shape in runtime/device.h, up to where arguments lie
_COST, _LOCAL = 3 * 8, 10 * 8  # where in it the measured cost is, and the work-items of a group
_WORD = ctypes.c_uint64.from_address
_HINT = "choose a smaller work-group, or less local memory"


class NativeMemory:
    """Memory of a device: of an array of its own, of the host's, or a part of another one."""

    __slots__ = ("__weakref__", "address", "kept", "nbytes")

    def __init__(self, address: int, nbytes: int, kept: object) -> None:
        self.address, self.nbytes = address, nbytes
        self.kept = kept
        """What has the memory: an array, or the whole; None once it is freed."""


def new_bytes(nbytes: int) -> tuple[Bytes, int]:
    """Uninitialised memory and its address, which is a multiple of ALIGNMENT; of much memory, of a page's size."""
    least = _PAGE if nbytes >= _PAGE else ALIGNMENT
    try:
        data = aligned(nbytes, least)
    except MemoryError as error:
        raise DriverError(str(error)) from None
    return data, address_of(data)


def address_in(end: End, offset: int, nbytes: int) -> int:
    """The address of so many bytes of the buffer that an end of a copy is part of, from a byte of it on."""
    memory, low, *_ = end
    if isinstance(memory, NativeMemory):
        if memory.kept is None:
            raise DriverError("memory that has been freed cannot be copied or filled")
        address = memory.address
    else:
        address = address_of(memory)
    start = offset - low
    if start < 0 or start + nbytes > memory.nbytes:
        raise DriverError(f"bytes {offset} to {offset + nbytes} are not all in {memory.nbytes} from {low} on")
    return address + start


def check_fill(pattern: bytes, offset: int, nbytes: int) -> None:
    """Raises DriverError where bytes cannot be filled with a pattern."""
    length = len(pattern)
    if length not in (1, 2, 4, 8, 16, 32, 64, 128) or offset % length or nbytes % length:
        raise DriverError(f"{nbytes} bytes from {offset} on cannot be filled with a pattern of {length}")


def extents(counted: Sequence[int], memories: Mapping[int, NativeMemory]) -> list[int]:
    """The bytes of what is only counted in, and of which threads may have copies, as nothing else overlaps it (else 0).
    ``memories``: by the arguments that are set to them, some of which are ``counted``."""
    found, left = [], MOST_OWN
    for index in counted:
        memory = memories[index]
        begin, end = memory.address, memory.address + memory.nbytes
        others = [other for i, other in memories.items() if i != index]
        is_alone = all(other.address + other.nbytes <= begin or end <= other.address for other in others)
        room = -(-memory.nbytes // 64) * 64
        fits = is_alone and room <= left
        found.append(memory.nbytes if fits else 0)
        left -= room if fits else 0
    return found


class LaunchShape(NamedTuple):
    """The part that launches on an NDRange have in common: a ``struct shape`` and its address, the places of local
    arguments in the frame, by their words among the values, and the blocks in each dimension, with the work-items of
    each."""

    address: int
    data: ctypes.Array[ctypes.c_char]
    locals: tuple[tuple[int, int], ...]
    blocks: tuple[int, int, int]
    items: tuple[int, int, int]

    def stops(self, parts: RangeParts) -> array[int] | None:
        """A ``struct stops``: where a launch may end early. Blocks run with dimension 0 fastest, so what is behind some
        of them is another part only along the last dimension that has several blocks. None: nowhere."""
        along, ends = parts
        if len(ends) < 2 or max(self.blocks[along + 1 :], default=1) > 1:
            return None
        return array("Q", (along, self.items[along], math.prod(self.blocks[:along]), len(ends), *ends))


class SetKernel:
    """A kernel, and the values of its arguments as the compiled code finds them. ``places``: the bytes of ``content``
    at which the values begin, by argument; ``extents``: its words behind them, for :func:`extents`."""

    __slots__ = (
        "_asked",
        "_bytes",
        "_ends",
        "_held",
        "_last",
        "_local",
        "_nbytes",
        "_pointers",
        "_told",
        "_unset",
        "_uses",
        "_values",
        "_words",
        "extents",
        "kernel",
        "most_items",
        "places",
        "shapes",
        "source",
        "values",
    )

    def __init__(self, kernel: NativeKernel, device: str, source: Source | None = None) -> None:
        self.kernel = kernel
        names = [f"{'*' if each.kind == 'memory' else ' '}{each.name}" for each in kernel.parameters]
        self._told = "\0".join([device, kernel.name, *names, "", ""]).encode()
        self.source = source
        self.most_items = kernel.most_items
        self.shapes: dict[Any, LaunchShape] = {}
        self._last: LaunchShape | None = None
        self._asked: tuple[object, object, object, LaunchShape | None] = (None, None, None, None)  # an NDRange's
        self.places: list[int] = []
        self._ends: list[int] = []
        end = 0
        for parameter in kernel.parameters:
            size = parameter.nbytes if parameter.kind == "value" else 16  # of memory: its address and its size
            least = min(size & -size, ALIGNMENT)
            self.places.append(-(-end // least) * least)
            end = self.places[-1] + size
            self._ends.append(end)
        self.extents = range(-(-end // 8), -(-end // 8) + len(kernel.counted))
        self._nbytes = 8 * self.extents.stop
        self._values: Any = ctypes.create_string_buffer(max(self._nbytes, 8))
        self.values = ctypes.addressof(self._values)
        self._bytes = memoryview(self._values).cast("B")
        self._words = self._bytes.cast("Q")
        self._unset = set(range(len(self.places)))
        self._pointers = {i: at >> 3 for i, at in enumerate(self.places) if kernel.parameters[i].kind == "memory"}
        self._local: dict[int, int] = {}
        self._held: dict[int, NativeMemory] = {}
        self._uses: tuple[object, ...] | None = None

    def set(self, index: int, value: Any) -> None:
        """Set an argument, as DeviceKernel.set."""
        if type(value) is NativeMemory and (word := self._pointers.get(index)) is not None:
            self._words[word], self._words[word + 1] = value.address, value.nbytes
            self._held[index] = value
            self._uses = None
            if self._unset:
                self._unset.discard(index)
            return
        if not 0 <= index < len(self.places):
            raise DriverError(f"kernel {self.kernel.name} has {len(self.places)} arguments: there is no number {index}")
        kind = self.kernel.parameters[index].kind
        if kind == "value" and type(value) is bytes and len(value) == self._ends[index] - self.places[index]:
            self._bytes[self.places[index] : self._ends[index]] = value
        elif kind == "local" and type(value) is LocalArg:
            if self._local.get(index) != value.nbytes:
                self._local[index] = self._words[(self.places[index] >> 3) + 1] = value.nbytes
                self.shapes.clear()
                self._last = None
        else:
            given = f"{len(value)} bytes" if type(value) is bytes else type(value).__name__
            raise DriverError(f"argument {index} of kernel {self.kernel.name} is not set to {given}: it is a {kind}")
        if self._unset:
            self._unset.discard(index)

    @property
    def content(self) -> bytes:
        """The values of the arguments, and of the last shape, as the compiled code finds them."""
        return bytes(self._bytes[: self._nbytes])

    def set_values(self) -> dict[int, NativeMemory | bytes | LocalArg]:
        """Return what the arguments are set to. Raises DriverError if one is not."""
        if self._unset:
            raise DriverError(f"argument {min(self._unset)} of kernel {self.kernel.name} is not set")
        found: dict[int, NativeMemory | bytes | LocalArg] = {}
        for index, parameter in enumerate(self.kernel.parameters):
            if parameter.kind == "memory":
                found[index] = self._held[index]
            elif parameter.kind == "value":
                found[index] = bytes(self._bytes[self.places[index] : self._ends[index]])
            else:
                found[index] = LocalArg(self._local[index])
        return found

    def shape(
        self, global_size: tuple[int, ...], local_size: tuple[int, ...] | None, offset: tuple[int, ...] | None
    ) -> LaunchShape:
        """Return the shape of launches on an NDRange, which is checked."""
        items, each, begin, shape = self._asked
        is_same = global_size is items and local_size is each and offset is begin
        if is_same and shape is not None and shape is self._last:  # as in loops
            return shape
        key = global_size, local_size, offset
        shape = self.shapes.get(key)
        if shape is None:
            if len(self.shapes) >= _MOSTSHAPES:
                self.shapes.clear()
            shape = self.shapes[key] = self._shape(global_size, local_size, offset)
        if self._unset:
            raise DriverError(f"argument {min(self._unset)} of kernel {self.kernel.name} is not set")
        if shape is not self._last:
            for word, place in shape.locals:
                self._words[word] = place
            self._last = shape
            self._uses = None
        self._asked = global_size, local_size, offset, shape
        return shape

    def direct(self, like: SetKernel, global_size: tuple[int, ...], local_size: tuple[int, ...] | None) -> DirectLaunch:
        """Return the kernel at an NDRange for compiled code (DirectlyLaunched.direct_launch)."""
        if self._local == like._local:
            self.shapes.update(like.shapes)  # with what was measured of them
        shape = self.shape(global_size, local_size, None)
        words = tuple([self._pointers.get(i, -1) for i in range(len(self.places))])
        return DirectLaunch(shape.address, self.values, words, (shape, self))

    def uses(self) -> tuple[object, ...]:
        """Return what a launch like the last shape uses until it is complete."""
        found = self._uses
        if found is None:
            if self.extents:
                told = extents(self.kernel.counted, self._held)
                self._words[self.extents.start : self.extents.stop] = memoryview(array("Q", told))
            found = self._uses = (self._last, self.kernel, *self._held.values())
        return found

    def _shape(
        self, global_size: tuple[int, ...], local_size: tuple[int, ...] | None, offset: tuple[int, ...] | None
    ) -> LaunchShape:
        if self._unset:
            raise DriverError(f"argument {min(self._unset)} of kernel {self.kernel.name} is not set")
        local = self.kernel.choose_local(global_size) if local_size is None else local_size
        dims = len(global_size)
        offset = offset or (0,) * dims
        if not 1 <= dims <= 3 or len(local) != dims or len(offset) != dims or min(global_size) < 1 or min(local) < 1:
            raise DriverError(f"kernel {self.kernel.name}: {global_size}, {local_size}, {offset} is no NDRange")
        if any(map(mod, global_size, local)):
            raise DriverError(f"kernel {self.kernel.name}: work-groups of {local} do not divide {global_size}")
        if math.prod(local) > self.most_items:
            raise DriverError(
                f"kernel {self.kernel.name}: work-groups of {local} are larger than {self.most_items}", hint=_HINT
            )
        whole, each = (*global_size, 1, 1)[:3], (*local, 1, 1)[:3]
        wide = max([o + w for o, w in zip(offset, global_size, strict=True)]) > NARROW
        entry = self.kernel.entry((each[0], each[1], each[2]), dims, wide)
        frame, places = entry.frame, []
        if entry.tiles is not None:
            each = entry.tiles.block((whole[0], whole[1], whole[2]), (each[0], each[1], each[2]))
            frame += entry.tiles.frame((each[0], each[1], each[2]))
        groups = tuple([-(-w // e) for w, e in zip(whole, each, strict=True)])
        for index, nbytes in self._local.items():
            frame = -(-frame // ALIGNMENT) * ALIGNMENT
            places.append((self.places[index] >> 3, frame))
            frame += nbytes
        if frame > MOST_FRAME:
            raise DriverError(f"kernel {self.kernel.name}: a work-group needs {frame} bytes", hint=_HINT)
        places_of_values = [*self.places, *(8 * word for word in self.extents)]
        count = len(places_of_values)
        data = ctypes.create_string_buffer(SHAPE.size + 8 * max(count, 1) + len(self._told))
        cost = self._foreseen(math.prod(each))
        head = entry.address, frame, math.prod(groups), cost, self._nbytes, count, 0
        SHAPE.pack_into(data, 0, *head, *whole, *each, *(*offset, 0, 0)[:3], *groups, dims)
        struct.pack_into(f"@{count}Q{len(self._told)}s", data, SHAPE.size, *places_of_values, self._told)
        return LaunchShape(
            ctypes.addressof(data), data, tuple(places), (groups[0], groups[1], groups[2]), (each[0], each[1], each[2])
        )

    def _foreseen(self, items: int) -> int:
        """Return what a work-group of so many work-items costs, by the newest NDRange of which it was measured; 0: by
        none."""
        for shape in reversed(self.shapes.values()):
            if cost := _WORD(shape.address + _COST).value:
                local = (ctypes.c_uint64 * 3).from_address(shape.address + _LOCAL)
                return max(1, cost * items // math.prod(local))
        return 0
