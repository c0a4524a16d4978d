"""Ctrl-C while a run is under way: held back, and let in where nothing is half done.

Python calls a signal's handler between any two bytecodes of the main thread, and the usual handler raises: in the
middle of the engine's bookkeeping, a buffer could then count as valid that nobody has written. So while a session works
on a run, Ctrl-C is only noted (``Uninterrupted``), and it is let in where the main thread plans, waits for devices or
calls the user's own functions (``interruptible``). So while extension modules are imported that cannot be imported
again once that was interrupted (of drivers, islpy: the process would abort). Other threads never see it. Garbage
collection is held back while drivers are imported, too (``uncollected``).
"""

from __future__ import annotations

import _signal  # what signal is made of, less its conversions to enumerations: they take 8 us of each run
import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGINT = int(signal.SIGINT)
_innermost: Uninterrupted | None = None
"""What the main thread has entered last."""
_main = threading.main_thread().ident


def is_failing() -> bool:
    """Return whether the program ends by an exception that nobody caught: nobody waits for what still runs then."""
    return hasattr(sys, "last_value") and not hasattr(sys, "ps1")  # (where Python is used interactively, one is usual)


class Uninterrupted:
    """Ctrl-C is noted while the ``with`` block runs, and delivered when it has ended."""

    _before: Callable[[int, FrameType | None], Any] | None = None
    _outer: Uninterrupted | None = None
    noted = False
    """Whether Ctrl-C was pressed, and is to be delivered."""
    open = 0
    """The number of open blocks in which Ctrl-C is delivered at once (``interruptible``)."""

    def __enter__(self) -> None:
        global _innermost
        if threading.get_ident() == _main:
            before = _signal.getsignal(_SIGINT)
            if callable(before):  # else it ends the process, or does nothing
                self._before, self._outer = before, _innermost
                _innermost = self
                _signal.signal(_SIGINT, self.note)

    def __exit__(self, *error: object) -> None:
        global _innermost
        if self._before is not None:
            _innermost = self._outer
            _signal.signal(_SIGINT, self._before)
            if self.noted:
                self._before(_SIGINT, None)

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handle Ctrl-C: deliver it, or note it."""
        if self.open and self._before is not None:
            self._before(number, frame)
        else:
            self.noted = True


class _Interruptible:
    """Ctrl-C is delivered at once while the ``with`` block runs; what was noted before, at its beginning."""

    def __enter__(self) -> None:
        block = _innermost
        if block is not None and threading.get_ident() == _main:
            block.open += 1
            try:
                if block.noted:
                    block.noted = False
                    block.note(_SIGINT, None)
            except BaseException:
                block.open -= 1
                raise

    def __exit__(self, *error: object) -> None:
        if _innermost is not None and threading.get_ident() == _main:
            _innermost.open -= 1


interruptible = _Interruptible()


@contextmanager
def uncollected() -> Iterator[None]:
    """Do without garbage collection inside, and begin to count anew what makes one due. Imports make tens of thousands
    of objects that stay: searching them takes long, and would often be due in a program's first run."""
    was_enabled, modules = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        # what the program has frozen stays so (and is counted one by one: only after imports)
        if len(sys.modules) != modules and not gc.get_freeze_count():
            gc.freeze()  # all objects become old ones, without a search
            gc.unfreeze()
        if was_enabled:
            gc.enable()
