"""Quantities with units, read and written: ``55 GB/s``, ``20 us``, ``3.5 GHz``, ``4 GiB``, ``6.5 TFLOP/s``. A quantity
without a unit, or with a unit of something else, is refused. What is written reads back as exactly the same number."""

from __future__ import annotations

import re
from fractions import Fraction

PAGE = 4096
"""Bytes of a page of memory: a multiple of any device's alignment of sub-buffers (CL_DEVICE_MEM_BASE_ADDR_ALIGN), and
the least that is worth locking."""
ELEMENT = 128
"""Bytes of the largest element of OpenCL C (``double16``): no type is aligned to more."""
LARGEST = 1 << 62
"""More bytes, or points, than anything has: two of them are summed in 64 bits."""

_DECIMAL = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_SMALL = {"": 0, "m": -3, "u": -6, "\N{MICRO SIGN}": -6, "\N{GREEK SMALL LETTER MU}": -6, "n": -9, "p": -12}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}


def _powers(base: int, prefixes: dict[str, int], unit: str) -> dict[str, Fraction]:
    return {f"{prefix}{unit}": Fraction(base) ** power for prefix, power in prefixes.items()}


_SCALES = {
    "Hz": _powers(10, _DECIMAL, "Hz"),
    "s": _powers(10, _SMALL, "s"),
    "B": _powers(10, _DECIMAL, "B") | _powers(2, _BINARY, "B"),
    "B/s": _powers(10, _DECIMAL, "B/s") | _powers(2, _BINARY, "B/s"),
    "FLOP/s": _powers(10, _DECIMAL, "FLOP/s"),
    "W": _powers(10, {**_DECIMAL, "m": -3}, "W"),
    "J/B": _powers(10, _SMALL, "J/B"),
}
_QUANTITY = re.compile(
    r"(?P<number>\d{1,30}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?)\s*(?P<unit>[A-Za-z\u00b5\u03bc]\S*)", re.ASCII
)
_BYTE_UNITS = ("TiB", "GiB", "MiB", "KiB", "B")


def parse_quantity(text: str, unit: str) -> float:
    """The value of a quantity in ``unit``: Hz, s, B/s, FLOP/s, W or J/B. Raises ValueError for what is none."""
    try:
        return float(_exact(text, unit))
    except OverflowError:
        raise ValueError(f"{text!r} is too large") from None


def parse_bytes(text: str) -> int:
    """The number of bytes of ``4 GiB`` or ``1.5 kB``. ValueError for what is none, or not whole."""
    value = _exact(text, "B")
    if value.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(value)


def _exact(text: str, unit: str) -> Fraction:
    scales = _SCALES[unit]
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a number with a unit, such as {_example(unit)}")
    scale = scales.get(match["unit"])
    if scale is None:
        raise ValueError(f"{text!r}: {match['unit']} is not one of {', '.join(scales)}")
    return Fraction(match["number"]) * scale


def _example(unit: str) -> str:
    return {
        "Hz": '"3.5 GHz"',
        "s": '"20 us"',
        "B": '"4 GiB"',
        "B/s": '"55 GB/s"',
        "FLOP/s": '"6.5 TFLOP/s"',
        "W": '"250 W"',
        "J/B": '"60 pJ/B"',
    }[unit]


def format_quantity(value: float, unit: str) -> str:
    """A short text, with the largest prefix that leaves at least 1, that reads back as exactly ``value``."""
    scales = [(n, s) for n, s in _SCALES[unit].items() if n.isascii() and "i" not in n.removesuffix(unit)]
    scales.sort(key=lambda pair: pair[1], reverse=True)
    exact = Fraction(value)
    fitting = [(n, s) for n, s in scales if exact >= s]
    for name, scale in (*fitting, (unit, Fraction(1))):
        for digits in (6, 12, 17):
            text = f"{float(exact / scale):.{digits}g} {name}"
            if parse_quantity(text, unit) == value:
                return text
    raise AssertionError(f"17 digits without a prefix are exact: {value!r} {unit}")


def format_bytes(value: int) -> str:
    """The text with the largest binary unit that leaves a whole number."""
    for name in _BYTE_UNITS:
        scale = int(_SCALES["B"][name])
        if value % scale == 0 and value >= scale:
            return f"{value // scale} {name}"
    return f"{value} B"


def show_bytes(value: int) -> str:
    """For people: four digits, rounded."""
    name = next((n for n in _BYTE_UNITS if value >= _SCALES["B"][n]), "B")
    return f"{float(value / _SCALES['B'][name]):.4g} {name}"
