"""The launch cache: launches like one before, given to a device of an eager stream
(:mod:`manycl.run.streams.eager_stream`) without being checked again.

Loops enqueue the same kernels with the same sizes, and most arguments are the same objects as the last time. An array
that is another object has to have the type and size of the one before, so all that was checked of that holds for it,
too; a number that is another one is converted, and the launch is checked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np

from manycl.api.arrays.arrays import Array, ArrayView
from manycl.drivers.driver import DriverError
from manycl.graph import bounds
from manycl.graph.graph import Argument, BufferArg, Launch
from manycl.graph.integers import Integers
from manycl.graph.known import FLOATS
from manycl.graph.launch import with_arguments
from manycl.machine import DeviceIndex
from manycl.model.trips import TripCount, trip_count
from manycl.run.executor.programs import KernelObject
from manycl.run.streams.batch import CommandBatch
from manycl.run.streams.eager_stream import EagerStream
from manycl.run.streams.in_flight import UNKNOWN

if TYPE_CHECKING:
    from manycl.api.queue import Queue


_UNKNOWN = object()
"""An object that is no argument."""
_KEPT = 1024  # scalars that a cached launch was checked with, at most
_SEVERAL = 8  # checks, after which the analysis is asked which scalars matter
_FIXED = (int, float, bytes, np.number, np.bool_)
"""Types of arguments whose value is the same as long as they are the same object; others (arrays, lists, structs) are
converted each time."""


class CachedLaunch:
    """A launch of a kernel at one NDRange on a device, on arrays of certain types and sizes. ``device``: its index, and
    the alignment of sub-buffers in bytes. ``convert(i, value)``: returns the value that argument i, which is no array,
    is set to."""

    __slots__ = (
        "_alignment",
        "_arrays",
        "_bound",
        "_checked",
        "_checks",
        "_convert",
        "_deciding",
        "_device",
        "_flight",
        "_flights",
        "_integers",
        "_kernel",
        "_known",
        "_launch",
        "_leg",
        "_listed",
        "_measured",
        "_noted",
        "_ranges",
        "_seconds",
        "_steering",
        "_trips",
        "_values",
        "_writing",
    )

    def __init__(
        self,
        launch: Launch,
        device: tuple[DeviceIndex, int],
        kernel: KernelObject,
        args: Sequence[Any],
        convert: Callable[[int, Any], Argument],
    ) -> None:
        self._device: DeviceIndex | None
        self._device, self._alignment = device
        self._launch = launch
        self._ranges = launch.global_size, launch.local_size
        self._kernel = kernel
        self._convert = convert
        self._arrays = tuple([(a.dtype, a.nbytes) if isinstance(a, Array) else None for a in args])
        facts = launch.kernel.arguments
        self._deciding = tuple(
            [i for i, fact in enumerate(facts) if fact.base not in FLOATS and self._arrays[i] is None]
        )
        self._checked = {self._decided(launch.args)}  # scalars with which it keeps to its buffers
        self._checks = 0  # so many times with other scalars
        self._integers = Integers(launch, [array[1] if array is not None else None for array in self._arrays])
        self._steering: dict[int, Any] | None = None  # scalars that decide how long it takes; None: not known
        self._trips: TripCount | None = None
        self._measured: tuple[float, float] | None = None  # f and seconds of the last time, where it took long
        self._flights = 0
        self._seconds = UNKNOWN
        self._writing = tuple([i for i, fact in enumerate(facts) if fact.kind == "buffer" and fact.writes])
        self._forget()

    def _forget(self) -> None:
        """Let go of the arguments that it was given last."""
        count = len(self._arrays)
        self._flight: EagerStream | None = None  # the one for which all that follows is right
        self._leg: CommandBatch | None = None  # its batch, which has it in its list
        self._noted: CommandBatch | None = None  # the batch whose stream knows that it refers to arrays
        self._listed: EagerStream | None = None
        self._known: list[Any] = [_UNKNOWN] * count  # the arguments, as the call gave them
        self._bound: list[Argument] = [b""] * count  # the arguments, as the launch has them
        self._values: list[Any] = [None] * count  # the arguments, as the kernel has them

    def looked(self) -> None:
        """Let go of the arrays that it was given last."""
        self._leg = self._noted = None
        known = self._known
        for i, array in enumerate(self._arrays):
            if array is not None:
                known[i] = _UNKNOWN

    def retire(self) -> None:
        """Invalidate it, as its device may have become another one: a thread that has just found it in the cache checks
        the launch first."""
        self._device = None
        self._forget()

    @property
    def is_settled(self) -> bool:
        """True if the ends of more eager streams would tell nothing new about it."""
        return self._flights > 1

    def landed(self, seconds: float) -> None:
        """Note that its eager stream is over. ``seconds``: of such a command there. The next stream counts on that for
        kernels that do the same work each time; for others, too, but on no less than ``UNKNOWN``."""
        args = self._bound
        self._forget()
        self._flights += 1
        is_long = seconds > UNKNOWN  # then seconds with other scalars are predicted
        if self._trips is None and (is_long or self._flights == 2):  # it may well come again
            self._trips = trip_count(self._launch.program, self._launch.kernel)
            self._steering = {i: None for _, i, _ in self._trips.scalars} if self._trips.bounded else None
        if self._steering is None:
            self._seconds = max(UNKNOWN, seconds)
            return
        self._seconds = seconds
        self._measured = (self._f(args), seconds) if is_long else None
        self._steering = {i: args[i] for i in self._steering}

    def _decided(self, args: Sequence[Argument]) -> tuple[Argument, ...]:
        """Return the arguments, but for arrays, on which the accesses may depend."""
        return tuple([args[i] for i in self._deciding])

    def _narrowed(self, args: Sequence[Argument]) -> tuple[Argument, ...]:
        """Return the arguments of ``_decided``, of which there may be fewer once the analysis has found on which of
        them the accesses depend."""
        decide = bounds.decides(self._launch.program, self._launch.kernel)
        if decide is not None:
            self._deciding = tuple([i for i in self._deciding if i in decide])
            self._checked.clear()
        return self._decided(args)

    def _f(self, args: Sequence[Argument]) -> float:
        """Return the product of trip counts with some arguments: the time is taken to be proportional to it."""
        assert self._trips is not None
        launch = with_arguments(self._launch, tuple(args))
        return self._trips.of(launch, launch)

    def again(self, queue: Queue, flight: EagerStream, args: tuple[Any, ...]) -> bool:
        """Enqueue the launch once more. Returns False where it has to be checked first: then nothing was done."""
        with flight.lock:
            if not flight.is_open:
                return False
            kernel, known = self._kernel, self._known
            # (compared as objects: numbers that are equal need not have the same bytes)
            is_same = self._leg is flight.leg and len(args) == len(known) and all(map(is_, args, known))
            if not (is_same and kernel.setter is self) and not self._bind(queue, flight, args):
                return False
            flight.is_giving = True
            try:
                event = flight.launch(flight.queue, kernel.kernel, *self._ranges, None, flight.uploads or None)
            except DriverError:
                flight.is_giving = False
                return False  # the usual way tries again, and raises the error
            if flight.uploads:
                flight.uploads = []
            flight.given.append((self._launch, self._bound, event))
            flight.is_giving = False
            flight.ahead += self._seconds
            if flight.ahead > flight.limit:
                flight.pace()
            return True

    def _bind(self, queue: Queue, flight: EagerStream, args: tuple[Any, ...]) -> bool:
        """Set the kernel's arguments, of which some are other objects than the last time. Returns False for arguments
        that are not like those."""
        arrays = self._arrays
        if len(args) != len(arrays) or flight.device != self._device:
            return False
        is_set = self._flight is flight and self._kernel.setter is self
        if self._flight is not flight:
            self._forget()
        self._kernel.setter = self._flight = self._leg = None  # until all is done: Ctrl-C may come any time
        known, bound, values = self._known, self._bound.copy(), self._values
        used, allocations, mapped = flight.arrays, flight.allocations, queue.mapped
        held, put, changed = self._kernel.held, self._kernel.set, list[int]()
        for i, value in enumerate(args):
            if value is known[i]:
                continue
            array = arrays[i]
            if array is None:
                changed.append(i)
            else:
                kind = type(value)
                if kind is not Array and kind is not ArrayView:
                    return False
                buffer, wanted, nbytes = value.buffer, *array
                key = buffer.key
                if value.queue is not queue or value.dtype is not wanted or key in mapped:
                    return False
                if key not in used and not flight.adopt(value.owner):
                    return False
                if kind is Array and buffer.nbytes == nbytes:
                    allocation = allocations[key]
                elif value.nbytes == nbytes and not value.offset % self._alignment:
                    allocation = queue.session.backend.memory.argument(value.argument, flight.device)
                else:
                    return False
                values[i] = allocation
                bound[i], known[i] = value.argument, value
                if is_set and allocation is not held[i]:
                    held[i] = None
                    put(i, allocation)
                    held[i] = allocation
        if changed:
            self._take_numbers(flight, args, changed, bound)
        if changed or not is_set:
            self._set(changed if is_set else range(len(values)))
        self._complete(flight, bound)
        return True

    def _complete(self, flight: EagerStream, bound: list[Argument]) -> None:
        """Note that all arguments have been set, and make the launch part of the current batch."""
        self._bound = bound
        if flight is not self._listed:
            flight.forms.append(self)
            flight.is_settled = flight.is_settled and self._flights > 1
            self._listed = flight
        leg = flight.leg
        if leg is not self._noted:
            flight.bound.append(self)
            self._noted = leg
        leg.begin()
        written = leg.written
        for i in self._writing:
            argument = bound[i]
            assert type(argument) is BufferArg
            written.add(argument.key)
        self._kernel.setter, self._flight, self._leg = self, flight, leg

    def _take_numbers(
        self, flight: EagerStream, args: Sequence[Any], changed: Sequence[int], bound: list[Argument]
    ) -> None:
        """Convert the arguments that are no arrays and have changed. Raises LaunchError where the launch would leave
        its buffers with them."""
        is_longer, steering = False, self._steering
        for i in changed:
            value = args[i]
            found = self._values[i] = bound[i] = self._convert(i, value)
            self._known[i] = value if isinstance(value, _FIXED) else _UNKNOWN
            if steering is not None and i in steering and steering[i] != found:
                steering[i] = found
                if self._measured is None:
                    flight.ahead += UNKNOWN
                else:
                    is_longer = True
        if (decided := self._decided(bound)) not in self._checked:
            if not self._integers.cover(bound):
                decided = self._check(flight, bound, decided)
            if len(self._checked) >= _KEPT:
                self._checked.clear()
            self._checked.add(decided)
        if is_longer and self._measured is not None:
            f, seconds = self._measured
            self._seconds = seconds * self._f(bound) / f

    def _check(
        self, flight: EagerStream, bound: Sequence[Argument], decided: tuple[Argument, ...]
    ) -> tuple[Argument, ...]:
        """Check that it keeps to its buffers with other numbers. Raises LaunchError where it does not."""
        self._checks += 1
        if self._checks == _SEVERAL and not self._launch.versions:
            decided = self._narrowed(bound)
        bounds.check_launch(
            with_arguments(self._launch, tuple(bound)),
            {a.key: flight.arrays[a.key].buffer for a in bound if type(a) is BufferArg},
        )
        return decided

    def _set(self, changed: Iterable[int]) -> None:
        """Set the arguments of the kernel at some indices."""
        kernel, values = self._kernel, self._values
        held = kernel.held
        for i in changed:
            value, before = values[i], held[i]
            if value is not before and not (type(value) is bytes and value == before):
                kernel.put(i, value)
