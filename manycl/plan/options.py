"""Options of policies: words that a user gave, checked and read. Everything here raises PolicyError."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from manycl.errors import PolicyError


def check_names(policy: str, given: Mapping[str, str], known: Sequence[str]) -> None:
    """Refuse options that a policy has not."""
    for name in given:
        if name not in known:
            raise PolicyError(f"policy {policy} has no option {name}", hint=f"there are {', '.join(known)}")


def seconds(given: Mapping[str, str], name: str, default: float, *, zero: bool = False) -> float:
    """A finite time in seconds above zero, or also zero."""
    text = given.get(name, str(default))
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf") or (value == 0.0 and not zero):
        raise PolicyError(f"option {name}={text}: expected seconds{'' if zero else ' above zero'}")
    return value


def whole(given: Mapping[str, str], name: str, default: int, least: int = 0, most: int = 10**12 - 1) -> int:
    """A whole number from ``least`` to ``most``."""
    text = given.get(name, str(default))
    if not text.isdecimal() or len(text) > 12 or not least <= int(text) <= most:
        raise PolicyError(f"option {name}={text}: expected a whole number from {least} to {most}")
    return int(text)
