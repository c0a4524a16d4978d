"""Links measured between a session's first runs, by a thread of its own, where nobody has measured them yet. Nothing is
begun while a run is under way, and a transfer during which one began is made again in another pause."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from manycl.drivers.driver import Driver, DriverError
from manycl.run.session.measure import MeasuredLink, Starts, measure_links, timed
from manycl.utilities.unforeseen import told

if TYPE_CHECKING:
    from manycl.run.session.device_set import DeviceSet

PAUSES = 64
"""Pauses between runs in which a session measures; our own choice."""
DELAY = 0.1
"""Seconds from the end of a run to measuring: a short script has ended by then; our own choice."""


class _EndedError(Exception):
    """The end of measuring: nothing is to be measured any more."""


class PauseMeasurement:
    """The measurement of a session's links in the pauses between its runs. ``thread``: None until it has begun;
    ``over``: set when nothing more is to be measured."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self.over = threading.Event()
        self._left = PAUSES
        self._pause: object = None

    def ran(self, devices: DeviceSet) -> None:
        """Note that the first run is over: measure from now on."""
        # what has a process of its own has one channel for all
        own = [x.driver for x in devices.backend.lanes if x.own and not x.driver.may_be_lost]
        if devices.models.are_unknown([driver.device for driver in own]):
            self.thread = threading.Thread(target=self._measure, args=(devices, own), daemon=True)
            self.thread.start()
        else:
            self.over.set()

    def close(self) -> None:
        """End behind what is under way: transfers of a chunk at most, one in each direction of each link. No
        lock is waited for any more."""
        self.over.set()
        if self.thread is not None:
            self.thread.join()

    def _measure(self, devices: DeviceSet, drivers: Sequence[Driver]) -> None:
        links: list[MeasuredLink] = []
        try:
            self._timed(devices, ())
            for driver in drivers:
                links.append(MeasuredLink(driver, partial(self._alone, devices)))
            devices.models.measured(measure_links(links, devices.machine, partial(self._timed, devices)))
        except (_EndedError, DriverError):  # runs will say what is wrong with a device
            pass
        except Exception as error:
            told(error, "measuring links")
        finally:
            self.over.set()
            for link in links:
                link.close()

    def _timed(self, devices: DeviceSet, starts: Starts) -> float:
        """Return the seconds of transfers during which no run began."""
        while not self.over.is_set():
            if self._pause is not None:
                seconds = timed(starts)
                if devices.pause == self._pause:
                    return seconds
            self._left -= 1
            if not self._left or self.over.wait(DELAY):
                break
            with self._between_runs(devices):
                self._pause = devices.pause
        raise _EndedError

    @contextmanager
    def _alone(self, devices: DeviceSet) -> Iterator[None]:
        """Have the locks without which nobody runs or allocates."""
        with self._between_runs(devices), devices.stream.lock if devices.stream is not None else nullcontext():
            yield

    @contextmanager
    def _between_runs(self, devices: DeviceSet) -> Iterator[None]:
        """Have the devices' lock, which a run has until it ends. Raises _EndedError if the session closes before."""
        while not devices.lock.acquire(blocking=False):
            if self.over.wait(DELAY):
                raise _EndedError
        try:
            yield
        finally:
            devices.lock.release()
