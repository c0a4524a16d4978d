"""Exceptions that are defects of manycl's own, in what a run can do without: analysis, models, planners. They never
stop a run that one device could do. What failed is left out, with this as the reason, and is warned about."""

from __future__ import annotations

import sys
import traceback
import warnings

from manycl import flags
from manycl.utilities.logs import logger

log = logger(__name__)

_LONGEST = 200  # characters of an exception's own words


class UnforeseenWarning(RuntimeWarning):
    """Something in manycl failed that the run went on without. Please report it."""


def told(error: BaseException, what: str) -> str:
    """Why there is no answer, in words; ``what`` failed. It is warned about, and MANYCL_DEBUG=1 shows where it was."""
    words = " ".join(str(error).split())
    shown = words if len(words) <= _LONGEST else f"{words[: _LONGEST - 4]} ..."
    reason = f"{what} failed ({type(error).__name__}{': ' if shown else ''}{shown})"
    log.warning("%s", reason, exc_info=error)
    if flags.debug():
        traceback.print_exception(error, file=sys.stderr)
    warnings.warn(
        f"{reason}: a defect of manycl, which goes on without; MANYCL_DEBUG=1 shows where",
        UnforeseenWarning,
        stacklevel=3,
    )
    return reason
