"""Launches like one before, given to a device that takes them as they come (:mod:`manycl.run.flight`): what need not
be looked at again is not.

Loops enqueue the same kernels with the same sizes, most arguments being the same objects as the last time. Of those
that are not, an array has to have the type and size of the one before, so all that was checked of that holds for it,
too; a number is converted, and the launch is checked again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np

from manycl.drivers.driver import DriverError
from manycl.front.arrays import Array
from manycl.graph import bounds
from manycl.graph.graph import Argument, BufferArg, Launch
from manycl.graph.known import FLOATS
from manycl.graph.launch import with_arguments
from manycl.machine import DeviceIndex
from manycl.model.trips import TripCount, trip_count
from manycl.run.backends.programs import KernelObject, same
from manycl.run.flight import UNKNOWN, Flight

if TYPE_CHECKING:
    from manycl.front.queue import Queue


_UNKNOWN = object()
"""An argument that is no other one."""
_FIXED = (int, float, bytes, np.number, np.bool_)
"""What is the same value as long as it is the same object; others (arrays, lists, structs) are converted each time."""


class LaunchForm:
    """A kernel at one NDRange on a device, on arrays of certain types and sizes. ``convert(i, value)``: what argument
    i, which is no array, is set to."""

    __slots__ = (
        "_arrays",
        "_checked",
        "_convert",
        "_deciding",
        "_device",
        "_flight",
        "_flights",
        "_kernel",
        "_launch",
        "_measured",
        "_ranges",
        "_seconds",
        "_state",
        "_steering",
        "_trips",
    )

    def __init__(
        self,
        launch: Launch,
        device: DeviceIndex,
        kernel: KernelObject,
        args: Sequence[Any],
        convert: Callable[[int, Any], Argument],
    ) -> None:
        self._device = device
        self._launch = launch
        self._ranges = launch.global_size, launch.local_size
        self._kernel = kernel
        self._convert = convert
        self._arrays = tuple([(a.dtype, a.nbytes) if type(a) is Array else None for a in args])
        facts = launch.kernel.arguments
        self._deciding = frozenset(i for i, fact in enumerate(facts) if fact.base not in FLOATS)
        self._checked = list(launch.args)  # numbers with which it does not leave its buffers
        self._steering: dict[int, Any] | None = None  # numbers that decide how long it takes; None: who knows
        self._trips: TripCount | None = None
        self._measured: tuple[float, float] | None = None  # f, and seconds, the last time, where these are many
        self._flights = 0
        self._seconds = UNKNOWN
        self._forget()

    def _forget(self) -> None:
        """What it was given last may go."""
        nothing: list[Any] = [None] * len(self._arrays)
        self._flight: Flight | None = None
        # the arguments, as they are in launches, and what the kernel's are set to: in one, as Ctrl-C may come any time
        self._state: tuple[tuple[Any, ...], list[Any], list[Any]] = (_UNKNOWN,) * len(nothing), nothing, nothing

    def landed(self, seconds: float) -> None:
        """Its flight is over; ``seconds``: of a command there. Of kernels that end after the same work each time, the
        next flight counts on that; of others, that they take no less."""
        args = self._state[1]
        self._forget()
        self._flights += 1
        is_long = seconds > UNKNOWN  # then it is foreseen how many it takes with other numbers
        if self._trips is None and (is_long or self._flights == 2):  # it may well come more often
            self._trips = trip_count(self._launch.program, self._launch.kernel)
            self._steering = {i: None for _, i, _ in self._trips.scalars} if self._trips.bounded else None
        if self._steering is None:
            self._seconds = max(UNKNOWN, seconds)
            return
        self._seconds = seconds
        self._measured = (self._f(args), seconds) if is_long else None
        self._steering = {i: args[i] for i in self._steering}

    def _f(self, args: Sequence[Argument]) -> float:
        """What the time is taken to be proportional to, with some arguments."""
        assert self._trips is not None
        launch = with_arguments(self._launch, tuple(args))
        return self._trips.of(launch, launch)

    def again(self, queue: Queue, flight: Flight, args: tuple[Any, ...]) -> bool:
        """Launch the kernel once more; False where it has to be looked at first: then nothing was done."""
        with flight.lock:
            if not flight.is_open:
                return False
            known = self._state[0]
            if self._flight is flight:
                # (compared as objects: numbers that are equal need not have the same bytes)
                is_same = len(args) == len(known) and all(map(is_, args, known))
                if not is_same and not self._bind(queue, flight, args):
                    return False
            else:
                self._forget()
                if flight.device != self._device or not self._bind(queue, flight, args):
                    return False
                self._flight = flight
                flight.forms.append(self)
            kernel, ranges = self._kernel, self._ranges
            if kernel.setter is not self:
                self._set()
            flight.is_giving = True
            try:
                event = flight.launch(flight.queue, kernel.kernel, ranges[0], ranges[1], None, flight.uploads or None)
            except DriverError:
                flight.is_giving = False
                return False  # the error is told when it is tried again
            if flight.uploads:
                flight.uploads = []
            flight.given.append((self._launch, self._state[1], event))
            flight.is_giving = False
            flight.ahead += self._seconds
            if flight.ahead > flight.limit:
                flight.pace()
            return True

    def _set(self) -> None:
        kernel = self._kernel
        for i, (value, held) in enumerate(zip(self._state[2], kernel.held, strict=True)):
            if value is not held and not same(value, held):
                kernel.put(i, value)
        kernel.setter = self

    def _bind(self, queue: Queue, flight: Flight, args: tuple[Any, ...]) -> bool:
        """Take arguments of which some are others than the last time; False for what is not like these."""
        wanted = self._arrays
        if len(args) != len(wanted):
            return False
        known, before, held = self._state
        bound, values, written = list(before), list(held), []
        facts, checked, longer = self._launch.kernel.arguments, True, False
        steering, seen = self._steering, list[Any](args)
        for i, (value, last) in enumerate(zip(args, known, strict=True)):
            if value is last:
                continue
            array = wanted[i]
            if array is None:
                found = values[i] = bound[i] = self._convert(i, value)
                if not isinstance(value, _FIXED):
                    seen[i] = _UNKNOWN
                if i in self._deciding and found != self._checked[i]:
                    checked = False
                if steering is not None and i in steering and steering[i] != found:
                    steering[i] = found
                    if self._measured is None:
                        flight.ahead += UNKNOWN
                    else:
                        longer = True
                continue
            if type(value) is not Array or value.queue is not queue or value.dtype is not array[0]:
                return False
            buffer = value.buffer
            key = buffer.key
            if buffer.nbytes != array[1] or key in queue.mapped:
                return False
            if key not in flight.arrays and not flight.adopt(value):
                return False
            values[i], bound[i] = flight.allocations[key], value.argument
            if facts[i].writes:
                written.append(key)
        if not checked:
            bounds.check_launch(
                with_arguments(self._launch, tuple(bound)),
                {a.key: flight.arrays[a.key].buffer for a in bound if type(a) is BufferArg},
            )
            self._checked = bound
        if longer and self._measured is not None:
            f, seconds = self._measured
            self._seconds = seconds * self._f(bound) / f
        flight.written.update(written)
        self._kernel.setter = None
        self._state = tuple(seen), bound, values
        return True
