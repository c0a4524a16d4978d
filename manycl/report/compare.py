"""Two traces side by side: was the second one faster, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from manycl.report.intervals import quotient
from manycl.report.summary import Summary, summarise, table
from manycl.report.words import between, nbytes, percent, printable, seconds
from manycl.trace import Trace


@dataclass(frozen=True, slots=True)
class TraceComparison:
    """``speedup``: the first makespan over the second (None where the second is 0)."""

    first: Summary
    second: Summary
    speedup: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"first": self.first.to_dict(), "second": self.second.to_dict(), "speedup": self.speedup}

    def text(self) -> str:
        """A table with a column for each trace."""
        return "\n".join(_lines(self))


def compare(first: Trace, second: Trace) -> TraceComparison:
    """Compare a trace with another one, of the same application or not."""
    one, other = summarise(first), summarise(second)
    return TraceComparison(one, other, quotient(one.makespan, other.makespan))


def _lines(comparison: TraceComparison) -> Iterator[str]:
    pair = (comparison.first, comparison.second)
    rows = [
        ("application", *(printable(s.application) or "-" for s in pair)),
        ("policy", *(printable(s.policy) or "-" for s in pair)),
        ("kind", *(s.kind for s in pair)),
        ("makespan", *(seconds(s.makespan) for s in pair)),
        ("longest path", *(seconds(s.path.seconds) for s in pair)),
        ("kernels", *(str(s.kernels) for s in pair)),
    ]
    busy = [{d.name: percent(d.share) for d in s.devices} for s in pair]
    for name in dict.fromkeys([*busy[0], *busy[1]]):
        rows.append((f"busy {printable(name)}", *(b.get(name, "-") for b in busy)))
    moved = [{(k.source, k.target): nbytes(k.nbytes) for k in s.links} for s in pair]
    for ends in dict.fromkeys([*moved[0], *moved[1]]):
        rows.append((printable(between(*ends)), *(m.get(ends, "-") for m in moved)))
    yield from table(("", "first", "second"), rows)
    if comparison.speedup is not None:
        yield f"the second is {comparison.speedup:.2f} times as fast as the first"
