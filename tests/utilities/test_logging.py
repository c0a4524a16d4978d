"""What is told to Python's logging, and that nothing is where nobody asked."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import manycl as mc
from manycl.analysis import service
from manycl.utilities.unforeseen import UnforeseenWarning, told
from tests import ROOT

INC = "kernel void inc(global int *x) { x[get_global_id(0)] += %d; }"


def run(number: int, devices: str = "cpu/2", turns: int = 2) -> None:
    with mc.Queue(devices) as queue:
        program = mc.Program(INC % number)
        a = queue.zeros(64, np.int32)
        for _ in range(turns):
            program.inc(queue, (64,), (16,), a)
            assert a.get()[0] % number == 0


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[tuple[str, str]]:
    return [(r.name, r.getMessage()) for r in caplog.records if r.levelno == level]


@pytest.mark.usefixtures("collected")
def test_a_run_tells_what_it_does(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "manycl"):
        run(1234567)  # a source that nobody has had
    told = said(caplog, logging.INFO)
    assert told[0][0] == "manycl.run.session.session"
    assert re.fullmatch(r"opened cpu0\.0 \(.+\), cpu0\.1 \(.+\)", told[0][1])
    assert re.fullmatch(r"planned and ran: <manycl\.Result run by auto, nodes: 1, [0-9.]+ ms>", told[1][1])
    rest = [name for name, _ in said(caplog, logging.DEBUG)]
    assert {"manycl.analysis.service", "manycl.run.engine.setup", "manycl.run.executor.programs"} <= set(rest)
    texts = [text for _, text in said(caplog, logging.DEBUG)]
    assert any(re.fullmatch(r"built <source> for cpu0\.[01] in [0-9.]+ ms", text) for text in texts)
    assert any(re.match(r"plan: <manycl\.Plan by auto, nodes: 1 on cpu0\.[01]", text) for text in texts)
    assert "closing cpu0.0, cpu0.1" in texts
    assert not said(caplog, logging.WARNING)


def test_commands_are_not_logged_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    with mc.Queue("cpu/2#0") as queue:
        program = mc.Program(INC % 1)
        a = queue.zeros(64, np.int32)
        with caplog.at_level(logging.DEBUG, "manycl"):
            for _ in range(300):
                program.inc(queue, (64,), (16,), a)
            assert a.get()[0] == 300
    assert ("manycl.api.running", "ran as they were enqueued: 300 commands") in said(caplog, logging.DEBUG)
    assert len(caplog.records) < 20


def test_a_process_of_the_analysis_that_is_ended_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    mc.Program(INC % 7654321)
    assert service._current is not None
    with caplog.at_level(logging.DEBUG, "manycl"):
        ask = service.WorkerProcess.ask

        def ended(worker: service.WorkerProcess, question: object) -> object:
            service.WorkerProcess.ask = ask  # type: ignore[method-assign]
            raise service.LostError("it was ended", outside=True)

        service.WorkerProcess.ask = ended  # type: ignore[method-assign,assignment]
        try:
            mc.Program(INC % 7654322)
        finally:
            service.WorkerProcess.ask = ask  # type: ignore[method-assign]
    assert said(caplog, logging.WARNING) == [("manycl.analysis.service", "it was ended: it is started again")]


def test_defects_are_logged_with_their_place(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ZeroDivisionError("there it was")
    except ZeroDivisionError as error:
        with pytest.warns(UnforeseenWarning):
            told(error, "thinking")
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("manycl.utilities.unforeseen", "WARNING")
    assert record.getMessage() == "thinking failed (ZeroDivisionError: there it was)"
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


QUIET = """
import logging, warnings
import manycl as mc
from manycl.utilities.unforeseen import told
warnings.simplefilter("ignore")
told(ValueError("nothing"), "thinking")
print([type(h).__name__ for h in logging.getLogger("manycl").handlers], logging.getLogger().handlers)
"""


def test_nothing_is_shown_unless_asked_for() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", QUIET], env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "['NullHandler'] []\n"


def test_the_page_names_the_loggers_that_there_are() -> None:
    page = (ROOT / "docs" / "traces.md").read_text(encoding="utf-8")
    table = page.partition("## Logging")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(manycl\.[\w.]+)`", table))
    using = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "manycl").rglob("*.py")
        if "logger(__name__)" in path.read_text(encoding="utf-8")
    }
    assert named == using
