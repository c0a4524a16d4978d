"""The check of values against annotations, in one place: of public functions' arguments, before anything runs, and of
what files say (:func:`unfit`). Integers are those that 64 bits hold, other numbers finite; True and False are no
numbers, and text is no sequence."""

from __future__ import annotations

import collections.abc
import sys
from collections.abc import Callable, Collection, Mapping
from functools import cache, reduce, wraps
from inspect import isfunction, unwrap
from itertools import chain
from numbers import Integral, Real
from types import SimpleNamespace, UnionType
from typing import Any, ForwardRef, Literal, TypeVar, Union, get_args, get_origin

from manycl.errors import ArgumentError, a

Public = TypeVar("Public", bound=Callable[..., Any])
_Test = tuple[Callable[[Any], bool], str]  # whether a value is what an annotation says, and that in words
_DType = type("_DType", (), {})  # stands for what NumPy makes a type of


class _Named(type):
    """The kind of a class for one that an annotation names and its module does not import: manycl's of that name."""

    def __instancecheck__(cls, value: object) -> bool:
        return any(c.__name__ == cls.__name__ and c.__module__.startswith("manycl.") for c in type(value).__mro__)


def _is_dtype(value: Any) -> bool:
    import numpy as np  # not everybody who is checked needs it

    try:
        return value is not None and np.dtype(value) is not None
    except Exception:  # of any kind: NumPy looks at attributes of whatever it is given
        return False


def _is_number(value: Any, kind: Any, most: float) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and bool(abs(value) <= most)


_MOST = (1 << 63) - 1
_SIMPLE: dict[Any, _Test] = {
    Any: (lambda v: True, "anything"),
    type(None): (lambda v: v is None, "None"),
    bool: (lambda v: isinstance(v, bool) or type(v).__name__ in ("bool", "bool_"), "True or False"),
    int: (
        lambda v: (type(v) is int and -_MOST <= v <= _MOST) or _is_number(v, Integral, _MOST),
        "an integer of 64 bits",
    ),
    float: (lambda v: _is_number(v, Real, sys.float_info.max), "a finite number"),
    str: (lambda v: isinstance(v, str), "text"),
    _DType: (_is_dtype, "a type of NumPy's"),
    collections.abc.Callable: (callable, "a function"),
}


def _test(hint: Any, names: dict[str, Any]) -> _Test:
    """Return the test of an annotation in a module with some names."""
    if isinstance(hint, ForwardRef):
        hint = _evaluated(hint.__forward_arg__, names)
    origin, given = get_origin(hint) or hint, get_args(hint)
    if origin in _SIMPLE:
        return _SIMPLE[origin]
    if origin is Literal:
        return lambda v: isinstance(v, str) and v in given, " or ".join(map(repr, given))
    if getattr(origin, "__name__", "") == "ndarray":
        return lambda v: isinstance(v, origin), "a NumPy array"
    if getattr(hint, "_is_protocol", False):
        has = [name for name in vars(hint) if not name.startswith("_")]
        return lambda v: not isinstance(v, type) and all(hasattr(v, n) for n in has), a(hint.__name__)
    of = [_test(g, names) for g in given if g is not ...]
    fits, words = [f for f, _ in of], " or ".join(dict.fromkeys(w for _, w in of))
    if origin in (Union, UnionType):
        quick = sorted(fits, key=lambda f: f is not _SIMPLE[type(None)][0])  # most are left away
        return reduce(lambda f, g: lambda v: f(v) or g(v), quick), words
    if origin in (dict, collections.abc.Mapping):
        all_fit: Callable[[Any], bool] = lambda v: all(fits[0](k) and fits[1](v[k]) for k in v)  # noqa: E731
        return lambda v: isinstance(v, Mapping) and all_fit(v), f"a dictionary of {of[1][1]} by name"
    if origin is tuple and ... not in given:
        fit: Callable[[Any], bool] = lambda v: all(f(e) for f, e in zip(fits, v, strict=True))  # noqa: E731
        return lambda v: isinstance(v, tuple) and len(v) == len(of) and fit(v), f"a tuple ({words})"
    if of:
        texts, once = (str, bytes, bytearray, Mapping), origin is collections.abc.Iterable
        each = fits[0]  # (what can be gone through once is not looked into)
        return (
            lambda v: (
                (once and isinstance(v, collections.abc.Iterator))
                or (
                    (type(v) is tuple or (isinstance(v, Collection) and not isinstance(v, texts))) and all(map(each, v))
                )
            ),
            f"a sequence ({words})",
        )
    return lambda v: isinstance(v, hint), a(hint.__name__)


_KNOWN: dict[str, _Test | None] = {
    **{kind.__name__: _SIMPLE[kind] for kind in (bool, int, float, str)},
    "npt.DTypeLike": _SIMPLE[_DType],
    "int | Sequence[int]": _test(int | collections.abc.Sequence[int], {}),
    **dict.fromkeys(("Any", "object", "npt.ArrayLike")),
}
"""The tests of the commonest annotations: evaluating one costs 100 us in a first call."""


class _Tests(dict[str, _Test | None]):
    """The tests of parameters or fields, by name, made when one is first given: other modules are there by then."""

    def __init__(self, hints: Mapping[str, str], names: dict[str, Any]) -> None:
        super().__init__()
        self._hints, self._names = hints, names

    def __missing__(self, name: str) -> _Test | None:
        hint = self._hints.get(name, "Any")
        self[name] = found = _KNOWN[hint] if hint in _KNOWN else _test(_evaluated(hint, self._names), self._names)
        return found


def _evaluated(hint: str, names: dict[str, Any]) -> Any:
    """Return what an annotation stands for."""
    known: dict[str, Any] = {"npt": SimpleNamespace(ArrayLike=Any, DTypeLike=_DType)}
    while True:
        try:
            found = eval(hint, names, known)
        except NameError as error:
            known[str(error.name)] = _Named(str(error.name), (), {})
        else:
            return type(None) if found is None else found


@cache
def _tests_of(kind: type) -> _Tests:
    return _Tests(kind.__annotations__, vars(sys.modules[kind.__module__]))


def unfit(kind: type, record: Mapping[str, Any]) -> str:
    """Return the name of the first of a record's values that is none of the field of that name of a class, as it is
    annotated; empty: all are."""
    tests = _tests_of(kind)
    return next((n for n, v in record.items() if (test := tests[n]) is not None and not test[0](v)), "")


def _refuse(name: str, value: object, words: str, hint: str) -> None:
    try:
        shown = f"{value!r:.60}"
    except Exception:  # it is the user's, or an integer of more digits than Python shows
        shown = f"this {type(value).__name__}"
    raise ArgumentError(f"{name} is {words}, not {shown}", hint=hint)


def _door(function: Public) -> Public:
    inner = unwrap(function)
    code, tests = inner.__code__, _Tests(inner.__annotations__, inner.__globals__)
    names = code.co_varnames[: code.co_argcount]
    if code.co_argcount + code.co_kwonlyargcount < 2 and names[:1] in (("self",), ("cls",), ()):
        return function  # without parameters

    @wraps(function)
    def checks(*args: Any, **given: Any) -> Any:
        for name, value in chain(zip(names, args, strict=False), given.items()):
            test = tests[name]
            if test is not None and not test[0](value):
                is_named = "arguments" in inner.__annotations__
                hint = f"arguments={{{name!r}: …}} is something of that name" if is_named else ""
                _refuse(f"{function.__qualname__.removesuffix('.__init__')}: {name}", value, test[1], hint)
        return function(*args, **given)

    return checks  # type: ignore[return-value]


def checked(*but: str) -> Callable[[Public], Public]:
    """Decorate a public function, or a class: its public methods, its constructor and its call, ``but`` those which
    check for themselves or which nobody outside calls. They raise ArgumentError."""

    def decorate(what: Public) -> Public:
        if not isinstance(what, type):
            return _door(what)
        for name, member in list(vars(what).items()):
            function = getattr(member, "__func__", member)
            is_public = not name.startswith("_") or name in ("__init__", "__call__")
            if name not in but and is_public and isfunction(function):
                setattr(what, name, _door(function) if function is member else type(member)(_door(function)))
        return what

    return decorate
