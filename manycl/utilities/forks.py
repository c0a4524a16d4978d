"""Whether this process is the one in which something was begun, for who asks all the time: a system call takes a fifth
of a microsecond, and more."""

from __future__ import annotations

import mmap
import os

_WIPE_ON_FORK = 18  # of madvise (Linux 4.14 and later); Python does not name it


class Mark:
    """Of the process that makes it. In those that are forked from it, by Python or not, it is gone."""

    __slots__ = ("_page", "process")

    def __init__(self) -> None:
        self.process = os.getpid()
        self._page = _page()

    @property
    def is_gone(self) -> bool:
        page = self._page
        return self.process != os.getpid() if page is None else not page[0]


def _page() -> mmap.mmap | None:
    """Memory that begins with 1, and with 0 in processes that are forked; None where the system does not do that."""
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        page.madvise(_WIPE_ON_FORK)
    except (AttributeError, OSError, ValueError):
        return None
    page[0] = 1
    return page
