"""What ``manycl exec`` tells of a program when it ends: charts and traces of all its runs, and what was divided."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Mapping
from typing import Any

from manycl.errors import ManyclError
from manycl.front.recording import Recording
from manycl.stand_in.divisible import Kernels
from manycl.stand_in.explain import explanation
from manycl.stand_in.runtime import runtimes


def begin(wanted: Mapping[str, Any]) -> None:
    """Note all runs from now on. ``wanted``: ``files`` to write, by their suffixes (as ``mc.trace_all``), and whether
    to ``explain`` (on standard error)."""
    recordings = [Recording(path) for path in wanted.get("files", ())]
    runs = Kernels() if wanted.get("explain") else None

    def end() -> None:
        for runtime in runtimes():
            runtime.end()
        if runs is not None:
            runs.stop()
            print(explanation(runs.trace, runtimes(), runs), file=sys.stderr)
        for recording in recordings:
            try:
                recording.end()
            except (OSError, ManyclError) as failure:
                print(f"manycl: {failure}", file=sys.stderr)

    if recordings or runs is not None:
        atexit.register(end)
