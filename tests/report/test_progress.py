"""The progress bar: only on a terminal, only when it takes long, never in the way."""

from __future__ import annotations

import io
import sys
import threading
import time

import pytest

from manycl.report.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def use_stderr(monkeypatch):
    """Called in the test itself: before it starts, pytest sets its own ``sys.stderr``."""

    def use(stream):
        for name in ("NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    return use


def drawing() -> bool:
    return any(t.name == "manycl-progress" for t in threading.enumerate())


def test_shows_how_many_are_done(use_stderr, capsys):
    terminal = use_stderr(Terminal())
    with Progress(40, delay=0.0, interval=0.01) as progress:
        assert drawing()
        progress.update(17)
        deadline = time.monotonic() + 30
        while "17/40" not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        print("a host function's words")
    assert "17/40" in terminal.getvalue()
    assert not drawing()
    assert capsys.readouterr().out == "a host function's words\n", "the bar leaves stdout alone"


def test_a_short_run_shows_nothing(use_stderr):
    terminal = use_stderr(Terminal())
    with Progress(40, delay=1000.0) as progress:
        assert drawing()
        progress.update(40)
    assert terminal.getvalue() == ""
    assert not drawing()


@pytest.mark.parametrize("stderr", [io.StringIO(), None])
def test_nothing_without_a_terminal(use_stderr, stderr):
    use_stderr(stderr)
    with Progress(40, delay=0.0) as progress:
        progress.update(1)
        assert not drawing()


@pytest.mark.parametrize(("total", "enabled"), [(40, False), (0, True)])
def test_nothing_when_not_wanted_or_nothing_to_do(use_stderr, total, enabled):
    terminal = use_stderr(Terminal())
    with Progress(total, enabled=enabled, delay=0.0, interval=0.001) as progress:
        progress.update(1)
        assert not drawing()
    assert terminal.getvalue() == ""


def test_an_exception_passes_and_ends_the_bar(use_stderr):
    use_stderr(Terminal())
    with pytest.raises(KeyError), Progress(40, delay=0.0, interval=0.001):
        raise KeyError("k")
    assert not drawing()
