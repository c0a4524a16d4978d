"""Kinds of JSON values: what each takes, said as a JSON Schema and by messages that name the field, and what is read
of it. The fields of an object are a :class:`FieldTable` of such kinds.

In every ``Either`` the branches differ in the JSON type that they take, so that the message can be about the branch
that was meant. (The general validator of the jsonschema package takes longer for a thousand kernels than all the rest
of loading, and msgspec and pydantic know neither expressions of symbols nor the places of fields; the tests hold these
kinds and their JSON Schema to the same verdicts.)
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from manycl.expressions import ExpressionError, Number, evaluate, evaluate_integer, expand, names, suggest
from manycl.utilities.json_lines import Location, Where

MAX_REPEAT = 100_000
"""The most repetitions of one construct, and kernels and buffers of one file; our own choice."""

Scope = dict[str, Number]


class Symbols(Scope):
    """The symbols that hold for a kernel of PySchedCL's: expressions are Python 2's. ``used``: those that expressions
    name, of all kernels; ``note``: where they are from, for messages about sizes."""

    def __init__(self, values: Mapping[str, Number], used: set[str], note: str = "") -> None:
        super().__init__(values)
        self.used, self.note = used, note


def read_parameters(nodes: Mapping[str, Any], place: Location, given: Mapping[str, str]) -> Scope:
    """The symbols: defaults, overridden by ``given``; defaults may be expressions of earlier symbols."""
    for name in given:
        if name not in nodes:
            problem = f"-D {name}: there is no such parameter{suggest(name, nodes)}"
            raise place.error(problem, hint=f"parameters: {', '.join(nodes) or 'none'}")
    scope: Scope = {}
    missing = [name for name, value in nodes.items() if value is None and name not in given]
    if missing:
        raise place.at(missing[0]).error(
            f"no value for {', '.join(missing)}", hint=" ".join(f"-D {name}=..." for name in missing)
        )
    for name, default in nodes.items():
        try:
            scope[name] = evaluate(str(given[name]), {}) if name in given else evaluate(default, scope)
        except ExpressionError as error:
            prefix = f"-D {name}={given[name]}: " if name in given else ""
            raise place.at(name).error(prefix + str(error)) from None
    return scope


def integer(value: str | Number, scope: Scope, place: Location, least: int) -> int:
    result = int(_evaluated(evaluate_integer, value, scope, place))
    if result < least:
        came = f" (from {value!r:.60})" if isinstance(value, str) else ""
        note = scope.note if isinstance(scope, Symbols) else ""
        raise place.error(f"must be at least {least}, not {result}{came}{note}")
    return result


def number(value: str | Number, scope: Scope, place: Location) -> Number:
    return _evaluated(evaluate, value, scope, place)


def _evaluated(how: Callable[..., Number], value: str | Number, scope: Scope, place: Location) -> Number:
    try:
        if not isinstance(scope, Symbols):
            return how(value, scope)
        scope.used |= names(value) if isinstance(value, str) else set()
        return how(value, scope, pyschedcl=True)
    except ExpressionError as error:
        raise place.error(str(error)) from None


def text(value: str, scope: Scope, place: Location) -> str:
    try:
        return expand(value, scope)
    except ExpressionError as error:
        raise place.error(str(error)) from None


def repetitions(repeat: dict[str, Any], scope: Scope, place: Location) -> Iterator[Scope]:
    """The scopes of a ``repeat``."""
    total = 1
    axes: list[list[Number]] = []
    for symbol, values in repeat.items():
        here = place.at(symbol)
        if symbol in scope:
            raise here.error(f"the symbol {symbol!r} has a value already")
        if isinstance(values, list):
            axes.append([number(v, scope, here.at(i)) for i, v in enumerate(values)])
            total *= len(values)
        else:
            count = integer(values, scope, here, 0)
            total *= count
            limit(total, here)
            axes.append(list(range(count)))
    limit(total, place)
    for combination in product(*axes):
        yield {**scope, **dict(zip(repeat, combination, strict=True))}


def limit(count: int, place: Location, most: int = MAX_REPEAT) -> None:
    if count > most:
        raise place.error(f"too many: {count} (at most {most})")


_NAMES = {
    "object": "an object",
    "array": "a list",
    "string": "a string",
    "number": "a number",
    "null": "null",
    "boolean": "a truth value",
}
_TYPES: dict[type[Any], str] = {
    dict: "object",
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    type(None): "null",
    bool: "boolean",
}

_SYMBOL = "^[A-Za-z_][A-Za-z0-9_]*$"

Node = dict[str, Any]
Reader = Callable[[Any, Scope, Location], Any]


class ViolationError(Exception):
    """An error in a document: what is wrong, and where."""

    def __init__(self, where: Where, problem: str) -> None:
        super().__init__(problem)
        self.where = where
        self.problem = problem


def show(value: Any) -> str:
    """A JSON value in a few characters."""
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def as_it_is(value: Any, scope: Scope, place: Location) -> Any:
    """The reader of values that mean what they are."""
    return value


class ValueKind:
    """Values of one JSON type. ``read``: what a value means, once it was checked: a function of it, the symbols that
    hold, and its place. ``limits``: ``const``, ``enum``, ``minLength`` or ``exclusiveMinimum`` of JSON Schema."""

    def __init__(self, json_type: str, read: Reader = as_it_is, **limits: Any) -> None:
        self.json_type = json_type
        self.read = read
        self.limits = limits
        self.by_type: dict[str, ValueKind] = {json_type: self}

    def check(self, value: Any, where: Where) -> None:
        """Raise ViolationError at the first place where a value is not what it must be."""
        kind = self.by_type.get(_TYPES[type(value)])
        if kind is None:
            names = " or ".join(_NAMES[name] for name in self.by_type)
            raise ViolationError(where, f"must be {names}, not {show(value)}")
        kind.check_inside(value, where)

    def check_inside(self, value: Any, where: Where) -> None:
        """Check a value of the right JSON type."""
        for name, limit in self.limits.items():
            if name == "const" and value != limit:
                raise ViolationError(where, f"must be {show(limit)}, not {show(value)}")
            if name == "enum" and value not in limit:
                close = suggest(value, limit)
                raise ViolationError(where, f"must be one of {', '.join(limit)}, not {show(value)}{close}")
            if name == "minLength" and len(value) < limit:
                raise ViolationError(where, "must not be empty")
            if name == "exclusiveMinimum" and value <= limit:
                raise ViolationError(where, f"must be more than {limit}, not {show(value)}")

    def schema(self, tables: dict[str, Node]) -> Node:
        """The JSON Schema of such values; those of tables are put into ``tables`` and referred to."""
        return {"type": self.json_type, **self.limits}


class Listed(ValueKind):
    """A list of ``least`` to ``most`` values of a kind."""

    def __init__(self, kind: ValueKind, least: int = 0, most: int | None = None, read: Reader | None = None) -> None:
        super().__init__("array", read or self._read)
        self.kind, self.least, self.most = kind, least, most

    def _read(self, value: Any, scope: Scope, place: Location) -> tuple[Any, ...]:
        return tuple([self.kind.read(element, scope, place.at(index)) for index, element in enumerate(value)])

    def check_inside(self, value: Any, where: Where) -> None:
        if len(value) < self.least:
            words = "must not be an empty list" if self.least == 1 else f"must have at least {self.least} items"
            raise ViolationError(where, words)
        if self.most is not None and len(value) > self.most:
            raise ViolationError(where, f"must have at most {self.most} items, not {len(value)}")
        for index, element in enumerate(value):
            self.kind.check(element, (*where, index))

    def schema(self, tables: dict[str, Node]) -> Node:
        limits = {"minItems": self.least or None, "maxItems": self.most}
        given = {name: value for name, value in limits.items() if value is not None}
        return {"type": "array", **given, "items": self.kind.schema(tables)}


class Named(ValueKind):
    """An object with values of a kind by names of the user's, at least ``least``; ``identifiers``: names of symbols."""

    def __init__(
        self, kind: ValueKind, least: int = 0, *, identifiers: bool = False, read: Reader | None = None
    ) -> None:
        super().__init__("object", read or self._read)
        self.kind, self.least, self.identifiers = kind, least, identifiers

    def _read(self, value: Any, scope: Scope, place: Location) -> dict[str, Any]:
        return {name: self.kind.read(element, scope, place.at(name)) for name, element in value.items()}

    def check_inside(self, value: Any, where: Where) -> None:
        if len(value) < self.least:
            raise ViolationError(where, "must not be an empty object")
        for name, element in value.items():
            if self.identifiers and not re.search(_SYMBOL, name):
                raise ViolationError((*where, name), "is not a name (letters, digits and _, no digit first)")
            self.kind.check(element, (*where, name))

    def schema(self, tables: dict[str, Node]) -> Node:
        least: Node = {"minProperties": self.least} if self.least else {}
        names: Node = {"propertyNames": {"pattern": _SYMBOL}} if self.identifiers else {}
        return {"type": "object", **least, **names, "additionalProperties": self.kind.schema(tables)}


class Either(ValueKind):
    """Values of several kinds, which differ in their JSON types."""

    def __init__(self, *kinds: ValueKind, read: Reader | None = None) -> None:
        super().__init__("", read or self._read)
        self.kinds = kinds
        self.by_type = {name: branch for kind in kinds for name, branch in kind.by_type.items()}
        assert len(self.by_type) == sum(len(kind.by_type) for kind in kinds), "two branches take the same type"

    def _read(self, value: Any, scope: Scope, place: Location) -> Any:
        return self.by_type[_TYPES[type(value)]].read(value, scope, place)

    def schema(self, tables: dict[str, Node]) -> Node:
        return {"anyOf": [kind.schema(tables) for kind in self.kinds]}


@dataclass(frozen=True, slots=True)
class Field:
    """``help``: what it means, for the reference and for editors; ``default``: what is read where it is not given."""

    name: str
    kind: ValueKind
    help: str = ""
    default: Any = None
    required: bool = False


class FieldTable(ValueKind):
    """An object with certain fields, at least ``least`` of them, read as :class:`Fields`. ``lenient``: other fields are
    left alone, and null is as if a field were not there."""

    def __init__(self, name: str, least: int = 0, *, lenient: bool = False) -> None:
        super().__init__("object", self.fields_of)
        self.name, self.least, self.lenient = name, least, lenient
        self.fields: dict[str, Field] = {}

    def fields_of(self, value: Any, scope: Scope, place: Location) -> Fields:
        """The fields of an object."""
        there = {name: element for name, element in value.items() if not (self.lenient and element is None)}
        return Fields(self, scope, place, {name: Given(element, place.at(name)) for name, element in there.items()})

    def check_inside(self, value: Any, where: Where) -> None:
        if len(value) < self.least:
            raise ViolationError(where, "must not be an empty object")
        for name, element in value.items():
            field = self.fields.get(name)
            if self.lenient and (field is None or element is None):
                continue
            if field is None:
                raise ViolationError((*where, name), f"unknown field{suggest(name, self.fields)}")
            field.kind.check(element, (*where, name))
        for field in self.fields.values():
            if field.required and (field.name not in value or (self.lenient and value[field.name] is None)):
                raise ViolationError(where, f"the field {field.name!r} is missing")

    def schema(self, tables: dict[str, Node]) -> Node:
        if self.name not in tables:
            tables[self.name] = {}  # (it may have fields of its own kind)
            tables[self.name] = self.whole_schema(tables)
        return {"$ref": f"#/$defs/{self.name}"}

    def whole_schema(self, tables: dict[str, Node]) -> Node:
        """The schema itself, where others refer to it."""
        required = [field.name for field in self.fields.values() if field.required]
        properties = {
            field.name: {"description": field.help, **field.kind.schema(tables)} for field in self.fields.values()
        }
        return {
            "type": "object",
            **({"required": required} if required else {}),
            **({"minProperties": self.least} if self.least else {}),
            "additionalProperties": False,
            "properties": properties,
        }

    def shortened(self, name: str, kind: ValueKind) -> Either:
        """Objects of the table, or values of a kind that stand for one with the field of a name alone."""

        def read(value: Any, scope: Scope, place: Location) -> Fields:
            if isinstance(value, dict):
                return self.fields_of(value, scope, place)
            return Fields(self, scope, place, {name: Given(value, place)})

        return Either(kind, self, read=read)


class Given(NamedTuple):
    """A value of a document, and its place."""

    value: Any
    place: Location


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of an object with their places, which may be in another one that hands them down, and the symbols that
    hold there. ``fields[name]`` is what a field means, or its default."""

    table: FieldTable
    scope: Scope
    place: Location
    values: dict[str, Given]
    options: tuple[str, ...] = ()
    """Build options, of all objects around it, too."""

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def __getitem__(self, name: str) -> Any:
        field = self.table.fields[name]
        given = self.values.get(name)
        return field.default if given is None else field.kind.read(given.value, self.scope, given.place)

    def where(self, name: str) -> Location:
        found = self.values.get(name)
        return self.place.at(name) if found is None else found.place

    def repeated(self) -> Iterator[Fields]:
        """Yield the fields for every combination of the symbols of ``repeat``; once where there is none."""
        if "repeat" not in self.values:
            yield self
            return
        for scope in self["repeat"]:
            yield Fields(self.table, scope, self.place, self.values, self.options)

    def inside(self, inner: Fields, names: tuple[str, ...]) -> Fields:
        """The fields of an object inside this one with those that are handed down to it: all that it does not have
        among ``names``. Build options add up, and of a macro's values the innermost holds."""
        values = dict(self.values)
        values.update((name, inner.values[name]) for name in names if name in inner.values)
        options = [*self.options, *(inner["options"] or ())]
        for name, value in (inner["macros"] or {}).items():
            options = [option for option in options if not option.startswith(f"-D{name}=")]
            options.append(f"-D{name}={value}")
        return Fields(inner.table, inner.scope, inner.place, values, tuple(options))

    def without(self, *names: str) -> Fields:
        values = {name: given for name, given in self.values.items() if name not in names}
        return Fields(self.table, self.scope, self.place, values, self.options)


EXPRESSION = Either(ValueKind("number"), ValueKind("string", minLength=1), read=number)
"""A number, or an expression of symbols."""


def whole(least: int, most: int | None = None) -> ValueKind:
    """A whole number: an expression, with the least and the greatest value that it may have."""

    def read(value: Any, scope: Scope, place: Location) -> int:
        found = integer(value, scope, place, least)
        if most is not None and found > most:
            raise place.error(f"must be from {least} to {most}, not {found}")
        return found

    return Either(*EXPRESSION.kinds, read=read)


def some(kind: ValueKind, least: int = 1, most: int | None = None) -> ValueKind:
    """One value, or a list of several; read as a tuple."""
    several = Listed(kind, least, most)

    def read(value: Any, scope: Scope, place: Location) -> tuple[Any, ...]:
        return several.read(value, scope, place) if isinstance(value, list) else (kind.read(value, scope, place),)

    return Either(kind, several, read=read)


def placed(read: Reader) -> Reader:
    """A reader of values that are looked up later: it keeps their places."""
    return lambda value, scope, place: Given(read(value, scope, place), place)


def read_tables(
    file: Path,
    kinds_of: Callable[[dict[str, FieldTable]], Mapping[str, ValueKind]],
    least: Mapping[str, int] = MappingProxyType({}),
    *,
    lenient: bool = False,
) -> dict[str, FieldTable]:
    """The tables of a TOML file by name. ``kinds_of``: of the tables, the kinds by the names that the file has for
    them; ``least``: how many fields objects have at least, by table."""
    said = tomllib.loads(file.read_text("utf-8"))
    shared: dict[str, Any] = said.pop("shared", {})
    tables = {name: FieldTable(name, least.get(name, 0), lenient=lenient) for name in said}
    kinds = kinds_of(tables)
    for table, fields in said.items():
        for name, own in fields.items():
            words = {**shared.get(name, {}), **own}
            default = words.pop("default", None)
            words |= {"kind": kinds[words["kind"]], "default": tuple(default) if isinstance(default, list) else default}
            tables[table].fields[name] = Field(name, **words)
    return tables


def check(document: Any, table: FieldTable, place: Location) -> None:
    """Raises SpecificationError at the first place where the document violates the table."""
    try:
        table.check(document, ())
    except ViolationError as violation:
        raise place.at(*violation.where).error(violation.problem) from None
    except RecursionError:
        raise place.error("nested too deeply") from None


def json_schema(table: FieldTable, title: str) -> Node:
    """The JSON Schema of documents of a table."""
    tables: dict[str, Node] = {}
    found = table.whole_schema(tables)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **found, "$defs": tables}


def reference(table: FieldTable) -> str:
    """The table as Markdown: each field with its help."""
    rows = [f"| `{field.name}` | {field.help} |" for field in table.fields.values()]
    return "\n".join(["| field | meaning |", "|---|---|", *rows, ""])
