"""Symbols and their values: parameters, repetitions, and expressions in fields, with errors that name the field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

from manycl.expressions import ExpressionError, Number, evaluate, evaluate_integer, expand, names, suggest
from manycl.utilities.json_lines import Location

MAX_REPEAT = 100_000
"""Repetitions of one construct; kernels and buffers of one file."""

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
