"""The fields of PySchedCL's information files, as pyschedcl_fields.toml has them. Expressions are Python 2's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from manycl.applications.formats.kinds import (
    Either,
    FieldTable,
    Listed,
    Named,
    Scope,
    ValueKind,
    integer,
    number,
    read_tables,
    some,
    whole,
)
from manycl.expressions import IDENTIFIER, ExpressionError, Number, split_list
from manycl.graph.launch import split_type
from manycl.utilities.json_lines import Location


def _items(value: Any, place: Location) -> list[Any]:
    """A list, also as an expression; what is none is a list of one."""
    try:
        return split_list(value) if isinstance(value, str) else value if isinstance(value, list) else [value]
    except ExpressionError as error:
        raise place.error(str(error)) from None


def _numbers(value: Any, scope: Scope, place: Location) -> list[Number]:
    return [number(item, scope, place) for item in _items(value, place)]


def _sizes(value: Any, scope: Scope, place: Location) -> tuple[int, ...]:
    return tuple([integer(item, scope, place, 1) for item in _items(value, place)])


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
            options.append(f"-D{key}={number(text, scope, here)}")
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
    return {symbol: number(v, scope, place.at(symbol)) for symbol, v in given.items()}


def _kinds(tables: dict[str, FieldTable]) -> dict[str, ValueKind]:
    """The kinds by the names that the file has for them; tables are kinds, too."""
    string, null = ValueKind("string"), ValueKind("null")
    plain = ValueKind("number"), string
    value, items = Either(*plain, read=lambda value, scope, place: str(value)), (*plain, Listed(Either(*plain)))
    nothing = ValueKind("array", lambda value, scope, place: {})

    def local_sizes(value: Any, scope: Scope, place: Location) -> Any:
        """The sizes; one for every dimension is a number; None where nothing is asked for."""
        if isinstance(value, dict):
            return tables["each_dimension"].fields_of(value, scope, place)["every"]
        return _sizes(value, scope, place) if value not in ("", []) else None

    return {
        "anything": Either(*map(ValueKind, ("string", "number", "boolean", "array", "object"))),
        "id": value,
        "ids": some(value, 0),
        "name": ValueKind("string", minLength=1),
        "text": string,
        "task": Either(*plain, read=lambda value, scope, place: f"task {value}"),
        "count": whole(1),
        "tenths": whole(0, 10),
        "position": ValueKind("number", _position),
        "numbers": Either(*items, read=_numbers),
        "sizes": Either(*items, read=_sizes),
        "local sizes": Either(*items, tables["each_dimension"], read=local_sizes),
        "macros": Named(value, read=_macros),
        "symbols": Either(Named(Either(*plain, null), read=_symbols), nothing),
        "buffers": Listed(tables["memory"]),
        "scalars": Listed(tables["scalar"]),
        "origin": tables["origin"],
        "kernels": Listed(tables["dag_kernel"]),
        "components": Listed(Listed(value)),
        "queues": Named(whole(1)),
        "edges": Listed(string),
        "device": ValueKind("string", enum=["", "cpu", "gpu"]),
    }


_TABLES = read_tables(Path(__file__).with_suffix(".toml"), _kinds, lenient=True)
INFORMATION, DAG = _TABLES["information"], _TABLES["dag"]
