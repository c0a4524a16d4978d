"""Kernels: their arguments, as they are set one by one or by a call, and what is known of them."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter_ns
from typing import Any
from weakref import ref

import numpy as np

from manycl.analysis import ArgumentFacts, KernelFacts
from manycl.api import events as api
from manycl.api.program import LocalMemory
from manycl.drivers.opencl.real import compiled
from manycl.errors import ManyclError
from manycl.stand_in.errors import error
from manycl.stand_in.native_model import NativeModel, group_info
from manycl.stand_in.objects.contexts import CommandQueue, Device
from manycl.stand_in.objects.events import Event, are_free, submit
from manycl.stand_in.objects.images import Image, Sampler
from manycl.stand_in.objects.memory import Buffer, MemoryObject, MemoryObjectHolder, as_bytes
from manycl.stand_in.objects.objects import OpenCLObject
from manycl.stand_in.objects.pools import PooledSVM
from manycl.stand_in.objects.programs import _Program

_LAUNCH = "clEnqueueNDRangeKernel"
_KIND = compiled.command_type.NDRANGE_KERNEL
_LOCAL = LocalMemory, compiled.LocalMemory
Sizes = tuple[int, ...]
NDRange = tuple[Sizes, Sizes | None, Sizes | None]
"""Global and local size, and offset."""


def enqueue_nd_range_kernel(
    queue: CommandQueue,
    kernel: Kernel,
    global_work_size: Any,
    local_work_size: Any,
    global_offset: Any = None,
    wait_for: Sequence[Event] | None = None,
    g_times_l: bool = False,
    allow_empty_ndrange: bool = False,
) -> Event:
    """Enqueue the kernel with the arguments as they are set now."""
    if queue.is_usual and are_free(wait_for) and not g_times_l and global_offset is None:
        event = _again(queue, kernel, global_work_size, local_work_size)
        if event is not None:
            return event
    size, local, offset = ndrange(global_work_size, local_work_size, global_offset, g_times_l)
    if 0 in size or (local is not None and 0 in local):
        if allow_empty_ndrange:
            return submit(queue, _KIND, wait_for, lambda: None)
        # else as the real device sees it
        return _whole(queue, kernel, (size, local, None), kernel.arguments(), wait_for, "it has no work-items")
    given = kernel.arguments()
    if kernel.shares:
        for value in given:
            if isinstance(value, Buffer):
                value.share()
    if kernel.apart or kernel.facts is None:
        return _whole(queue, kernel, (size, local, offset), given, wait_for, kernel.why_whole)
    manycl = queue.manycl
    bound = [_bound(value) for value in given]

    def enqueue() -> api.Event | None:
        try:
            return kernel.front(manycl, size, local, *bound, global_offset=offset)
        except ManyclError as refused:
            _run_whole(queue, kernel, (size, local, offset), given, refused.message)
            return None

    return submit(queue, _KIND, wait_for, enqueue)


def _again(queue: CommandQueue, kernel: Kernel, size: Any, local: Any) -> Event | None:
    """A launch of arguments that are nothing special; None for others."""
    try:
        if kernel.missing or kernel.apart or kernel.shares:
            return None
        # (AttributeError for a buffer that is gone)
        bound = [value().array if type(value) is ref else value for value in kernel.given]  # type: ignore[union-attr]
        queued = perf_counter_ns() if queue.is_profiling else 0
        event = Event(queue, _KIND, kernel.front(queue.manycl, size, local, *bound))
        if queued:
            event.queued = queued
        return event
    except (ManyclError, AttributeError, TypeError):  # sizes that are lists, buffers that are gone, and what is refused
        return None


def _bound(value: Any) -> Any:
    """Return what manycl's kernel is given for an argument."""
    if isinstance(value, Image):
        return value.argument()
    return value.array if isinstance(value, Buffer) else value.number if isinstance(value, Sampler) else value


def ndrange(size: Any, local: Any, offset: Any, g_times_l: bool) -> tuple[Sizes, Sizes | None, Sizes | None]:
    """Sizes as tuples, as PyOpenCL takes them: with ``g_times_l`` the global size, and the offset, are counted in
    work-groups, and what has less dimensions is filled up."""
    routine = "enqueue_nd_range_kernel"
    extents = tuple([int(n) for n in size])
    groups = None if local is None else tuple([int(n) for n in local])
    first = None if offset is None else tuple([int(n) for n in offset])
    if groups is not None:
        if g_times_l:
            dimensions = max(len(extents), len(groups))
            extents += (1,) * (dimensions - len(extents))
            groups += (1,) * (dimensions - len(groups))
            extents = tuple([g * w for g, w in zip(extents, groups, strict=True)])
        elif len(groups) != len(extents):
            raise error("INVALID_VALUE", routine, "global/local work sizes have differing dimensions")
    if first is not None:
        if len(first) != len(extents):
            raise error("INVALID_VALUE", routine, "global work size and offset have differing dimensions")
        if g_times_l and groups is not None:
            first = tuple([o * w for o, w in zip(first, groups, strict=True)])
    return extents, groups, first


def _whole(
    queue: CommandQueue, kernel: Kernel, sizes: NDRange, given: Sequence[Any], wait_for: Any, reason: str
) -> Event:
    return submit(queue, _KIND, wait_for, lambda: _run_whole(queue, kernel, sizes, given, reason))


def _run_whole(queue: CommandQueue, kernel: Kernel, sizes: NDRange, given: Sequence[Any], reason: str) -> None:
    """On the best real device, when all that was enqueued before has ended; wait for it. Raises RuntimeError where it
    has not so much local memory as a work-group needs, which drivers need not look at."""
    runtime, (size, local, offset) = queue.runtime, sizes
    one, needed = runtime.one, sum([value.size for value in given if isinstance(value, _LOCAL)])
    needed += kernel.facts.local_bytes if kernel.facts is not None else 0
    if needed and needed > (most := one.device.get_info(compiled.device_info.LOCAL_MEM_SIZE)):
        raise error("OUT_OF_RESOURCES", _LAUNCH, f"{needed} bytes of local memory, where there are {most}")
    if local is not None and not kernel.apart and isinstance(one.device, NativeModel):
        raise error("INVALID_WORK_GROUP_SIZE", _LAUNCH, f"{reason}; {one.device.missing}")
    runtime.finish()
    real = kernel.real
    with one.lock:
        memory = {value for value in given if isinstance(value, MemoryObject)}
        loan = one.lend(value for value in memory if not isinstance(value, Buffer) or value.array is not None)
        try:
            for index, value in enumerate(given):
                set_real(real, index, loan.real.get(value) if isinstance(value, MemoryObject) else real_value(value))
            compiled.enqueue_nd_range_kernel(one.queue, real, size, local, offset).wait()
        finally:
            loan.end()
    runtime.whole[kernel.name, kernel.line, reason] += 1


_INFO = compiled.kernel_info
_GROUP = compiled.kernel_work_group_info
_ROUTINE = "clSetKernelArg"
_PACKERS = {code.encode(): struct.Struct(code).pack for code in "bBhHiIlLfd"} | {b"c": struct.Struct("b").pack}
_FLOATS: dict[bytes, type[np.floating[Any]]] = {b"f": np.float32, b"d": np.float64}

NOT_SET = object()
"""An argument that nothing was given for."""


class Kernel(OpenCLObject):
    """``given``: the arguments: buffers (by weak references, as OpenCL's kernels do not keep them), bytes, local memory
    and objects that only the real device can take, whose indices are ``apart``. ``missing``: how many were not given.
    """

    def __init__(self, program: Any, name: str) -> None:
        self.owner: _Program = program if isinstance(program, _Program) else program._get_prg()
        self._name = name
        self._source = vars(program).get("_source")  # PyOpenCL records calls with it
        self._real: Any = None
        facts = self.owner.facts
        self.facts: KernelFacts | None = facts.kernels.get(name) if facts is not None else None
        if facts is not None and self.facts is None and self.owner.is_native:
            raise error("INVALID_KERNEL_NAME", "clCreateKernel")
        if self.facts is None:
            count = int(self.real.get_info(_INFO.NUM_ARGS))
        else:
            self.front = self.owner.kernel(name)
            count = len(self.facts.arguments)
        self._arguments: tuple[ArgumentFacts | None, ...] = (
            (None,) * count if self.facts is None else self.facts.arguments
        )
        self.given: list[Any] = [NOT_SET] * count
        self.missing = count
        self.shares = False  # whether there are images, or buffers that lie on the host's memory
        self.apart: set[int] = set() if self.facts is not None else set(range(count))
        self._enqueue: Callable[..., Event] | None = None
        self._set_args: Callable[..., None] | None = None

    @property
    def real(self) -> Any:
        """The kernel of the best real device."""
        if self._real is None:
            self._real = compiled.Kernel(self.owner.real, self._name)
        return self._real

    @property
    def name(self) -> str:
        return self._name

    @property
    def why_whole(self) -> str:
        """Why the real device alone runs it, with the arguments that it has now."""
        if self.facts is None:
            return self.owner.reason
        named = [(self.facts.arguments[i].name or f"#{i}", self.given[i]) for i in sorted(self.apart)]
        names = ", ".join(f"{name} ({_kind_of(value)})" for name, value in named)
        return f"only the real device takes what is given for {names}"

    @property
    def line(self) -> int:
        """The line of its definition; 0 where manycl has not read it."""
        return self.facts.line if self.facts is not None else 0

    def clone(self) -> Kernel:
        other = Kernel(self.owner, self._name)
        other.given, other.missing, other.apart = list(self.given), self.missing, set(self.apart)
        other.shares = self.shares
        other._enqueue, other._set_args = self._enqueue, self._set_args
        return other

    # arguments

    def arguments(self) -> list[Any]:
        """Return the arguments as they are now, buffers as such. Raises LogicError for what was not given, or is not
        there any more."""
        if self.missing:
            raise error("INVALID_KERNEL_ARGS", "clEnqueueNDRangeKernel")
        found = [value() if type(value) is ref else value for value in self.given]
        for index, value in enumerate(found):
            if value is None and self.given[index] is not None and index not in self.apart:
                raise error("INVALID_KERNEL_ARGS", "clEnqueueNDRangeKernel", f"argument {index} was released")
        return found

    def set_arg(self, index: int, value: Any) -> None:
        if not 0 <= index < len(self.given):
            raise error("INVALID_ARG_INDEX", _ROUTINE)
        fact = self._arguments[index]
        if isinstance(value, Buffer) and fact is not None and fact.kind == "buffer" and value.array is not None:
            if value.reference is self.given[index]:
                return
            self._take(index, value.reference)
            if value.whole.hostbuf is not None:
                self.shares = True
        elif isinstance(value, compiled.LocalMemory) and fact is not None and fact.kind == "local" and value.size:
            self._take(index, LocalMemory(value.size))
        elif fact is not None and _is_array(fact, value):
            self._take(index, value)
            self.shares = True
        elif value is None or isinstance(value, _OBJECTS):
            self._take_apart(index, value)
        else:
            self._set_arg_buf(index, value)

    def _take(self, index: int, value: Any) -> None:
        if self.given[index] is NOT_SET:
            self.missing -= 1
        self.given[index] = value
        if self.apart and self.facts is not None:
            self.apart.discard(index)

    def _take_apart(self, index: int, value: Any) -> None:
        """An argument for the real device, which says what is wrong with it; for a buffer's memory, at the launch."""
        if not isinstance(value, Buffer) or (value.array is None and value.nbytes):
            set_real(self.real, index, real_value(value))
        self._take(index, value.reference if isinstance(value, Buffer | PooledSVM) else value)
        self.apart.add(index)

    def _set_arg_buf(self, index: int, value: Any) -> None:
        try:
            data = value if type(value) is bytes else as_bytes(value).tobytes()
        except (TypeError, ValueError, BufferError):
            raise error("INVALID_VALUE", "Kernel.set_arg", "invalid kernel argument") from None
        self._set_bytes(index, data)

    def _set_bytes(self, index: int, data: bytes) -> None:
        if not 0 <= index < len(self.given):
            raise error("INVALID_ARG_INDEX", _ROUTINE)
        if data == self.given[index]:
            return
        fact = self._arguments[index]
        if fact is not None and fact.kind == "scalar" and (not fact.size or fact.size == len(data)):
            self._take(index, data)
        else:
            self._take_apart(index, data)

    def _set_arg_multi(self, pairs: Sequence[Any]) -> None:
        given = self.given
        both = iter(pairs)
        for index, value in zip(both, both, strict=True):
            if type(value) is not Buffer or value.reference is not given[index]:
                self._each(pairs[::2], self.set_arg, pairs[1::2])
                return

    def _set_arg_buf_multi(self, pairs: Sequence[Any]) -> None:
        self._each(pairs[::2], self._set_arg_buf, pairs[1::2])

    def _set_arg_buf_pack_multi(self, triples: Sequence[Any]) -> None:
        given, all_three = self.given, iter(triples)
        with suppress(struct.error, TypeError, OverflowError):
            for index, code, value in zip(all_three, all_three, all_three, strict=True):
                data = _PACKERS[code](value)
                if data != given[index]:
                    self._set_bytes(index, data)
            return
        self._each(triples[::3], self._set_packed, triples[1::3], triples[2::3])

    def _set_packed(self, index: int, code: bytes, value: Any) -> None:
        try:
            data = _PACKERS[code](value)
        except OverflowError:
            if code not in _FLOATS:
                raise
            with np.errstate(over="ignore"):
                data = _FLOATS[code](value).tobytes()
        except struct.error:
            if not hasattr(value, "__index__"):
                raise
            data = _wrapped(code, int(value))
        self._set_bytes(index, data)

    def _each(self, indices: Sequence[int], setter: Callable[..., None], *columns: Sequence[Any]) -> None:
        index, value = -1, None
        try:
            for index, *values in zip(indices, *columns, strict=True):
                value = values[-1]
                setter(index, *values)
        except compiled.Error as failure:
            words = f"when processing arg#{index + 1} (1-based): {failure}"
            arrays = sys.modules.get("pyopencl.array")
            if arrays is not None and isinstance(value, arrays.Array):
                words += " (perhaps you meant to pass 'array.data' instead of the array itself?)"
            raise type(failure)(compiled._ErrorRecord(failure.routine, failure.code, words)) from None
        except (struct.error, TypeError, OverflowError, ValueError) as failure:
            raise RuntimeError(f"when processing arg#{index + 1} (1-based): {failure}") from None

    def set_args(self, *args: Any) -> None:
        if self._set_args is not None:
            self._set_args(self, *args)
            return
        if len(args) != len(self.given):
            raise TypeError(f"set_args() takes {len(self.given)} arguments but {len(args)} were given")
        self._each(range(len(args)), self.set_arg, args)

    def _set_enqueue_and_set_args(self, enqueue: Callable[..., Event], set_args: Callable[..., None]) -> None:
        self._enqueue, self._set_args = enqueue, set_args

    def __call__(self, queue: Any, global_size: Any, local_size: Any, *args: Any, **options: Any) -> Event:
        if self._enqueue is not None:
            return self._enqueue(self, queue, global_size, local_size, *args, **options)
        if len(args) != len(self.given):
            raise TypeError(
                f"enqueue_knl_{self._name}() takes {len(self.given) + 4} positional arguments but {len(args) + 4} were"
                " given"
            )
        self._each(range(len(args)), self.set_arg, args)
        return enqueue_nd_range_kernel(queue, self, global_size, local_size, **options)

    # information

    def get_info(self, param: int) -> Any:
        own = {_INFO.FUNCTION_NAME: self._name, _INFO.NUM_ARGS: len(self.given), _INFO.PROGRAM: self.owner}
        own[_INFO.CONTEXT] = self.owner.own_context
        return own[param] if param in own else self.real.get_info(param)

    def get_work_group_info(self, param: int, device: Device) -> Any:
        """Return, for several devices, what all of them can do, and what none needs more of."""
        own = self.own_group_info(device)
        if param in own:
            return own[param]
        answer = compiled_group_info(self.real, param, device.model)
        if param not in _MERGED or self.facts is None or len(device.runtime.handles) < 2:
            return answer
        answers = [answer]
        programs, facts = device.runtime.session.backend.programs, self.front.program
        for index in programs.devices:
            try:
                kernel = programs.kernel(facts, self._name, index).kernel
            except ManyclError:  # it is not run there
                continue
            driver = device.runtime.session.backend.lanes[index].driver
            if not hasattr(driver, "cl"):  # of another kind, which has no more to say than OpenCL on the same cores
                continue
            answers.append(compiled_group_info(kernel.cl, param, driver.cl))  # type: ignore[attr-defined]
        return _MERGED[param](answers)

    def own_group_info(self, device: Device) -> dict[int, Any]:
        """Return what is known of its work-groups without asking a real device."""
        if self.facts is None or not self.owner.is_native:
            return {}
        return group_info(self.facts, device.runtime.session, self.given)

    def get_arg_info(self, index: int, param: int) -> Any:
        return self.real.get_arg_info(index, param)

    def get_sub_group_info(self, device: Device, param: int, input_value: Any = None) -> Any:
        return self.real.get_sub_group_info(device.model, param, input_value)


def _is_array(fact: ArgumentFacts, value: Any) -> bool:
    """Return whether a kernel may have an image as an array, or a sampler as a number."""
    if isinstance(value, Sampler):
        return fact.kind == "sampler"
    return isinstance(value, Image) and value.pixels is not None and fact.kind == "image"


def _kind_of(value: Any) -> str:
    """Return what is given for an argument, in a word."""
    if type(value) is ref:
        value = value()
    return "NULL" if value is None else type(value).__name__


def compiled_group_info(kernel: Any, param: int, device: Any) -> Any:
    """Return what a real kernel tells of its work-groups."""
    return compiled.Kernel.get_work_group_info(kernel, param, device)


_MERGED: dict[int, Callable[[Sequence[int]], int]] = {
    _GROUP.WORK_GROUP_SIZE: min,
    _GROUP.LOCAL_MEM_SIZE: max,
    _GROUP.PRIVATE_MEM_SIZE: max,
    _GROUP.PREFERRED_WORK_GROUP_SIZE_MULTIPLE: max,
}


def _wrapped(code: bytes, value: int) -> bytes:
    """The lowest bytes of an integer that does not fit, as C has it."""
    size = struct.calcsize(code.decode() if code != b"c" else "b")
    return (value & (1 << 8 * size) - 1).to_bytes(size, sys.byteorder)


def set_real(kernel: Any, index: int, value: Any) -> None:
    """Set an argument of a real kernel."""
    if value is None:
        kernel._set_arg_multi((index, None))  # (set_arg takes no None before PyOpenCL 2026)
    else:
        kernel.set_arg(index, value)


def real_value(value: Any) -> Any:
    """Return what the real device is given for an argument that is no buffer."""
    if isinstance(value, Buffer):
        raise error("INVALID_MEM_OBJECT", _ROUTINE)
    if isinstance(value, LocalMemory):
        return compiled.LocalMemory(value.size)
    return getattr(value, "real", value) if isinstance(value, OpenCLObject) else value


_OBJECTS = (MemoryObjectHolder, OpenCLObject, compiled.LocalMemory, compiled.Sampler, compiled.SVMPointer)
