"""What a command line may go on with: names that are found out when somebody presses the tabulator key.

For ``argcomplete``, which is told of them by :func:`completed`; none of them raises anything.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Completer = Callable[..., Iterable[str]]


def completed(action: argparse.Action, names: Callable[[], Iterable[str]], *, listed: bool = False) -> None:
    """The values of an option or argument are names that ``names`` tells; ``listed``: several, with commas between.
    Where none fits, files do."""

    def complete(prefix: str, **_: Any) -> Sequence[str]:
        head = prefix[: prefix.rfind(",") + 1] if listed else ""
        try:
            found = [head + name for name in names()]
        except Exception:  # completing is no place to complain
            return []
        return [name for name in found if name.startswith(prefix)]

    action.completer = complete  # type: ignore[attr-defined]


def devices() -> Iterable[str]:
    """``all``, the kinds that are here, and the devices' names."""
    from manycl.drivers.survey import survey

    roots = survey().roots
    return ["all", *dict.fromkeys(r.device.kind for r in roots if not r.why_not), *(r.device.name for r in roots)]


def policies() -> Iterable[str]:
    """The policies that come with manycl."""
    from manycl.plan import policy

    return policy.names()


def machines() -> Iterable[str]:
    """The machines that come with manycl."""
    from manycl.machine_file import shipped_machines

    return shipped_machines()
