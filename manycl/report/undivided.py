"""Kernels that ran whole although there were several devices, and why; and what a run went on without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from manycl.report.words import printable
from manycl.trace import Trace


@dataclass(frozen=True, slots=True)
class UndividedKernel:
    """A kernel function of which ``launches`` launches could not be divided, for this ``reason``. ``path`` and ``line``
    of its definition."""

    kernel: str
    path: str
    line: int
    reason: str
    launches: int


def undivided(trace: Trace) -> tuple[UndividedKernel, ...]:
    """From the trace's ``details["undivided"]``, most launches first; what is not of its form is left out."""
    entries = trace.details.get("undivided", ())
    found = [kernel for entry in entries if (kernel := _kernel(entry)) is not None] if _is_list(entries) else []
    return tuple(sorted(found, key=lambda k: (-k.launches, k.kernel, k.reason)))


def _kernel(entry: object) -> UndividedKernel | None:
    if not isinstance(entry, dict) or set(entry) != set(UndividedKernel.__slots__):
        return None
    kernel = UndividedKernel(**entry)
    words = (kernel.kernel, kernel.path, kernel.reason)
    numbers = (kernel.line, kernel.launches)
    return kernel if all(type(w) is str for w in words) and all(type(n) is int for n in numbers) else None


def unforeseen(trace: Trace) -> tuple[str, ...]:
    """From the trace's ``details["unforeseen"]``: what failed that the run could do without."""
    entries = trace.details.get("unforeseen", ())
    return tuple(entry for entry in entries if isinstance(entry, str)) if _is_list(entries) else ()


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def undivided_lines(kernels: tuple[UndividedKernel, ...]) -> Iterator[str]:
    """A line each: kernel, place and reason."""
    for k in kernels:
        times = f" x{k.launches}" if k.launches > 1 else ""
        place = f" ({k.path}:{k.line})" if k.path else f" (line {k.line})"
        yield printable(f"not divided: {k.kernel}{times}{place}: {' '.join(k.reason.split())}")
