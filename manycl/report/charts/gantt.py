"""Gantt charts: one function, the kind of file by its suffix."""

from __future__ import annotations

from pathlib import Path

from manycl.report.charts.drawing import check_kind
from manycl.trace import Trace

SUFFIXES = (".html", ".png", ".svg", ".pdf")


def write_gantt(trace: Trace, path: str | Path) -> None:
    """Write a Gantt chart of a run, a simulation or a plan: .html (self-contained, interactive), .png, .svg, .pdf.
    Raises :class:`ManyclError` for another suffix, and for a picture without matplotlib; OSError as writing does."""
    path = Path(path)
    check_suffix(path)
    if path.suffix.lower() == ".html":
        from manycl.report.charts.html import page

        path.write_text(page(trace), encoding="utf-8")
    else:
        from manycl.report.charts.figure import picture

        path.write_bytes(picture(trace, path.suffix.lower()[1:]))


def check_suffix(path: str | Path) -> None:
    """Raises :class:`ManyclError` for a file that :func:`write_gantt` cannot write, before work is done."""
    check_kind(path, "chart", SUFFIXES)
