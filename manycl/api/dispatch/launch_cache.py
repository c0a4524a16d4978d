"""The launch cache: launches like one before, given to a device of an eager stream
(:mod:`manycl.run.streams.eager_stream`) without being checked again.

Loops enqueue the same kernels with the same sizes, and most arguments are the same objects as the last time. An array
that is another object has to have the type and size of the one before, so all that was checked of that holds for it,
too; a number that is another one is converted, and the launch is checked again. The entries are compiled code's
(:mod:`manycl.api.dispatch.compiled`); here is what they are made of, and what they ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

import numpy as np

from manycl.api.arrays.arrays import Array, ArrayView
from manycl.api.dispatch.compiled import entry_type, wanted
from manycl.drivers.driver import DriverError
from manycl.graph import bounds
from manycl.graph.graph import Argument, BufferArg, BufferKey, Launch, LocalArg
from manycl.graph.integers import Integers
from manycl.graph.launch import with_arguments
from manycl.machine import DeviceIndex
from manycl.model.trips import TripCount, found_before, trip_count
from manycl.run.executor.sub_buffers import unaligned
from manycl.run.streams.stream_state import UNKNOWN
from manycl.utilities.kept import FEW, MANY

if TYPE_CHECKING:
    from manycl.api.arrays.array_queue import ArrayQueue as Queue
    from manycl.drivers.driver import Allocation
    from manycl.run.session.session import Session
    from manycl.run.streams.eager_stream import EagerStream


_UNKNOWN = object()
"""An object that is no argument."""
_SEVERAL = 8  # checks, after which the analysis is asked which scalars matter; our own choice
_FIXED = (int, float, bytes, np.number, np.bool_)
"""Types of arguments that are the same value while they are the same object; others are converted each time."""


class CachedLaunch:
    """A launch in the cache: a kernel at one NDRange on a device, on arrays of certain types and sizes. ``convert(i,
    value)``: the value that argument i, no array, is set to. ``entry``: the compiled code's."""

    __slots__ = (
        "_alignment",
        "_arrays",
        "_batches",
        "_checked",
        "_checks",
        "_convert",
        "_deciding",
        "_device",
        "_integers",
        "_launch",
        "_locals",
        "_measured",
        "_steering",
        "_trips",
        "entry",
    )

    def __init__(
        self,
        session: Session,
        device: DeviceIndex,
        launch: Launch,
        args: Sequence[Any],
        convert: Callable[[int, Any], Argument],
    ) -> None:
        self._device = device
        self._alignment = session.machine.devices[device].alignment
        self._launch = launch
        self._convert = WeakMethod(convert)  # the program may drop the kernel
        self._arrays = _types(args)
        self._locals = _locals(launch)
        facts = launch.kernel.arguments
        self._deciding = tuple([i for i, fact in enumerate(facts) if fact.decides and self._arrays[i] is None])
        self._checked = {self._decided(launch.args)}  # scalars with which it keeps to its buffers
        self._checks = 0  # so many times with other scalars
        nbytes = [array[1] if array is not None else None for array in self._arrays]
        self._integers = Integers(launch, nbytes, bounds.keep_between)
        self._steering: dict[int, Any] | None = None  # scalars that decide how long it takes; None: not known
        self._trips: TripCount | None = None
        self._measured: tuple[float, float] | None = None  # f and seconds of the last time, where it took long
        self._batches = 0  # in which it was launched, and that are over
        self.entry = self._entry(session, args)

    def _entry(self, session: Session, args: Sequence[Any]) -> Any:
        """Return the compiled code's entry, whose kernel object has the numbers."""
        launch, device = self._launch, self._device
        driver, programs = session.backend.lanes[device].direct, session.backend.programs
        kernel = programs.new_kernel(launch.program, launch.kernel.name, device)
        for i, bound in enumerate(launch.args):
            kernel.set(i, session.backend.memory.argument(bound, device) if isinstance(bound, BufferArg) else bound)
        sizes = launch.global_size, launch.local_size
        direct = None
        if driver is not None:
            like = programs.kernel(launch.program, launch.kernel.name, device).kernel
            direct = driver.direct_launch(kernel, like, *sizes)
        each = [
            (None, *array, fact.writes) if array else (value if isinstance(value, _FIXED) else _UNKNOWN, None, 0, False)
            for fact, array, value in zip(launch.kernel.arguments, self._arrays, args, strict=True)
        ]
        entry = entry_type()(self, launch, list(launch.args), device, kernel, *sizes, tuple(each), direct)
        entry.seconds = UNKNOWN
        return entry

    def fits(self, device: DeviceIndex, launch: Launch, args: Sequence[Any]) -> bool:
        """Return whether a launch of the same kernel at the same NDRange may use the entry."""
        if self.entry.is_retired or device != self._device or _locals(launch) != self._locals:
            return False
        types = _types(args)
        return all(
            a is b or (a is not None and b is not None and a[0] is b[0] and a[1] == b[1])
            for a, b in zip(types, self._arrays, strict=True)
        )

    @property
    def is_dropped(self) -> bool:
        """True if the program has dropped the kernel."""
        return self._convert() is None

    @property
    def is_settled(self) -> bool:
        """True if the ends of more batches would tell nothing new about it."""
        return self._batches > 1

    def ended(self, seconds: float) -> None:
        """Note that a batch with it is over. ``seconds``: of a command there. The next ones count on that for kernels
        that do the same work each time; for others, too, but on no less than ``UNKNOWN``."""
        args = self.entry.bound
        self._batches += 1
        is_long = seconds > UNKNOWN  # then seconds with other scalars are predicted
        if self._trips is None:
            is_worth = is_long or self._batches == 2  # it may well come again
            find = trip_count if is_worth else found_before
            self._trips = find(self._launch.program, self._launch.kernel)
            if self._trips is not None and self._trips.bounded:
                self._steering = {i: None for _, i, _ in self._trips.scalars}
        if self._steering is None:
            self.entry.seconds = max(UNKNOWN, seconds)
            return
        self.entry.seconds = seconds
        self._measured = (self._f(args), seconds) if is_long else None
        self._steering = {i: args[i] for i in self._steering}

    def _decided(self, args: Sequence[Argument]) -> tuple[Argument, ...]:
        """Return the arguments, but for arrays, on which the accesses may depend."""
        return tuple(map(args.__getitem__, self._deciding))

    def _narrowed(self, args: Sequence[Argument]) -> tuple[Argument, ...]:
        """Return the arguments of ``_decided``: fewer once the analysis has found on which of them accesses depend."""
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

    def numbers(
        self, stream: EagerStream, args: Sequence[Any], changed: Sequence[int], bound: list[Argument]
    ) -> tuple[Any, ...] | None:
        """Convert the arguments that are no arrays and have changed. Return for each an object that has the same value
        whenever it is given. Return None where it has to be another entry, or to be looked at again. Raises LaunchError
        where the launch would leave its buffers with them."""
        is_longer, steering, convert, remembered = False, self._steering, self._convert(), list[Any]()
        assert convert is not None, "the kernel is being called"
        for i in changed:
            found = convert(i, value := args[i])
            if type(found) is LocalArg and found != bound[i]:
                return None
            bound[i] = found
            remembered.append(value if isinstance(value, _FIXED) else _UNKNOWN)
            if steering is not None and i in steering and steering[i] != found:
                steering[i] = found
                if self._measured is None:
                    stream.given.ahead += UNKNOWN
                else:
                    is_longer = True
        if (decided := self._decided(bound)) not in self._checked:
            if not self._integers.cover(bound):
                if any(type(a) is BufferArg and a.key not in stream.arrays for a in bound):
                    return None  # a number's own method has waited for all
                decided = self._check(stream, bound, decided)
            if len(self._checked) >= MANY:
                self._checked.clear()
            self._checked.add(decided)
        if is_longer and self._measured is not None:
            f, seconds = self._measured
            self.entry.seconds = seconds * self._f(bound) / f
        return tuple(remembered)

    def _check(
        self, stream: EagerStream, bound: Sequence[Argument], decided: tuple[Argument, ...]
    ) -> tuple[Argument, ...]:
        """Check that it keeps to its buffers with other numbers. Raises LaunchError where it does not."""
        self._checks += 1
        if self._checks == _SEVERAL and not self._launch.versions:
            decided = self._narrowed(bound)
        bounds.check_launch(
            with_arguments(self._launch, tuple(bound)),
            {a.key: stream.arrays[a.key].buffer for a in bound if type(a) is BufferArg},
        )
        return decided

    def part(
        self, queue: Queue, stream: EagerStream, index: int, view: ArrayView
    ) -> tuple[BufferKey, BufferArg, Allocation] | None:
        """Return the key, the argument and the memory of a view; None where it has to be checked first."""
        array, key = self._arrays[index], view.buffer.key
        if array is None or view.queue is not queue or view.dtype is not array[0] or key in queue.mapped:
            return None
        if view.nbytes != array[1] or view.offset % self._alignment:
            return None
        if key not in stream.arrays and not stream.adopt(view.owner):
            return None
        return key, view.argument, queue.session.backend.memory.argument(view.argument, self._device)


def _types(args: Sequence[Any]) -> tuple[tuple[np.dtype[Any], int] | None, ...]:
    """Return the types and bytes of arrays among arguments; None for each other one."""
    return tuple([(a.dtype, a.nbytes) if isinstance(a, Array) else None for a in args])


def _locals(launch: Launch) -> Mapping[int, LocalArg]:
    return {i: arg for i, arg in enumerate(launch.args) if type(arg) is LocalArg}


def remember(
    queue: Queue, stream: EagerStream, key: Any, launch: Launch, args: Sequence[Any], convert: Callable[[int, Any], Any]
) -> None:
    """Put a launch that the device was given at once into the cache, where compiled code is there to use it."""
    if entry_type() is None:
        wanted()
        return
    device, found = stream.device, queue.launches.get(key)
    if found is not None and found.rules.fits(device, launch, args):
        return
    if not unaligned(launch.args, queue.session.machine.devices[device].alignment):
        count = len(queue.launches)
        if count >= FEW and not count & (count - 1):
            dropped = [known for known, entry in queue.launches.items() if entry.rules.is_dropped]
            for known in dropped if count < MANY else [*queue.launches]:
                del queue.launches[known]
        with suppress(DriverError):  # the launch was given; what ends its device is told to who waits for it
            queue.launches[key] = CachedLaunch(queue.session, device, launch, args, convert).entry
