"""The fields of PySchedCL's information files, as pyschedcl_fields.toml has them. Expressions are Python 2's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from manycl.applications.formats.kinds import (
    Either,
    FieldTable,
    Listed,
    Named,
    ValueKind,
    read_tables,
)
from manycl.applications.formats.symbols import Scope
from manycl.expressions import IDENTIFIER, ExpressionError, Number, evaluate, evaluate_integer, names, split_list
from manycl.graph.launch import split_type
from manycl.utilities.json_lines import Location


class Symbols(dict[str, Number]):
    """The symbols that hold for a kernel. ``used``: those that expressions name, of all kernels; ``note``: where they
    are from, for messages about sizes."""

    def __init__(self, values: Mapping[str, Number], used: set[str], note: str = "") -> None:
        super().__init__(values)
        self.used, self.note = used, note


def _number(value: Any, scope: Scope, place: Location) -> Number:
    try:
        if isinstance(value, str) and isinstance(scope, Symbols):
            scope.used |= names(value)
        return evaluate(value, scope, pyschedcl=True)
    except ExpressionError as error:
        raise place.error(str(error)) from None


def _integer(value: Any, scope: Scope, place: Location) -> int:
    result = _number(value, scope, place)
    try:
        return evaluate_integer(result, {})
    except ExpressionError:
        raise place.error(f"must be a whole number, not {result}") from None


def _count(value: Any, scope: Scope, place: Location) -> int:
    found = _integer(value, scope, place)
    if found < 1:
        raise place.error(f"must be at least 1, not {found}{scope.note if isinstance(scope, Symbols) else ''}")
    return found


def _tenths(value: Any, scope: Scope, place: Location) -> int:
    found = _integer(value, scope, place)
    if not 0 <= found <= 10:
        raise place.error(f"must be tenths on the GPU, from 0 to 10, not {found}")
    return found


def _items(value: Any, place: Location) -> list[Any]:
    """A list, also as an expression; what is none is a list of one."""
    try:
        return split_list(value) if isinstance(value, str) else value if isinstance(value, list) else [value]
    except ExpressionError as error:
        raise place.error(str(error)) from None


def _numbers(value: Any, scope: Scope, place: Location) -> list[Number]:
    return [_number(item, scope, place) for item in _items(value, place)]


def _sizes(value: Any, scope: Scope, place: Location) -> tuple[int, ...]:
    return tuple([_count(item, scope, place) for item in _items(value, place)])


def _position(value: Any, scope: Scope, place: Location) -> int:
    if not isinstance(value, int):
        raise place.error(f"must be the position of an argument, not {value}")
    return value


def _macros(value: dict[str, Any], scope: Scope, place: Location) -> list[str]:
    """Options for the compiler."""
    options = []
    for key, text in value.items():
        here = place.at(key)
        if not IDENTIFIER.match(key):
            raise here.error("is not the name of a macro")
        if isinstance(text, str) and (not text or _is_type(text)):
            options.append(f"-D{key}={text}" if text else f"-D{key}")
        else:
            options.append(f"-D{key}={_number(text, scope, here)}")
    return options


def _is_type(text: str) -> bool:
    try:
        split_type(text)
    except ValueError:
        return False
    return True


def _symbols(value: dict[str, Any], scope: Scope, place: Location) -> dict[str, Number]:
    """The values of those that have one here."""
    given = {symbol: v for symbol, v in value.items() if v not in (None, "", symbol)}
    return {symbol: _number(v, scope, place.at(symbol)) for symbol, v in given.items()}


def _kinds(tables: dict[str, FieldTable]) -> dict[str, ValueKind]:
    """The kinds by the names that the file has for them; tables are kinds, too."""
    string, number, truth, null = (ValueKind(name) for name in ("string", "number", "boolean", "null"))
    value, anything = Either(number, string), (string, number, truth, null)
    nothing = ValueKind("array", lambda value, scope, place: {})

    def local_sizes(value: Any, scope: Scope, place: Location) -> Any:
        """The sizes; one for every dimension is a number; None where nothing is asked for."""
        if isinstance(value, dict):
            return tables["each_dimension"].fields_of(value, scope, place)["every"]
        return _sizes(value, scope, place) if value not in ("", []) else None

    return {
        "anything": Either(*anything, ValueKind("array"), ValueKind("object")),
        "id": Either(number, string, read=lambda value, scope, place: str(value)),
        "ids": Either(number, string, Listed(value), read=lambda value, scope, place: [str(v) for v in _listed(value)]),
        "name": ValueKind("string", minLength=1),
        "text": string,
        "task": Either(number, string, read=lambda value, scope, place: f"task {value}"),
        "count": Either(number, string, read=_count),
        "tenths": Either(number, string, read=_tenths),
        "position": ValueKind("number", _position),
        "numbers": Either(number, string, Listed(value), read=_numbers),
        "sizes": Either(number, string, Listed(value), read=_sizes),
        "local sizes": Either(number, string, Listed(value), tables["each_dimension"], read=local_sizes),
        "macros": Named(value, read=_macros),
        "symbols": Either(Named(Either(number, string, null), read=_symbols), nothing),
        "buffers": Listed(tables["memory"]),
        "scalars": Listed(tables["scalar"]),
        "origin": tables["origin"],
    }


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


INFORMATION = read_tables(Path(__file__).with_suffix(".toml"), _kinds, lenient=True)["information"]
