"""The one syntax for choosing devices: ``--devices``, MANYCL_DEVICES, and ``devices=`` of the Python API.

Items separated by commas, each ``SELECTOR[/DIVISION][#PART[-PART]][@FACTOR][@process]``:

- SELECTOR: ``all``; a kind (``cpu``, ``gpu``, ``accelerator``); a name (``cpu0``); or part of the name of a kind of
  driver, a platform or a model, in any case (``opencl``, ``native``, ``oclgrind``, ``intel``);
- DIVISION: ``2`` equal parts, or compute units per part: ``1+3``;
- ``#0`` or ``#0-1``: only these parts (default: all);
- ``@4``: a slow-down factor, at least 1, for experiments;
- ``@process``: each device, or part, is opened by a process of its own (a worker device).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from manycl.errors import DeviceError

EXAMPLES = "for example: all | gpu | cpu/2 | cpu/2#0,cpu/2#1@4 | gpu0,cpu/1+1 | cpu/2@process"
_ITEM = re.compile(
    r"(?P<selector>[^/#@,]*[^/#@,\s])\s*"
    r"(?:/(?P<division>\d{1,9}(?:\+\d{1,9})*))?"
    r"(?:\#(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?)?"
    r"(?:@(?P<factor>\d{1,9}(?:\.\d{1,17})?))?"
    r"(?P<process>@process)?",
    re.ASCII,
)
_MOST_PARTS = 4096
_MOST_FACTOR = 1e6


@dataclass(frozen=True, slots=True)
class Item:
    """One item. ``division``: () undivided, (n,) n equal parts, (a, b, …) parts of that many compute units. ``parts``:
    first and last part wanted (None: all). ``factor``: slow-down. ``own_process``: a process of its own opens it."""

    selector: str
    division: tuple[int, ...] = ()
    parts: tuple[int, int] | None = None
    factor: float = 1.0
    own_process: bool = False

    def __str__(self) -> str:
        division = f"/{'+'.join(map(str, self.division))}" if self.division else ""
        parts = ""
        if self.parts:
            first, last = self.parts
            parts = f"#{first}" if first == last else f"#{first}-{last}"
        factor = f"@{repr(self.factor).removesuffix('.0')}" if self.factor != 1.0 else ""
        return f"{self.selector}{division}{parts}{factor}{'@process' if self.own_process else ''}"


def parse(selection: str | Sequence[str]) -> tuple[Item, ...]:
    """The items of a selection, in order; a sequence of selections is their concatenation. ``",".join(map(str,
    items))`` parses to the same items. Raises DeviceError for what does not parse."""
    lists = [selection] if isinstance(selection, str) else list(selection)
    if not any(text.strip() for text in lists):
        raise DeviceError("no device is chosen", hint=EXAMPLES)
    return tuple(_item(word.strip()) for text in lists for word in text.split(","))


def _item(word: str) -> Item:
    match = _ITEM.fullmatch(word)
    if match is None:
        raise DeviceError(f"{word!r} does not choose a device", hint=EXAMPLES)
    division = tuple(int(n) for n in match["division"].split("+")) if match["division"] else ()
    if (
        any(n < 1 for n in division)
        or len(division) > _MOST_PARTS
        or (len(division) == 1 and division[0] > _MOST_PARTS)
    ):
        raise DeviceError(
            f"{word!r}: a device is divided into 1 to {_MOST_PARTS} parts of at least one compute unit", hint=EXAMPLES
        )
    parts = None
    if match["first"] is not None:
        if not division:
            raise DeviceError(f"{word!r} picks a part of a device that is not divided", hint=EXAMPLES)
        parts = (int(match["first"]), int(match["last"] or match["first"]))
        if parts[0] > parts[1]:
            raise DeviceError(f"{word!r}: the first part comes after the last", hint=EXAMPLES)
    factor = float(match["factor"] or 1.0)
    if not 1.0 <= factor <= _MOST_FACTOR:
        raise DeviceError(f"{word!r}: a slow-down factor is from 1 to {_MOST_FACTOR:g}", hint=EXAMPLES)
    return Item(match["selector"], division, parts, factor, match["process"] is not None)
