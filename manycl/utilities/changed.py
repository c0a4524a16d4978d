"""Frozen values with other fields, and made in little time."""

from __future__ import annotations

from typing import Any, TypeVar

Value = TypeVar("Value")

named = tuple.__new__
"""``named(Type, fields)``: a NamedTuple in half the time of a call of its type; all fields have to be there."""


def changed(value: Value, **fields: Any) -> Value:
    """Do what ``dataclasses.replace`` does with a dataclass without slots, in a tenth of its time: nothing is computed
    anew, not even what is cached, which must not depend on these fields."""
    made = object.__new__(type(value))
    made.__dict__.update(value.__dict__)
    made.__dict__.update(fields)
    return made
