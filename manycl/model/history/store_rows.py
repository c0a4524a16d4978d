"""Rows of the store as values; ValueError or TypeError for rows that make no sense."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from manycl.model.history.history import Comparison, KernelKey, Shape, Stored
from manycl.model.occupancy import LaunchRange


class KernelSeries(NamedTuple):
    """A series of the store, with its kernel."""

    key: KernelKey
    stored: Stored


def key(row: Iterable[Any]) -> KernelKey:
    text, name, local, *_ = row
    return KernelKey(str(text), str(name), extents(local) if local else None)


def ratio(row: tuple[Any, ...]) -> tuple[KernelKey, float]:
    return key(row), number(row[3])


def measured(row: tuple[Any, ...]) -> tuple[str, str, float]:
    return str(row[0]), str(row[1]), number(row[2])


def comparison(row: tuple[Any, ...]) -> tuple[str, Comparison]:
    return str(row[0]), Comparison(number(row[1]), number(row[2]))


def seconds(row: tuple[Any, ...]) -> float:
    return number(row[0])


def series(row: tuple[Any, ...]) -> KernelSeries:
    kernel, device, size, f, idle, taken, told = row
    return KernelSeries(key(kernel), Stored(str(device), shape(size, number(f)), taken, int(idle), told))


def shape(text: str, f: float) -> Shape:
    if not text.startswith("[["):
        return Shape(extents(text), f)
    size, (first, *groups) = json.loads(text)
    return Shape(extents(json.dumps(size)), f, LaunchRange(int(number(first)), *extents(json.dumps(groups))))


def extents(text: object) -> tuple[int, ...]:
    """Return the sizes of an NDRange as they are stored; ValueError for any other text."""
    found = json.loads(text) if isinstance(text, str) else None
    if not isinstance(found, list) or not all(type(n) is int and n > 0 for n in found):
        raise ValueError(f"sizes {text!r:.40}")
    return tuple(found)


def number(value: object) -> float:
    """Return a measured number; ValueError for any other value."""
    if not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"a value {value!r:.40}")
    return value
