"""The one-device way: what manycl does not know, or cannot divide, is done by the real PyOpenCL on the best device.
Images, samplers, shared virtual memory, binaries, kernels that the analysis cannot read: their objects are real ones of
one context. A command that uses them is done at once, when all that was enqueued before it has ended, and waited for.
Buffers lend it the host's copy of their contents."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from manycl.drivers.driver import DriverError
from manycl.drivers.opencl.real import compiled
from manycl.stand_in.errors import error
from manycl.stand_in.native_model import NativeModel

if TYPE_CHECKING:
    from manycl.drivers.choice import OpenDevice
    from manycl.drivers.driver import Bytes


class Lendable(Protocol):
    """A memory object that the real device uses in one command."""

    def lent(self, loan: Loan) -> Any:
        """Return the real object for it."""


class LendableBuffer(Protocol):
    """A buffer whose contents the real device uses: those of the ``whole``, from the byte ``low`` on."""

    low: int
    nbytes: int

    @property
    def whole(self) -> LendableBuffer: ...

    def in_place(self) -> Bytes:
        """Return all bytes where the host has them."""


_FLAGS = compiled.mem_flags
_ROUTES = {"gpu": 2, "accelerator": 1, "cpu": 0}


def best(opened: Sequence[OpenDevice]) -> Any:
    """The real device that does most: a GPU before others, the one with the most operations per second. Parts count as
    the device that they are parts of, which does it, as PoCL's parts end the process where images are read. Where there
    are only native devices, and no OpenCL driver beside them, what answers for these."""
    groups: dict[int, list[OpenDevice]] = {}
    for one in opened:
        handle = handle_of(one)
        parent = _parent(handle)
        number = 0 if isinstance(handle, NativeModel) else handle.int_ptr if parent is None else parent.int_ptr
        groups.setdefault(number, []).append(one)

    def power(group: list[OpenDevice]) -> tuple[bool, bool, int, float]:
        device, is_real = group[0].device, not isinstance(handle_of(group[0]), NativeModel)
        return is_real, not device.simulator, _ROUTES.get(device.kind, 0), sum(one.device.flops for one in group)

    chosen = max(groups.values(), key=power)
    handle = handle_of(chosen[0])
    parent = _parent(handle)
    return handle if parent is None else parent


def handle_of(one: OpenDevice) -> Any:
    """PyOpenCL's device for one of manycl's; what answers for a native one that no OpenCL driver shows."""
    try:
        return one.handle.cl  # type: ignore[attr-defined]  # (native devices have it, too)
    except DriverError:
        return NativeModel(one.device)


def _parent(device: Any) -> Any:
    try:
        return None if isinstance(device, NativeModel) else device.parent_device
    except compiled.Error:
        return None


class OneDevice:
    """A real device; its context and queue are made when first needed. Who gives it commands holds the ``lock``."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.lock = threading.RLock()

    @cached_property
    def context(self) -> Any:
        """Raises RuntimeError (PyOpenCL's) where there is no real device."""
        if isinstance(self.device, NativeModel):
            raise error("INVALID_OPERATION", "manycl", self.device.missing)
        return compiled.Context([self.device])

    @cached_property
    def queue(self) -> Any:
        return compiled.CommandQueue(self.context, self.device)

    def lend(self, memory: Iterable[Lendable]) -> Loan:
        """Memory of the device for buffers and what is made of them, with the contents; ``Loan.end`` when the command
        has ended. The caller holds the lock."""
        return Loan(self, memory)


class Loan:
    """``real``: by the stand-in's memory objects, real ones; ``returns``: what brings contents back that are not the
    host's memory."""

    def __init__(self, one: OneDevice, memory: Iterable[Lendable]) -> None:
        self._one, self._queue = one, one.queue
        self._wholes: dict[LendableBuffer, Any] = {}
        self.returns: list[Callable[[Any], Any]] = []
        self.real: dict[Lendable, Any] = {target: target.lent(self) for target in memory}

    def buffer(self, buffer: LendableBuffer) -> Any:
        """A real buffer, the same memory for all parts of a whole."""
        whole = buffer.whole
        if whole not in self._wholes:
            flags = _FLAGS.READ_WRITE | _FLAGS.USE_HOST_PTR
            self._wholes[whole] = compiled.Buffer(self._one.context, flags, 0, whole.in_place())
        lent = self._wholes[whole]
        return lent if buffer is whole else lent.get_sub_region(buffer.low, buffer.nbytes, 0)

    def end(self) -> None:
        """What the device has written is in the buffers."""
        for bring in self.returns:
            bring(self._queue)
        for whole, lent in self._wholes.items():
            size = (whole.nbytes,)
            mapped, _ = compiled.enqueue_map_buffer(self._queue, lent, compiled.map_flags.READ, 0, size, np.uint8)
            mapped.base.release(self._queue)
        self._queue.finish()
