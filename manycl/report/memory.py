"""Devices that did not hold all that a run needed there, and what that was predicted to cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from manycl.report.words import nbytes, printable, seconds
from manycl.trace import Trace


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


def limited(trace: Trace) -> tuple[LimitedDevice, ...]:
    """From the trace's ``details["memory"]``."""
    return tuple(LimitedDevice(**each) for each in trace.details.get("memory", ()))


def limited_rows(devices: Iterable[LimitedDevice]) -> Iterator[tuple[str, ...]]:
    """Rows below the headings ``memory, holds, of, again, leave, predicted``."""
    for d in devices:
        cells = map(nbytes, (d.limit, d.needed, d.again, d.leave))
        yield printable(d.name), *cells, seconds(d.seconds)
