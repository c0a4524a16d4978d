"""The environment that ``manycl exec`` gives a program."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from manycl import flags

SITE = Path(__file__).parent / "site"
_PACKAGE = Path(__file__).parent.parent


def variables(
    *,
    devices: str | None = None,
    policy: str | None = None,
    real_too: bool = False,
    reports: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Return what is set for a program, beside what is set already; ``reports``: as of
    :class:`manycl.stand_in.explain`."""
    found = {"MANYCL": "1"}
    path = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != str(SITE)]
    if _PACKAGE.parent.name not in ("site-packages", "dist-packages") and str(_PACKAGE.parent) not in path:
        path.append(str(_PACKAGE.parent))  # a checkout, which other folders' processes do not find
    found["PYTHONPATH"] = os.pathsep.join([str(SITE), *path])
    if devices is not None:
        found["MANYCL_DEVICES"] = devices
    if policy is not None:
        found["MANYCL_POLICY"] = policy
    if real_too:
        found["MANYCL_REAL"] = "1"
    if reports:
        found[flags.REPORTS] = json.dumps(dict(reports))
    return found


def become(words: list[str], more: Mapping[str, str]) -> NoReturn:
    """This process is another program from now on, with ``more`` in its environment. Raises OSError."""
    sys.stdout.flush()
    sys.stderr.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, for itself
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(words[0], words, os.environ | more)


def trust_program() -> None:
    """Leave to the program what its kernels do beyond their buffers, unless MANYCL_BOUNDS is set."""
    os.environ.setdefault("MANYCL_BOUNDS", "off")


def take_reports() -> dict[str, Any]:
    """Return what is to be told of this process: the first one that uses PyOpenCL, and none of its children."""
    text = flags.reports()
    os.environ.pop(flags.REPORTS, None)
    return dict(json.loads(text)) if text else {}
