"""Traces of runs, which can show themselves, and recordings: files of all runs of a queue, or of the program, from one
moment to another."""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from manycl.errors import ManyclError
from manycl.utilities.unforeseen import told
from manycl.utilities.user_file import check_writable

if TYPE_CHECKING:  # run/ loads drivers: it is imported when a queue opens devices
    from manycl.run.engine.merged_traces import PastRun
    from manycl.run.engine.result import Result


from dataclasses import fields

from manycl.trace import Trace
from manycl.utilities.checked import checked


@checked()
class RunTrace(Trace):
    """A trace that can show itself."""

    def gantt(self, path: str | Path) -> None:
        """Write a Gantt chart: .html (self-contained), .png, .svg or .pdf (pictures need matplotlib)."""
        from manycl.report.charts.gantt import write_gantt

        write_gantt(self, path)

    def perfetto(self, path: str | Path) -> None:
        """Write a file for ui.perfetto.dev or chrome://tracing."""
        from manycl.report.charts.perfetto import write_perfetto

        write_perfetto(self, path)

    def summary(self) -> str:
        """Return makespan, busy share per device, bytes per link and longest path, as text."""
        from manycl.report.summary import summarise

        return summarise(self).text()


def showable(trace: Trace) -> RunTrace:
    """Return the trace as one that can show itself."""
    return RunTrace(**{f.name: getattr(trace, f.name) for f in fields(trace)})


WRITERS: dict[str, Callable[[RunTrace, Path], object]] = {
    **dict.fromkeys((".html", ".png", ".svg", ".pdf"), RunTrace.gantt),
    ".json": RunTrace.perfetto,
    ".jsonl": RunTrace.save,
    ".txt": lambda trace, path: path.write_text(f"{trace.summary()}\n", encoding="utf-8"),
}
"""The function that writes a file, by the file's suffix."""

underway: list[Runs] = []


class Runs:
    """The runs of a queue, or of all queues (None), that end from now on until ``stop``."""

    def __init__(self, queue: object = None) -> None:
        self._queue = weakref.ref(queue) if queue is not None else None
        self._runs: list[PastRun] = []
        underway.append(self)

    def stop(self) -> None:
        """Leave out runs that end later."""
        if self in underway:
            underway.remove(self)

    @property
    def trace(self) -> RunTrace:
        """The trace of all these runs so far."""
        from manycl.run.engine.merged_traces import joined

        return showable(joined(tuple(self._runs), Path(sys.argv[0]).name if sys.argv else ""))

    def is_of(self, queue: object) -> bool:
        return self._queue is None or self._queue() is queue

    def add(self, run: PastRun, result: Result) -> None:
        """Add a run that has ended, well or not."""
        self._runs.append(run)


class Recording(Runs):
    """A file of the runs until ``end``, the end of the ``with`` block, or that of the process. Raises ManyclError for a
    kind of file that cannot be written (here: pictures need matplotlib), or a place where none can be written."""

    def __init__(self, path: str | Path, queue: object = None) -> None:
        self._path = Path(path)
        if self._path.suffix.lower() not in WRITERS:
            raise ManyclError(f"{path}: not a known kind of file", hint=f"end the name in {', '.join(WRITERS)}")
        if WRITERS[self._path.suffix.lower()] is RunTrace.gantt:
            from manycl.report.charts.gantt import check_suffix

            check_suffix(path)
        check_writable(path)
        super().__init__(queue)
        atexit.register(self.end)

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    def end(self) -> None:
        """Write the file, without runs that end later. Raises OSError where that cannot be done."""
        if self in underway:
            self.stop()
            atexit.unregister(self.end)
            WRITERS[self._path.suffix.lower()](self.trace, self._path)


def record(queue: object, result: Callable[[], Result]) -> None:
    """Add a run of a queue that has ended, well or not, to all recordings that are going on."""
    wanted = [recording for recording in tuple(underway) if recording.is_of(queue)]
    if wanted:
        from manycl.run.engine.merged_traces import past_run

        try:
            ended = result()
            found = past_run(ended)
        except Exception as error:  # the run itself has succeeded
            told(error, "recording a run")
            return
        for recording in wanted:
            recording.add(found, ended)


def trace_all(path: str | Path) -> Recording:
    """Write all runs of the program to one file, from now on until the process ends, or the block of ``with
    mc.trace_all(path):``. The suffix tells the kind of file: a chart (.html, .png, .svg, .pdf), for Perfetto (.json),
    the trace itself (.jsonl), the summary (.txt). Commands whose results nobody has asked for are not in it."""
    return Recording(path)
