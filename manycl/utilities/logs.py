"""Logs of what happens beside the results, by Python's ``logging``: every logger of manycl's is below ``manycl``.
Nothing is shown unless the program asks for it (``logging.basicConfig(level="INFO")``). WARNING: something is done
without, or differently; INFO: what happens once in a while (devices, plans, runs that were planned); DEBUG: the rest,
but nothing for each command: commands are in traces, and on standard error with MANYCL_DEBUG."""

from __future__ import annotations

import logging

ROOT = "manycl"


def logger(name: str) -> logging.Logger:
    """The logger of a module of manycl's (``__name__``)."""
    root = logging.getLogger(ROOT)
    if not root.handlers:  # else records without a handler would be shown
        root.addHandler(logging.NullHandler())
    return logging.getLogger(name)
