"""Options of policies: which a policy has, declared once, and the words that a user gave for them, read and checked.

A policy that has an attribute ``options`` says with it what it takes; so a wrong option is refused as soon as it is
given, before there is a graph. Everything here raises PolicyError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from manycl.errors import PolicyError
from manycl.expressions import suggest

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Option(Generic[T]):
    """``read`` makes the value of a word, or raises ValueError; ``expected`` says which words do."""

    name: str
    default: T
    read: Callable[[str], T]
    expected: str


class Values:
    """What the options of a policy are: ``values[option]``."""

    def __init__(self, values: Mapping[Option[Any], Any]) -> None:
        self._values = values

    def __getitem__(self, option: Option[T]) -> T:
        value: T = self._values[option]
        return value


class Options:
    """The options that a policy has."""

    def __init__(self, policy: str, *known: Option[Any]) -> None:
        self._policy = policy
        self._known = {option.name: option for option in known}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._known)

    def read(self, given: Mapping[str, str]) -> Values:
        """The values of all options. Refuses those that the policy has not, and words that are no value."""
        for name in given:
            if name not in self._known:
                there = f"there are {', '.join(self._known)}" if self._known else "it has none: leave the options away"
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
    """Refuse wrong options of a policy; one that does not declare its options is left to look at them itself."""
    declared = getattr(policy, "options", None)  # of any class, or function, that a user made a policy
    if isinstance(declared, Options):
        declared.read(given)


def one_of(name: str, *words: str) -> Option[str]:
    """One of some words, the first by default."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return Option(name, words[0], read, f"{', '.join(words[:-1])} or {words[-1]}")


def seconds(name: str, default: float) -> Option[float]:
    """A finite time in seconds above zero."""
    return Option(name, default, real(zero=False), "seconds above zero")


def whole(name: str, default: int, least: int = 0, most: int = 10**12 - 1) -> Option[int]:
    """A whole number from ``least`` to ``most``."""

    def read(text: str) -> int:
        if not text.isdecimal() or len(text) > 12 or not least <= int(text) <= most:
            raise ValueError
        return int(text)

    return Option(name, default, read, f"a whole number from {least} to {most}")


def real(*, below: float = float("inf"), zero: bool = True) -> Callable[[str], float]:
    """What reads a number above zero, or also zero, and below another one."""

    def read(text: str) -> float:
        value = float(text)
        if not 0.0 <= value < below or (value == 0.0 and not zero):
            raise ValueError
        return value

    return read
