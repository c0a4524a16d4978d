"""What this process is to others, and what it does not leave to its children."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

from manycl import flags


class Closable(Protocol):
    def close(self) -> None: ...


closed_in_children: WeakSet[Closable] = WeakSet()
"""Files and sockets of this process that would outlive it if a child that was forked had them, too."""
_word = ""


def process() -> str:
    """A word for this process, unlike that of any other one on this machine: numbers of processes come again, and are
    others in containers."""
    global _word
    if not _word:
        _word = f"{os.getpid()}-{os.urandom(6).hex()}"
    return _word


def under() -> tuple[str, ...]:
    """The processes that this one belongs to: it may use what they have reserved."""
    return tuple(word for word in flags.reservation().split(",") if word)


def for_children() -> str:
    """What processes that are to belong to this one have as MANYCL_RESERVATION."""
    return ",".join((*under(), process()))


def _forked() -> None:
    global _word
    _word = ""
    for one in list(closed_in_children):
        one.close()


os.register_at_fork(after_in_child=_forked)
