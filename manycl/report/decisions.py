"""Sentences about a run, from the details of its trace: how it was submitted, memory that was too small, launches that
were divided or not, shares that could move, new plans of its rest, when results came together, and lost devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, TypeVar

from manycl.report.words import count, nbytes, percent, printable, seconds
from manycl.trace import Trace
from manycl.utilities.checked import unfit

Told = TypeVar("Told")


def _entries(trace: Trace, key: str) -> Sequence[object]:
    found = trace.details.get(key, ())
    return found if isinstance(found, list | tuple) else ()


def _told(entries: Iterable[object], kind: type[Told]) -> Iterator[Told]:
    """Entries that have a value of the right type for each field without a default; others are left out."""
    known: Any = kind
    wanted = {field.name for field in fields(known) if field.default is MISSING}
    for entry in entries:
        if isinstance(entry, dict) and set(entry) == wanted and not unfit(kind, entry):
            yield kind(**entry)


def told(trace: Trace, key: str, kind: type[Told]) -> tuple[Told, ...]:
    """The entries of the trace's ``details[key]``; what is not of their form is left out."""
    return tuple(_told(_entries(trace, key), kind))


# memory


@dataclass(frozen=True, slots=True)
class LimitedDevice:
    """A device with room for ``limit`` bytes of the ``needed`` ones. Predicted because of that: bytes that come
    ``again``, and that ``leave`` the device; ``seconds`` of both, were nothing done beside them."""

    name: str
    limit: int
    needed: int
    again: int
    leave: int
    seconds: float


def limited_rows(devices: Iterable[LimitedDevice]) -> Iterator[tuple[str, ...]]:
    """Rows below the headings ``memory, holds, of, again, leave, predicted``."""
    for d in devices:
        cells = map(nbytes, (d.limit, d.needed, d.again, d.leave))
        yield printable(d.name), *cells, seconds(d.seconds)


# when what parts of divided launches had written went to the host's memory

_ASKED = {"each": "as asked for", "last": "as asked for", "automatic": "of launches on one device at a time"}


@dataclass(frozen=True, slots=True)
class Merged:
    """``asked``: ``automatic``, ``each`` or ``last``; so many ``parts`` of buffers, of so many ``nbytes``, went to the
    host as soon as they had been written."""

    asked: str
    parts: int
    nbytes: int


def merged(trace: Trace) -> Merged | None:
    """Return the merging in the trace's ``details["merging"]``; None where there is none, or one that is not of its
    form."""
    found = next(_told((trace.details.get("merging"),), Merged), None)
    return found if found is not None and min(found.parts, found.nbytes) >= 0 and found.asked in _ASKED else None


def merged_lines(found: Merged) -> Iterator[str]:
    """One line."""
    if found.asked == "last":
        yield f"merging: results of parts stayed where they were until somebody needed them, {_ASKED['last']}"
    else:
        sent = f"{count(found.parts, 'part')} of results, {nbytes(found.nbytes)}"
        yield f"merging: {sent}, went to the host as soon as they were there, {_ASKED[found.asked]}"


# what was left of a run was planned anew on its way


@dataclass(frozen=True, slots=True)
class Replanned:
    """``nodes`` that had not begun were planned ``seconds`` after the run had, because of what had ``changed``; none:
    what was left of those that had begun has gone where it ends first."""

    changed: str
    nodes: int
    seconds: float


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


# launches that ran divided, and those that ran whole although there were several devices


@dataclass(frozen=True, slots=True)
class LaunchDivision:
    """Launches of a kernel function: where they ran ``divided``, or the ``reason`` why not. ``numbers``: those of the
    reason, as far as they are known (docs/traces.md)."""

    kernel: str
    launches: int
    divided: bool
    reason: str
    numbers: dict[str, Any]

    def row(self) -> tuple[str, ...]:
        """Return the cells of its line."""
        name = f"{self.kernel} x{self.launches}" if self.launches > 1 else self.kernel
        return printable(name), "divided" if self.divided else "whole", printable(" ".join(self.reason.split()))


def unforeseen(trace: Trace) -> tuple[str, ...]:
    """Return, from the trace's ``details["unforeseen"]``, what failed that the run could do without."""
    return tuple(entry for entry in _entries(trace, "unforeseen") if isinstance(entry, str))


def submitted(trace: Trace) -> tuple[str, ...]:
    """Return, from the trace's ``details["submission"]``, which commands were eager or planned, and why, safe to
    show."""
    return tuple(printable(entry) for entry in _entries(trace, "submission") if isinstance(entry, str))


# shares of divided launches that could move while they ran


@dataclass(frozen=True, slots=True)
class MovingShares:
    """The decision about ``launches`` launches of a kernel: whether their shares could move, why, the seconds that this
    was to ``gain`` and to ``cost``; ``alike``: whether all devices give the same bits; ``elsewhere``: the part of their
    work-groups that ran elsewhere than planned (None: they have not run, or could not move)."""

    kernel: str
    launches: int
    moves: bool
    reason: str
    gain: float
    cost: float
    alike: bool
    elsewhere: float | None = None


def moving_shares(trace: Trace) -> tuple[MovingShares, ...]:
    """Return the decisions in the trace's ``details["moving"]`` and ``["stolen"]``, most seconds at stake first,
    without other forms."""
    stolen = trace.details.get("stolen", {})
    parts = (
        {name: float(part) for name, part in stolen.items() if isinstance(part, float | int)}
        if isinstance(stolen, dict)
        else {}
    )
    found = told(trace, "moving", MovingShares)
    whole = [replace(shares, elsewhere=parts.get(shares.kernel)) if shares.moves else shares for shares in found]
    return tuple(sorted(whole, key=lambda s: (-s.gain, s.kernel, s.reason)))


def moving_lines(kernels: Sequence[MovingShares], most: int) -> Iterator[str]:
    """A line each, and what follows from moving."""
    for k in kernels[:most]:
        times = f" x{k.launches}" if k.launches > 1 else ""
        words = "shares move" if k.moves else "shares stay"
        at_stake = f"moving them gains some {seconds(k.gain)} and costs {seconds(k.cost)}"
        moved = f"; {percent(k.elsewhere)} of the work-groups ran elsewhere than planned" if k.elsewhere else ""
        yield printable(f"{words}: {k.kernel}{times}: {' '.join(k.reason.split())}, {at_stake}{moved}")
    if len(kernels) > most:
        yield f"... and {len(kernels) - most} more kernels whose shares could move"
    if any(k.moves and not k.alike for k in kernels):
        yield "which device runs what depends on time: last bits may differ (MANYCL_DETERMINISTIC=1 keeps shares)"
