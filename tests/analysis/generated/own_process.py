"""Code that may crash or hang, in a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable

LIMIT = 120.0  # seconds


def own_process(function: Callable[..., None], *arguments: object) -> int | None:
    """The exit status (below zero: the signal that ended it), or None where it had to be stopped."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join(LIMIT)
    if process.exitcode is None:
        process.kill()
        process.join()
        return None
    return process.exitcode
