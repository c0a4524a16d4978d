"""A word to who waits."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

AFTER = 0.2
"""Seconds: what is over sooner needs no word."""


class Word:
    """If the ``with`` block takes long, say once on stderr what ``words()`` returns then."""

    def __init__(self, words: Callable[[], str]) -> None:
        self._words = words
        self._timer = threading.Timer(AFTER, self._say)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()

    def _say(self) -> None:
        if sys.stderr is not None:
            print(f"manycl: {self._words()}", file=sys.stderr, flush=True)
