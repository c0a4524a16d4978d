"""JSON whose every value can be traced to its line: lines are looked up on errors. A place inside a document is a tuple
of keys and indices, shown as ``kernels[2].args[0]``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manycl.errors import SpecificationError

Where = tuple[str | int, ...]

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*\Z")


@dataclass(frozen=True)
class Location:
    """A place in a file, for error messages: ``fixed_line`` for files that are not JSON, otherwise found by
    ``where``."""

    path: str
    text: str = field(default="", repr=False)
    where: Where = ()
    fixed_line: int = 0

    def at(self, *keys: str | int) -> Location:
        return Location(self.path, self.text, (*self.where, *keys), self.fixed_line)

    @property
    def line(self) -> int:
        """1-based; 0 where unknown."""
        return self.fixed_line or (find_line(self.text, self.where) if self.text else 0)

    def show(self) -> str:
        """``file:line: field``."""
        where = f"{self.path}:{self.line}" if self.line else self.path
        return f"{where}: {show(self.where)}" if self.where else where

    def error(self, problem: str, hint: str = "") -> SpecificationError:
        return SpecificationError(problem, path=self.path, line=self.line, field=show(self.where), hint=hint)


def show(where: Where) -> str:
    """``("kernels", 2, "args", 0)`` -> ``kernels[2].args[0]``."""
    text = ""
    for key in where:
        if isinstance(key, int):
            text += f"[{key}]"
        elif _PLAIN_KEY.match(key):
            text += f".{key}" if text else key
        else:
            text += f"[{json.dumps(key, ensure_ascii=False)}]"
    return text


def read_text(path: Path) -> str:
    """The text of a file in UTF-8, or SpecificationError."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecificationError(f"not a text file in UTF-8 (byte {error.start})", path=str(path)) from None
    except OSError as error:
        raise SpecificationError(error.strerror or "cannot be read", path=str(path)) from None
    except ValueError:
        raise SpecificationError("not a possible file name", path=repr(str(path))) from None


def parse(text: str, path: str) -> Any:
    """The value of a JSON text. Raises SpecificationError with line and column. Stricter than Python's reader: no
    repeated keys, no NaN or Infinity, no halves of surrogate pairs."""
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        problem = f"not valid JSON: {error.msg} (column {error.colno})"
        raise SpecificationError(problem, path=path, line=error.lineno) from None
    except _RepeatedKeyError as error:
        where = _find_repeated(text, _skip(text, 0), ())
        place = Location(path, text, where or ())
        raise place.error(f"the key {error.args[0]!r} appears twice in one object") from None
    except UnicodeEncodeError:
        raise SpecificationError("a string holds half of a surrogate pair", path=path) from None
    except RecursionError:
        raise SpecificationError("nested too deeply", path=path) from None
    except ValueError as error:
        raise SpecificationError(f"not valid JSON: {str(error)[:100]}", path=path) from None


class _RepeatedKeyError(Exception):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        raise _RepeatedKeyError(next(k for k, _ in pairs if k in seen or seen.add(k)))  # type: ignore[func-returns-value]
    return result


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def find_line(text: str, where: Where) -> int:
    """The 1-based line of a place; of the deepest part of it that exists."""
    position = found = _skip(text, 0)
    for key in where:
        step = _enter(text, position, key)
        if step is None:
            break
        found, position = step
    return text.count("\n", 0, found) + 1


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _members(text: str, position: int) -> Any:
    """Yields (key, where the key starts, where the value starts) of the object or array at ``position``."""
    opening = text[position : position + 1]
    position = _skip(text, position + 1)
    index = 0
    while position < len(text) and text[position] not in "]}":
        start, key = position, index
        if opening == "{":
            key, position = _DECODER.raw_decode(text, position)
            position = _skip(text, _skip(text, position) + 1)  # the colon
        yield key, start, position
        _, position = _DECODER.raw_decode(text, position)
        position = _skip(text, position)
        if text[position : position + 1] == ",":
            position = _skip(text, position + 1)
        index += 1


def _enter(text: str, position: int, key: str | int) -> tuple[int, int] | None:
    if text[position : position + 1] != ("[" if isinstance(key, int) else "{"):
        return None
    return next(((start, value) for k, start, value in _members(text, position) if k == key), None)


def _find_repeated(text: str, position: int, where: Where) -> Where | None:
    if text[position : position + 1] not in ("{", "["):
        return None
    seen: set[Any] = set()
    for key, _, value in _members(text, position):
        if key in seen:
            return (*where, key)
        seen.add(key)
        inner = _find_repeated(text, value, (*where, key))
        if inner is not None:
            return inner
    return None
