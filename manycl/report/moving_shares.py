"""Shares of divided launches that could move while they ran: which, why, and how much has moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from manycl.report.words import percent, printable, seconds
from manycl.trace import Trace


@dataclass(frozen=True, slots=True)
class MovingShares:
    """Of ``launches`` launches of a kernel: whether their shares could move, why, the seconds that this was to ``gain``
    and to ``cost``; ``alike``: whether all devices give the same bits; ``elsewhere``: the part of their work-groups
    that ran elsewhere than planned (None: they have not run, or could not move)."""

    kernel: str
    launches: int
    moves: bool
    reason: str
    gain: float
    cost: float
    alike: bool
    elsewhere: float | None = None


def moving_shares(trace: Trace) -> tuple[MovingShares, ...]:
    """From the trace's ``details["moving"]`` and ``["stolen"]``, most seconds at stake first; what is not of their form
    is left out."""
    entries, stolen = trace.details.get("moving", ()), trace.details.get("stolen", {})
    known: Mapping[object, object] = stolen if isinstance(stolen, dict) else {}
    found = [_shares(e, known) for e in entries] if isinstance(entries, list | tuple) else []
    return tuple(sorted((s for s in found if s is not None), key=lambda s: (-s.gain, s.kernel, s.reason)))


def _shares(entry: object, stolen: Mapping[object, object]) -> MovingShares | None:
    names = set(MovingShares.__slots__) - {"elsewhere"}
    if not isinstance(entry, dict) or set(entry) != names:
        return None
    shares = MovingShares(**entry)
    numbers = (shares.gain, shares.cost)
    if not all(type(w) is str for w in (shares.kernel, shares.reason)) or type(shares.launches) is not int:
        return None
    if (
        type(shares.moves) is not bool
        or type(shares.alike) is not bool
        or not all(isinstance(n, float | int) for n in numbers)
    ):
        return None
    part = stolen.get(shares.kernel) if shares.moves else None
    return replace(shares, elsewhere=float(part)) if isinstance(part, float | int) else shares


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
