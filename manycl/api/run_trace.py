"""The trace of a run, which can show itself."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

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
