"""Whether ranges of a launch may run different versions of its kernel.

Each version is divided for itself, and is right as a whole. Ranges of work-groups that have the same numbers in all of
them may be done by any, if no version, in whichever of the ranges, writes what it or another one touches in another
range: then what a range writes is written there by all of them, and nobody else has seen it or ever changes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from manycl.graph.access import interfere
from manycl.graph.division import Division
from manycl.graph.graph import BufferKey
from manycl.group_range import GroupRange
from manycl.region import union


def apart(divisions: Sequence[Division], ranges: Sequence[GroupRange]) -> str:
    """Why ranges, which are all of a launch, may not run in different versions, divided like this; empty: they may.

    Asks for what versions touch at most, so it may say so of some that could.
    """
    for division in divisions:
        if division.operations:
            return f"groups of {division.launch.kernel.name} change the same elements by atomic operations"
    found = [[division.access(groups) for division in divisions] for groups in ranges]
    for key in dict.fromkeys(key for division in divisions for key in division.launch.writes):
        touched = [[access[key] for access in of if key in access] for of in found]
        if interfere([(union(a.reads for a in of), union(a.writes for a in of)) for of in touched]):
            names = ", ".join(dict.fromkeys(division.launch.kernel.name for division in divisions))
            return (
                f"ranges of work-groups do not touch the same in each of {names} (argument {_name(divisions[0], key)})"
            )
    return ""


def _name(division: Division, key: BufferKey) -> str:
    return ", ".join(division.launch.kernel.arguments[i].name for i in division.arguments.get(key, ()))
