"""The thread of a queue, which runs what nobody waits for, and callbacks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any


class Background:
    """A thread that does one job after another. It starts with the first job; the process ends when all are done."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._thread: int | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def submit(self, job: Callable[[], Any]) -> None:
        """Have a job done later; at once, by the caller's thread, where no thread can start any more. An exception is
        reported as any thread's is (``threading.excepthook``)."""
        with self._lock:
            if not self._is_closed:
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(1, "manycl-queue", initializer=self._begin)
                with suppress(RuntimeError):  # the interpreter begins no threads when it ends
                    self._pool.submit(_reported, job)
                    return
        _reported(job)

    def close(self) -> None:
        """Take no more jobs, and wait for those that there are, unless one of them is the caller."""
        with self._lock:
            self._is_closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=threading.get_ident() != self._thread)

    def _begin(self) -> None:
        self._thread = threading.get_ident()


def _reported(job: Callable[[], Any]) -> None:
    try:
        job()
    except BaseException:  # also SystemExit, which ends no process from a thread
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
