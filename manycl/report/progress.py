"""A progress bar for long runs. It listens only: a run with and one without it do the same."""

from __future__ import annotations

import sys
import threading


class Progress:
    """Shows finished / all nodes, elapsed and remaining time on stderr while the ``with`` block runs. Nothing is shown
    where stderr is no terminal, or before ``delay`` seconds have passed. :meth:`update` only stores a number; a thread
    of its own draws it ``1 / interval`` times a second."""

    def __init__(self, total: int, *, enabled: bool = True, delay: float = 1.0, interval: float = 0.2) -> None:
        self._total = total
        self._delay = delay
        self._interval = interval
        self._complete = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if enabled and total > 0 and sys.stderr is not None and sys.stderr.isatty():
            self._thread = threading.Thread(target=self._draw, name="manycl-progress", daemon=True)

    def __enter__(self) -> Progress:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def update(self, complete: int) -> None:
        """``complete`` nodes have finished, of ``total``."""
        self._complete = complete

    def _draw(self) -> None:
        if self._stop.wait(self._delay):
            return
        from rich import progress
        from rich.console import Console

        bar = progress.Progress(
            progress.TextColumn("running"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,  # what host functions print stays where it belongs
            redirect_stderr=False,
        )
        with bar:
            task = bar.add_task("", total=self._total)
            while not self._stop.wait(self._interval):
                bar.update(task, completed=self._complete, refresh=True)
