"""When what parts of divided launches had written went to the host's memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from manycl.report.words import count, nbytes
from manycl.trace import Trace

_ASKED = {"each": "as asked for", "last": "as asked for", "automatic": "of launches on one device at a time"}


@dataclass(frozen=True, slots=True)
class Merged:
    """``asked``: ``automatic``, ``each`` or ``last``; so many ``parts`` of buffers, of so many ``nbytes``, went to the
    host as soon as they had been written."""

    asked: str
    parts: int
    nbytes: int


def merged(trace: Trace) -> Merged | None:
    """From the trace's ``details["merging"]``; None where there is none, or one that is not of its form."""
    entry = trace.details.get("merging")
    if not isinstance(entry, dict) or set(entry) != set(Merged.__slots__):
        return None
    one = Merged(**entry)
    is_right = type(one.parts) is int and type(one.nbytes) is int and min(one.parts, one.nbytes) >= 0
    return one if is_right and type(one.asked) is str and one.asked in _ASKED else None


def merged_lines(found: Merged) -> Iterator[str]:
    """One line."""
    if found.asked == "last":
        yield f"merging: results of parts stayed where they were until somebody needed them, {_ASKED['last']}"
    else:
        sent = f"{count(found.parts, 'part')} of results, {nbytes(found.nbytes)}"
        yield f"merging: {sent}, went to the host as soon as they were there, {_ASKED[found.asked]}"
