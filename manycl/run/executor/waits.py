"""Waits for what devices do: how long a thread looks, when it blocks, and how others have their turn meanwhile.

Which way takes least depends on the device and on what else the machine does:

- A thread that blocks in a driver's wait is right for devices that compute on the host's own cores. To be woken takes
  some 30 us, but a thread that looks again and again (that *polls*) occupies a core that the device may want. Where
  waits are short both are tried (:class:`AdaptiveWait`).
- Drivers of GPUs spin while they wait, several threads in one driver hold each other up, and a thread that has slept
  for some milliseconds wakes late: 200 us from a kernel's end until the engine knows, where polling the event's status
  takes 14 us (measured with an H200). So the thread that waits polls the events of such devices
  (:class:`~manycl.run.executor.run_state.Completions`), and spins only as long as it pays.

Ctrl-C is handled in all waits but those that are known to end at once.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter, sleep

from manycl.drivers.driver import Driver, DriverError, Event
from manycl.utilities.prompt import ShortTurns, give_way

SPIN = 2e-4
"""Seconds from the beginning of a wait in which looks follow one another directly: several times what waking a thread
takes (our own choice). For devices for which a thread can block, it does so afterwards, and at once where waits take
longer."""
LOOKS = 8
"""The number of looks after which other threads get a turn; our own choice."""
YIELD = 0.01
"""Seconds of waiting in which that turn is, after ``SPIN``, a yield, which lets other threads run for some 50 us at
least (Linux); later it is a pause (our own choice)."""
PAUSE = 0.005
"""The length of a pause after ``YIELD``, as a share of the time waited so far; our own choice."""
LONGEST = 1e-3
"""The longest pause, in seconds; also the most work for which the driver's own wait is used although Ctrl-C is not
handled there (our own choice)."""
RESPONSIVE = 1e-4
"""Seconds after which a thread gives up Python's lock while a run is under way whose threads report; Python's default
of 5 ms delays every report while another thread computes."""
SAID_AFTER = 0.2
"""Seconds; an interruption that is handled sooner needs no message (our own choice)."""
SOON = 8
"""The least waits until the other way is tried again, as soon as the better way has changed; our own choice."""
RARELY = 256
"""The most waits until the other way is tried again; our own choice."""
_CORES = os.cpu_count() or 1

responsive = ShortTurns(RESPONSIVE)
"""Short turns of the process's threads, while any run is under way whose threads report."""


def let_others(waited: float) -> None:
    """Let other threads run after ``LOOKS`` looks that found nothing. ``waited``: seconds since the wait began."""
    if waited > YIELD:
        sleep(min(waited * PAUSE, LONGEST))
    elif waited > SPIN:
        sleep(0.0)
    else:
        give_way()


def polled(driver: Driver, event: Event, within: float = math.inf) -> bool:
    """Look again and again whether an event is complete, for some seconds at most; return whether it is. Raises
    DriverError if it has failed."""
    done, began, looks = driver.done, perf_counter(), 0
    while not done(event):
        looks += 1
        if not looks % LOOKS:
            waited = perf_counter() - began
            if waited > within:
                return False
            let_others(waited)
    return True


def wait_beside(driver: Driver, event: Event) -> None:
    """Wait until a command has ended, with or without an error, beside the thread that gives the device commands."""
    with suppress(DriverError):  # the status tells
        if driver.is_polled:
            polled(driver, event)
        else:
            driver.wait(event)


class AdaptiveWait:
    """The choice between polling and blocking, by what took less in the waits of all threads for one device. That
    depends on what else the machine does just now, so both are tried."""

    def __init__(self) -> None:
        self._woken, self._looked = 2 * SPIN, 0.0  # average seconds of recent waits of either kind
        self._looks = False  # polling takes less
        self._interval = self._left = SOON

    def looks(self) -> bool:
        """Return whether the next wait is to poll."""
        if self._woken > SPIN or _CORES == 1:
            return False
        self._left -= 1
        if self._left > 0:
            return self._looks
        self._interval = min(2 * self._interval, RARELY)
        self._left = self._interval
        return not self._looks

    def took(self, looked: bool, seconds: float) -> None:
        """Note that a wait took so many seconds."""
        seconds = min(seconds, 4 * SPIN)
        if looked:
            self._looked = seconds if not self._looked else self._looked + (seconds - self._looked) / 4
        else:
            self._woken += (seconds - self._woken) / 4
        better = 0.0 < self._looked < self._woken
        if better != self._looks:
            self._looks, self._interval, self._left = better, SOON, SOON


class InterruptMessage:
    """Print on stderr what ``words()`` returns, once, if the ``with`` block takes longer than ``SAID_AFTER``."""

    def __init__(self, words: Callable[[], str]) -> None:
        self._words = words
        self._timer = threading.Timer(SAID_AFTER, self._say)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()

    def _say(self) -> None:
        if sys.stderr is not None:
            print(f"manycl: {self._words()}", file=sys.stderr, flush=True)
