"""What was left of a run was planned anew on its way: when, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from manycl.report.words import count, printable, seconds
from manycl.trace import Trace


@dataclass(frozen=True, slots=True)
class Replanned:
    """``nodes`` that had not begun were planned ``seconds`` after the run had, because of what had ``changed``; none:
    what was left of those that had begun has gone where it ends first."""

    changed: str
    nodes: int
    seconds: float


def replanned(trace: Trace) -> tuple[Replanned, ...]:
    """From the trace's ``details["replanned"]``; what is not of its form is left out."""
    entries = trace.details.get("replanned", ())
    found = (_replanned(entry) for entry in entries) if isinstance(entries, list | tuple) else ()
    return tuple(entry for entry in found if entry is not None)


def _replanned(entry: object) -> Replanned | None:
    if not isinstance(entry, dict) or set(entry) != set(Replanned.__slots__):
        return None
    one = Replanned(**entry)
    if type(one.changed) is not str or type(one.nodes) is not int or not isinstance(one.seconds, float | int):
        return None
    return one


def replanned_lines(entries: Sequence[Replanned], most: int) -> Iterator[str]:
    """A line each."""
    for entry in entries[:most]:
        changed = " ".join(entry.changed.split())
        if entry.nodes:
            yield printable(
                f"planned anew after {seconds(entry.seconds)}: {changed}; {count(entry.nodes, 'node')} left"
            )
        else:
            yield printable(f"placed anew after {seconds(entry.seconds)}: {changed}")
    if len(entries) > most:
        yield f"... and {count(len(entries) - most, 'time')} more"
