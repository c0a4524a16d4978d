"""Frozen values with other fields."""

from __future__ import annotations

from typing import Any, TypeVar

Value = TypeVar("Value")


def changed(value: Value, **fields: Any) -> Value:
    """As ``dataclasses.replace`` of a dataclass without slots, in a tenth of its time: nothing is computed anew, not
    even what is cached, which must not depend on these fields."""
    made = object.__new__(type(value))
    made.__dict__.update(value.__dict__)
    made.__dict__.update(fields)
    return made
