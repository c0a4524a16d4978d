"""The kernels of a specification with all their fields: groups and repetitions expanded, fields of groups inherited."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from manycl.front.json_lines import Location
from manycl.front.symbols import Scope, number, repetitions, text

_OWN = ("id", "name", "args", "versions", "annotations")
_HANDED_DOWN = ("source", "options", "macros", "global", "local", "offset", "device", "partition", "rank", "component")


@dataclass(frozen=True)
class Fields:
    """A kernel's fields with the places they come from (its own, or a group's), and the symbols that hold
    there.
    """

    scope: Scope
    place: Location
    values: dict[str, tuple[Any, Location]] = field(default_factory=dict)
    options: tuple[str, ...] = ()

    def get(self, key: str) -> tuple[Any, Location]:
        return self.values.get(key, (None, self.place))


def kernels(node: dict[str, Any], place: Location, outer: Fields) -> Iterator[Fields]:
    """Every kernel of the list in ``node``, whose own fields are in ``outer`` already."""
    for index, entry in enumerate(node["kernels"]):
        here = place.at("kernels", index)
        for scope in repetitions(entry, outer.scope, here):
            inside = Fields(scope, here, outer.values, outer.options)
            if "kernels" in entry:
                for name in _OWN:
                    if name in entry:
                        raise here.at(name).error("a group of kernels has no such field")
                yield from kernels(entry, here, inherit(entry, here, inside))
            else:
                for name in ("name", "global", "args"):
                    if name not in entry and name not in outer.values:
                        raise here.error(f"the field {name!r} is missing")
                yield inherit(entry, here, inside)


def inherit(
    node: dict[str, Any], place: Location, outer: Fields, keys: Sequence[str] = (*_HANDED_DOWN, *_OWN)
) -> Fields:
    """The fields of ``node`` among ``keys``, and those of ``outer`` that it does not have; build options add up."""
    values = dict(outer.values)
    values.update((key, (node[key], place.at(key))) for key in keys if key in node)
    options = list(outer.options)
    for index, option in enumerate(node.get("options", ())):
        options.append(text(option, outer.scope, place.at("options", index)))
    for name, value in node.get("macros", {}).items():
        options = [o for o in options if not o.startswith(f"-D{name}=")]  # the innermost value holds
        options.append(f"-D{name}={number(value, outer.scope, place.at('macros', name))}")
    return Fields(outer.scope, place, values, tuple(options))
