"""Options of policies: declared once by each policy, and read from the words that a user gives. A policy declares them
in an attribute ``options``, so a wrong option is refused as soon as it is given, before there is a graph. Everything
here raises PolicyError."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from manycl.errors import PolicyError
from manycl.expressions import suggest

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Option(Generic[T]):
    """An option of a policy. ``read`` makes the value of a word, or raises ValueError; ``expected``: in words."""

    name: str
    default: T
    read: Callable[[str], T]
    expected: str


class Values:
    """The values of a policy's options: ``values[option]``."""

    def __init__(self, values: Mapping[Option[Any], Any]) -> None:
        self._values = values

    def __getitem__(self, option: Option[T]) -> T:
        value: T = self._values[option]
        return value


class Options:
    """The options that a policy has. ``having`` returns the policies that have an option of some name."""

    having: ClassVar[Callable[[str], Sequence[str]]]

    def __init__(self, policy: str, *known: Option[Any]) -> None:
        self._policy = policy
        self._known = {option.name: option for option in known}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._known)

    def read(self, given: Mapping[str, str]) -> Values:
        """Return the values of all options. Refuses unknown options, and words that are no value."""
        for name in given:
            if name not in self._known:
                there = f"there are {', '.join(self._known)}" if self._known else "it has none: leave the options away"
                if others := Options.having(name):
                    there = f"{there}; {name} is an option of {', '.join(others)}"
                raise PolicyError(f"policy {self._policy} has no option {name}{suggest(name, self._known)}", hint=there)
        return Values({option: self._value(option, given) for option in self._known.values()})

    def _value(self, option: Option[T], given: Mapping[str, str]) -> T:
        text = given.get(option.name)
        if text is None:
            return option.default
        try:
            return option.read(text)
        except ValueError:
            message = f"policy {self._policy}: option {option.name}={text}: expected {option.expected}"
            raise PolicyError(message) from None


def check_options(policy: object, given: Mapping[str, str]) -> None:
    """Refuse wrong options of a policy; a policy that does not declare its options has to check them itself."""
    declared = getattr(policy, "options", None)  # the policy may be any class or function of a user
    if isinstance(declared, Options):
        declared.read(given)


def one_of(name: str, *words: str) -> Option[str]:
    """Return an option with one of some words as its value, the first by default."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return Option(name, words[0], read, f"{', '.join(words[:-1])} or {words[-1]}")


def seconds(name: str, default: float) -> Option[float]:
    """Return an option whose value is a finite time in seconds above zero."""
    return Option(name, default, real(zero=False), "seconds above zero")


def whole(name: str, default: int, least: int = 0, most: int = 10**12 - 1) -> Option[int]:
    """Return an option whose value is a whole number from ``least`` to ``most``."""

    def read(text: str) -> int:
        if not text.isdecimal() or len(text) > 12 or not least <= int(text) <= most:
            raise ValueError
        return int(text)

    return Option(name, default, read, f"a whole number from {least} to {most}")


def real(*, below: float = float("inf"), zero: bool = True) -> Callable[[str], float]:
    """Return a function that reads a number above zero (``zero``: or zero) and below another one."""

    def read(text: str) -> float:
        value = float(text)
        if not 0.0 <= value < below or (value == 0.0 and not zero):
            raise ValueError
        return value

    return read
