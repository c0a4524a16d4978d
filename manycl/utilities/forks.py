"""Forks: whether this process is the one in which something was begun, for who asks all the time: system calls take 0.2
us."""

from __future__ import annotations

import mmap
import os

_WIPE_ON_FORK = 18  # of madvise (Linux 4.14 and later); Python does not name it


class Mark:
    """The mark of the process that makes it. ``page``: memory that begins with 1, and with 0 in processes that are
    forked from that one, by Python or not."""

    __slots__ = ("page", "process")

    def __init__(self) -> None:
        self.process = os.getpid()
        self.page: mmap.mmap | _Asked
        try:
            self.page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self.page.madvise(_WIPE_ON_FORK)
            self.page[0] = 1
        except (AttributeError, OSError, ValueError):
            self.page = _Asked(self.process)


class _Asked:
    """Stands for the page where the system does not wipe it: the system is asked each time."""

    __slots__ = ("_process",)

    def __init__(self, process: int) -> None:
        self._process = process

    def __getitem__(self, index: int) -> int:
        return self._process == os.getpid()
