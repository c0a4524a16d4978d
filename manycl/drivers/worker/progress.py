"""Progress of the queues of a worker process, in memory that outlives it: what it had completed, and what it may have
begun, is known however it ends.

Of each queue there are 64-bit words. The first two are the driver's (:class:`manycl.drivers.driver.Countable`): the
number of the last command that is complete, and how many have failed. Then: the command that was given to the driver
last, as its client numbers them, and whether any of this holds. Then, for the last RECENT of them, the driver's
numbers: a command is complete when the driver's count has reached that. A number is written when the command has been
given, before the next one is, so at most one command that is not noted has been given.
"""

from __future__ import annotations

from typing import Any

RECENT = 1 << 10
"""Commands whose numbers are kept."""
_COMPLETED, _FAILED, _NOTED, _HOLDS, _NUMBERS = range(5)
WORDS = _NUMBERS + RECENT


def begin(words: Any) -> None:
    """A driver keeps the first two words from now on."""
    words[_NOTED] = 0
    words[_HOLDS] = 1


def note(words: Any, command: int, number: int) -> None:
    """A command was given to the driver, which calls it by a number."""
    words[_NUMBERS + command % RECENT] = number
    words[_NOTED] = command


def spoil(words: Any) -> None:
    """A command was not given: nobody knows any more what those behind it do."""
    words[_HOLDS] = 0


def complete(words: Any, ended: int) -> int | None:
    """Return when the process is gone, which had told of the ends of commands up to ``ended``: up to which one all are
    complete. The next one may have begun, and none behind it. None where that is not known."""
    noted, completed = int(words[_NOTED]), int(words[_COMPLETED])

    def is_complete(command: int) -> bool:
        return int(words[_NUMBERS + command % RECENT]) <= completed

    if not words[_HOLDS] or words[_FAILED]:
        return None
    oldest = noted - RECENT + 1
    if oldest > ended + 1 and not is_complete(oldest):
        return None
    found = max(ended, oldest - 1)
    while found < noted and is_complete(found + 1):
        found += 1
    return found
