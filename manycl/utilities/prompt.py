"""Threads that the system lets run soon after they have been woken, however busy its cores are.

Where a device's threads have all cores, whoever hears of a command's end and gives the next one waits until one of them
has had its slice of time: some 3 ms in one of a hundred times, as Linux hands them out. A thread that asks for short
slices is woken before those with longer ones, and gets no more time for it (EEVDF: I. Stoica and H. Abdel-Wahab,
"Earliest Eligible Virtual Deadline First", 1995; Linux 6.12 lets threads ask). Older kernels take no notice.

Python's own lock is another thing to wait for: a thread that runs Python without ever waiting gives it up after 5 ms,
and each time that another one has read a file or taken a lock it waits as long again. While something has to be done
soon, turns are shorter (:class:`ShortTurns`).
"""

from __future__ import annotations

import ctypes
import platform
import select
import struct
import sys
import threading
from functools import cache
from typing import Any, ClassVar

from manycl import flags

SLICE = 100_000
"""ns: the least that the system grants."""
_CALLS = {"x86_64": (315, 314), "aarch64": (275, 274)}
"""Numbers of sched_getattr and sched_setattr."""
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
"""struct sched_attr, its first version: size, policy, flags, nice, priority, runtime (the slice), deadline, period."""
_ORDINARY = 0
"""The policy SCHED_OTHER."""
_NOT_INHERITED = 1
"""SCHED_FLAG_RESET_ON_FORK: threads and processes that the thread starts have slices of the usual length. It is there
to stay: who gives the thread another policy later, without privileges, has to name it (``os.SCHED_RESET_ON_FORK``)."""

TURN = 2e-5
"""Seconds after which a thread gives up Python's lock, where others wait for it and something has to be done soon."""
PUNCTUAL = 1_000
"""ns: by so much waits of threads that are punctual may be longer than asked for; the system's own word is 50 us."""
_SET_TIMER_SLACK = 29
"""PR_SET_TIMERSLACK, of prctl."""
_ROUNDED = 1e-6
"""Seconds: Python counts turns in whole microseconds."""


class _Thread(threading.local):
    is_prompt = False  # of the class: found at once in threads that have none of their own


thread = _Thread()
"""Whether the calling thread has asked to be scheduled soon (``is_prompt``)."""


def give_way() -> None:
    """Give Python's lock to another thread, if one waits for it, and then take it again: for who does nothing but look,
    which keeps others waiting for 5 ms. (``time.sleep(0)`` takes 80 us, this 0.5.)"""
    select.select((), (), (), 0)


class ShortTurns:
    """Turns of ``seconds`` at most, of all of the process's threads at Python's lock, from ``enter`` to ``leave``. Of
    several that are asked for the shortest counts, but also what somebody else says meanwhile about the length of turns
    (``sys.setswitchinterval``)."""

    _lock = threading.Lock()
    _asked: ClassVar[dict[object, float]] = {}
    """The seconds that somebody has asked for, of the whole process."""
    _before = _now = 0.0
    """The seconds of turns before anybody asked, and as they were set last."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def enter(self, who: object) -> None:
        """Have short turns until ``leave`` is called with the same object, however often this is called before."""
        with ShortTurns._lock:
            self._heed()
            self._asked[who] = self.seconds
            self._set()

    def leave(self, who: object) -> None:
        """End what ``who`` has asked for, if anything."""
        if who in self._asked:
            with ShortTurns._lock:
                self._heed()
                self._asked.pop(who, None)
                self._set()

    def _heed(self) -> None:
        """Note what somebody else has said of the length of turns."""
        now = sys.getswitchinterval()
        if not self._asked or abs(now - self._now) > _ROUNDED:
            ShortTurns._before = ShortTurns._now = now

    def _set(self) -> None:
        wanted = min([self._before, *self._asked.values()])
        if wanted != self._now:
            ShortTurns._now = wanted
            sys.setswitchinterval(wanted)


def be_prompt() -> None:
    """The calling thread is scheduled soon when it is woken, from now on; its policy and nice stay as they are."""
    if not thread.is_prompt:
        thread.is_prompt = True
        if flags.prompt():
            _ask()


def be_punctual() -> None:
    """Waits of the calling thread end when they should, from now on: for those that wait for short turns."""
    if flags.prompt() and platform.system() == "Linux":
        ctypes.PyDLL(None).prctl(_SET_TIMER_SLACK, ctypes.c_ulong(PUNCTUAL), 0, 0, 0)


def _ask() -> None:
    found = _attributes()
    if found is None or found[5] <= SLICE:
        return  # its slice is short, or the system tells none
    size, policy, kept, nice, priority, _, deadline, period = found
    if nice >= 0:  # less than 0 comes before others as it is, and would not be inherited
        kept |= _NOT_INHERITED
        asked = _ATTRIBUTES.pack(size, policy, kept, nice, priority, SLICE, deadline, period)
        _system()(_CALLS[platform.machine()][1], 0, asked, 0, 0)


def _attributes() -> tuple[int, ...] | None:
    """Return the scheduling attributes of the calling thread; None where it does not have the ordinary policy."""
    numbers = _CALLS.get(platform.machine())
    if platform.system() != "Linux" or numbers is None:
        return None
    room = ctypes.create_string_buffer(_ATTRIBUTES.size)
    if _system()(numbers[0], 0, room, _ATTRIBUTES.size, 0):
        return None
    found = _ATTRIBUTES.unpack(room.raw)
    return found if found[1] == _ORDINARY else None


@cache
def _system() -> Any:
    call = ctypes.PyDLL(None).syscall  # they return at once: Python's lock is kept
    call.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]
    call.restype = ctypes.c_long
    return call
