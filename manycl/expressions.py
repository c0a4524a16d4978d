"""Arithmetic over symbolic parameters: parsed by Python's own parser, evaluated by a whitelist interpreter. Nothing is
ever handed to ``eval``. Numbers are Python's integers and floats; results and intermediate values are bounded, so that
no expression can use much time or memory. ``/`` between integers must come out whole, except in PySchedCL's files,
where it is Python 2's floor division (``pyschedcl=True``)."""

from __future__ import annotations

import ast
import difflib
import math
import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

Number = int | float

MAX_LENGTH = 1000
"""Characters of one expression."""
MAX_BITS = 256
"""Bits of an integer, intermediate results included."""

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class ExpressionError(ValueError):
    """An expression that is malformed, names an unknown symbol, or has no bounded finite value."""


def _ceil_div(a: Number, b: Number) -> Number:
    return -(-a // b)


def _round_up(a: Number, b: Number) -> Number:
    return _ceil_div(a, b) * b


def _gcd(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float):
        raise ExpressionError("gcd takes integers")
    return math.gcd(a, b)


FUNCTIONS: dict[str, tuple[Callable[..., Number], int, int]] = {
    # name: function, fewest and most arguments
    "min": (min, 2, 64),
    "max": (max, 2, 64),
    "abs": (abs, 1, 1),
    "ceil": (math.ceil, 1, 1),
    "floor": (math.floor, 1, 1),
    "round": (round, 1, 1),
    "int": (int, 1, 1),
    "float": (float, 1, 1),
    "sqrt": (math.sqrt, 1, 1),
    "log2": (math.log2, 1, 1),
    "ceil_div": (_ceil_div, 2, 2),
    "round_up": (_round_up, 2, 2),
    "gcd": (_gcd, 2, 2),
}
"""The functions of the language."""


def _partition_round(elements: Number, percent: Number, exact: Number = -1, total: Number = 100) -> Number:
    """PySchedCL's share of ``elements``: ``percent`` of them, in tenths or hundredths rounded down (half of them, at 50
    %); the shares of ``percent`` and of the rest make ``total`` percent together, and an odd element goes to the
    smaller one. ``exact`` 0: as what the rest leaves, 1: as itself, -1: by which is smaller. 0 % is nothing and 100 %
    is all; there, PySchedCL's own is off by one for odd sizes, and a launch loses its last work-item."""
    if not all(isinstance(n, int) for n in (elements, percent, exact, total)) or elements < 0:
        raise ExpressionError("partition_round takes whole numbers")
    if percent in (0, 100):
        return elements * percent // 100
    if elements % 2:
        less = _partition_round(elements - 1, percent, exact, total)
        return less if percent > 50 else less + 1
    if percent == 50:
        return elements // 2
    parts = 10 if elements < 100 else 100
    if exact == -1:
        exact = 0 if percent > 50 else 1
    if exact not in (0, 1):
        raise ExpressionError(f"partition_round's third argument is -1, 0 or 1, not {exact}")
    if exact == 1:
        return elements // parts * percent * parts // 100
    return _partition_round(elements, total) - elements // parts * (total - percent) * parts // 100


_PYSCHEDCL_FUNCTIONS = {**FUNCTIONS, "partition_round": (_partition_round, 2, 4)}
"""PySchedCL's files also cut sizes into shares for devices (here a launch is whole: size_percent is 100)."""


def _divide(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        if a % b:
            raise ExpressionError(f"{a} / {b} is not a whole number: use // or ceil_div, or write {a}.0 / {b}")
        return a // b
    return a / b


def _divide_python2(a: Number, b: Number) -> Number:
    return a // b if isinstance(a, int) and isinstance(b, int) else a / b


def _power(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        if b < 0:
            return float(a) ** b
        if abs(a) > 1 and b * abs(a).bit_length() > 2 * MAX_BITS:
            raise ExpressionError(f"{a} ** {b} is too large")
    result = a**b
    if isinstance(result, complex):
        raise ExpressionError(f"{a} ** {b} is not a real number")
    return result


def _shift(function: Callable[[int, int], int]) -> Callable[[Number, Number], Number]:
    def shift(a: Number, b: Number) -> Number:
        if not isinstance(a, int) or not isinstance(b, int) or not 0 <= b <= MAX_BITS:
            raise ExpressionError("a shift takes integers, and not far")
        return function(a, b)

    return shift


_BINARY: dict[type, Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.LShift: _shift(operator.lshift),
    ast.RShift: _shift(operator.rshift),
}
_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


_DOUBTFUL = re.compile(
    r"""\\ | (?<![\w.])
    (?> 0[xX][\da-fA-F_]+ | 0[oO][0-7_]+ | 0[bB][01_]+
      | (?: \d[\d_]*\.?[\d_]* | \.\d[\d_]* ) (?: [eE][+-]?\d[\d_]* )? [jJ]? )
    [^\W\d]""",
    re.VERBOSE,
)
"""What Python takes, but warns of: escapes in strings, and numbers that run into words (``1if x``). That warnings are
errors can only be asked for all threads at once, so they are not what tells."""


@lru_cache(maxsize=4096)
def parse(text: str) -> ast.expr:
    """The syntax tree of an expression; what it may hold is for the caller to say. Raises ExpressionError."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"an expression of {len(text)} characters is too long (at most {MAX_LENGTH})")
    if not text.strip():
        raise ExpressionError("an empty expression has no value")
    try:
        if _DOUBTFUL.search(text):
            raise ValueError
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ExpressionError(f"{show(text)} is not an arithmetic expression") from None


def evaluate(value: str | Number, scope: Mapping[str, Number], *, pyschedcl: bool = False) -> Number:
    """The value of an expression, given the symbols in ``scope``. Numbers are returned as they are. Raises
    ExpressionError, never anything else."""
    if isinstance(value, str):
        known = scope.get(value)
        if known is not None:
            return known
        try:
            return _check(_evaluate(parse(value), scope, pyschedcl))
        except ExpressionError as error:
            plain = IDENTIFIER.match(value) or str(error).startswith(("an ", show(value)))
            raise ExpressionError(str(error) if plain else f"{error} (in {show(value)})") from None
        except RecursionError:
            raise ExpressionError(f"{show(value)} is nested too deeply") from None
        except ZeroDivisionError:
            raise ExpressionError(f"division by zero in {show(value)}") from None
        except (OverflowError, ValueError, TypeError):
            raise ExpressionError(f"{show(value)} has no finite value") from None
    return _check(value)


def evaluate_integer(value: str | Number, scope: Mapping[str, Number], *, pyschedcl: bool = False) -> int:
    """Return :func:`evaluate` of what must be an integer; a float that is whole counts as one."""
    result = evaluate(value, scope, pyschedcl=pyschedcl)
    if isinstance(result, float):
        if not result.is_integer():
            raise ExpressionError(f"{show(str(value))} is {result}, which is not a whole number")
        return int(result)
    return result


@lru_cache(maxsize=4096)
def names(text: str) -> frozenset[str]:
    """The symbols that an expression uses, functions not included. Raises ExpressionError."""
    called = {id(n.func) for n in ast.walk(parse(text)) if isinstance(n, ast.Call)}
    return frozenset(n.id for n in ast.walk(parse(text)) if isinstance(n, ast.Name) and id(n) not in called)


def split_list(text: str) -> list[str]:
    """``"[n, m + 1]"`` -> ``["n", "m + 1"]``; another expression is a list of one. Raises ExpressionError."""
    node = parse(text)
    return [ast.unparse(e) for e in node.elts] if isinstance(node, (ast.List, ast.Tuple)) else [text]


_TEMPLATE = re.compile(r"\{([^{}]*)\}")


def expand(text: str, scope: Mapping[str, Number]) -> str:
    """``"Q{h}"`` -> ``"Q3"``: every ``{expression}`` replaced by its value. Raises ExpressionError."""
    if "{" not in text:
        return text
    return _TEMPLATE.sub(lambda match: str(evaluate(match[1], scope)), text)


def suggest(word: str, known: Any) -> str:
    """`` (did you mean 'X'?)`` when one of the known words is close, otherwise nothing."""
    close = difflib.get_close_matches(word, [str(k) for k in known], n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def show(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _check(value: Any) -> Number:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise ExpressionError("an integer is too large")
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ExpressionError(f"{value!r:.60} is not a finite number")


def _evaluate(node: ast.expr, scope: Mapping[str, Number], python2: bool) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value):
            return _check(value)
        case ast.Name(id=name):
            if name not in scope:
                raise ExpressionError(f"unknown symbol {name!r}{suggest(name, scope)}")
            return scope[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            function = _divide_python2 if python2 and isinstance(op, ast.Div) else _BINARY[type(op)]
            return _check(function(_evaluate(left, scope, python2), _evaluate(right, scope, python2)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, scope, python2)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _evaluate(operand, scope, python2)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return int(not _evaluate(operand, scope, python2))
        case ast.BoolOp(op=op, values=values):
            return _logical(op, values, scope, python2)
        case ast.Compare(left=left, ops=ops, comparators=right) if all(type(o) in _COMPARE for o in ops):
            return _compare(left, ops, right, scope, python2)
        case ast.IfExp(test=test, body=body, orelse=other):
            return _evaluate(body if _evaluate(test, scope, python2) else other, scope, python2)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return _call(name, args, scope, python2)
    raise ExpressionError(f"{show(ast.unparse(node))} is not allowed in an expression")


def _logical(op: ast.boolop, values: list[ast.expr], scope: Mapping[str, Number], python2: bool) -> Number:
    wanted = isinstance(op, ast.Or)
    result: Number = 0
    for value in values:
        result = _evaluate(value, scope, python2)
        if bool(result) == wanted:
            break
    return result


def _compare(
    left: ast.expr, ops: list[ast.cmpop], right: list[ast.expr], scope: Mapping[str, Number], python2: bool
) -> Number:
    value = _evaluate(left, scope, python2)
    for op, operand in zip(ops, right, strict=True):
        other = _evaluate(operand, scope, python2)
        if not _COMPARE[type(op)](value, other):
            return 0
        value = other
    return 1


def _call(name: str, args: list[ast.expr], scope: Mapping[str, Number], python2: bool) -> Number:
    known = _PYSCHEDCL_FUNCTIONS if python2 else FUNCTIONS
    if name not in known:
        raise ExpressionError(f"unknown function {name!r}{suggest(name, known)}")
    function, fewest, most = known[name]
    if not fewest <= len(args) <= most:
        wanted = str(fewest) if fewest == most else f"at least {fewest}"
        raise ExpressionError(f"{name} takes {wanted} argument(s), got {len(args)}")
    return _check(function(*(_evaluate(a, scope, python2) for a in args)))
