"""Quantities in words: seconds, bytes and rates in a unit that suits them; names that are safe to show; tables."""

from __future__ import annotations

from collections.abc import Sequence

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def seconds(value: float) -> str:
    """A time given in seconds with three significant digits: ``12.3 ms``."""
    return _scaled(value, _TIMES) or (f"{value * 1e9:.3g} ns" if value else "0 s")


def nbytes(value: float) -> str:
    """A number of bytes in decimal units: ``12.3 MB``."""
    return _scaled(value, _SIZES) or f"{value:.0f} B"


def _scaled(value: float, units: Sequence[tuple[float, str]]) -> str:
    """In the largest unit of which it is one or more: half a last digit below counts (999.96 us are 1.00 ms)."""
    return next((f"{_digits(value / scale)} {unit}" for scale, unit in units if abs(value) >= 0.9995 * scale), "")


def joules(value: float) -> str:
    """An energy given in joules: ``12.3 mJ``."""
    return seconds(value).replace("s", "J")


def rate(value: float) -> str:
    """A rate given in bytes per second: ``10.5 GB/s``."""
    return f"{nbytes(value)}/s"


def percent(share: float) -> str:
    """A share given as a fraction: ``93.1 %``."""
    return f"{100 * share:.1f} %"


def count(number: int, noun: str) -> str:
    """``1 kernel``, ``2 kernels``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def between(source: str, target: str, arrow: str = "->") -> str:
    """``host -> gpu0``, or ``within gpu0``; not yet safe to show."""
    return f"within {source}" if source == target else f"{source} {arrow} {target}"


def _digits(value: float) -> str:
    """Three significant digits, no exponent."""
    size = abs(value)
    places = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{value:.{places}f}"


def printable(text: str) -> str:
    """The text with everything that could command a terminal or break a file format replaced by ``?``."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a table as lines, their columns aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(w.ljust(n) for w, n in zip(row, widths, strict=True)).rstrip() for row in rows]
