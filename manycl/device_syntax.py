"""The one syntax for choosing devices: ``--devices``, MANYCL_DEVICES, and ``devices=`` of the Python API.

Items separated by commas, each ``SELECTOR[/DIVISION][#PART[-PART]][@FACTOR]``:

- SELECTOR: ``all``, a kind (``cpu``, ``gpu``, ``accelerator``), a name (``cpu0``), or part of a model or platform name;
- DIVISION: ``2`` equal parts, or compute units per part: ``1+3``;
- ``#0`` or ``#0-1``: only these parts (default: all);
- ``@4``: a slow-down factor, at least 1, for experiments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from manycl.errors import DeviceError

EXAMPLES = "for example: all | gpu | cpu/2 | cpu/2#0,cpu/2#1@4 | gpu0,cpu/1+1"
_ITEM = re.compile(
    r"\s*(?P<selector>[^/#@,]*[^/#@,\s])\s*"
    r"(?:/(?P<division>\d+(?:\+\d+)*))?"
    r"(?:\#(?P<first>\d+)(?:-(?P<last>\d+))?)?"
    r"(?:@(?P<factor>\d+(?:\.\d+)?))?\s*"
)
_MOST_PARTS = 4096


@dataclass(frozen=True, slots=True)
class Item:
    """One item. ``division``: () undivided, (n,) n equal parts, (a, b, …) parts of that many compute units.
    ``parts``: first and last part wanted (None: all). ``factor``: slow-down."""

    selector: str
    division: tuple[int, ...] = ()
    parts: tuple[int, int] | None = None
    factor: float = 1.0

    def __str__(self) -> str:
        division = f"/{'+'.join(map(str, self.division))}" if self.division else ""
        parts = ""
        if self.parts:
            first, last = self.parts
            parts = f"#{first}" if first == last else f"#{first}-{last}"
        factor = f"@{self.factor:.15g}" if self.factor != 1.0 else ""
        return f"{self.selector}{division}{parts}{factor}"


def parse(selection: str | Sequence[str]) -> tuple[Item, ...]:
    """The items of a selection; DeviceError for what is none."""
    words = selection.split(",") if isinstance(selection, str) else [w for s in selection for w in s.split(",")]
    items = tuple(_item(word) for word in words if word.strip())
    if not items:
        raise DeviceError("no device is chosen", hint=EXAMPLES)
    return items


def _item(word: str) -> Item:
    match = _ITEM.fullmatch(word)
    if match is None:
        raise DeviceError(f"{word.strip()!r} does not choose a device", hint=EXAMPLES)
    division = tuple(int(n) for n in match["division"].split("+")) if match["division"] else ()
    if any(n < 1 or n > _MOST_PARTS for n in division):
        raise DeviceError(f"{word.strip()!r}: parts number from 1 to {_MOST_PARTS}", hint=EXAMPLES)
    parts = None
    if match["first"] is not None:
        if not division:
            raise DeviceError(f"{word.strip()!r} picks a part of a device that is not divided", hint=EXAMPLES)
        parts = (int(match["first"]), int(match["last"] or match["first"]))
        if parts[0] > parts[1]:
            raise DeviceError(f"{word.strip()!r}: the first part comes after the last", hint=EXAMPLES)
    factor = float(match["factor"] or 1.0)
    if not 1.0 <= factor <= 1e6:
        raise DeviceError(f"{word.strip()!r}: a slow-down factor is at least 1 (and at most a million)")
    return Item(match["selector"].strip(), division, parts, factor)
