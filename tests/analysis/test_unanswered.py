"""What the analysis does not answer, for whatever reason, is unknown: never an exception, and no truth for ever."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest

from manycl.analysis import parse_program, service, worker
from manycl.analysis.costs.cost import LaunchCost
from manycl.analysis.interpreter import interpret as interpret_module
from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.launched import LaunchFacts, Unanswered
from manycl.analysis.regions.regions import Regions
from manycl.analysis.service import launched
from manycl.analysis.worker import Limited
from manycl.analysis.worker_process import WorkerProcess
from manycl.region import Rectangle
from manycl.utilities.unforeseen import UnforeseenWarning


def test_a_question_that_was_ended_from_outside_is_asked_again() -> None:
    """Not even the last try says that the compiler crashed."""
    program = parse_program("kernel void k(global int *d) { d[get_global_id(0)] = 1; }")
    process = service._worker().process
    process.send_signal(signal.SIGSTOP)
    timer = threading.Timer(0.2, process.send_signal, [signal.SIGKILL])
    timer.start()
    assert parse_program("kernel void asked(global int *d) { d[0] = 2; }").kernels
    timer.join()
    facts = launched(program, "k", KnownLaunch((64,), (8,), (), {}, {0: 256}))
    assert facts.split(0).splittable


@pytest.mark.parametrize(("again", "asked"), [(True, 3), (False, 1)])
def test_what_was_not_answered_is_no_truth(again: bool, asked: int) -> None:
    """The kernel cannot be told without isl; a lost answer is asked for again, but not for ever."""
    source = "kernel void k(global int *d, int n) { int i = get_global_id(0); if (i % 3 < n) d[i * 5 / 2] = i; }"
    program = parse_program(source)
    kernel, launch = program.kernels["k"], KnownLaunch((1 << 20,), (64,), (), {1: b"\2\0\0\0"}, {0: 1 << 24})
    alone = LaunchFacts(service._unit(program), kernel, launch)
    questions = []

    def lost(what: str, arguments: tuple[object, ...]) -> object:
        questions.append(what)
        return Unanswered("gone fishing", again)

    facts = LaunchFacts(service._unit(program), kernel, launch, lost)
    for _ in range(5):
        assert "gone fishing" in facts.split(0).reasons[0]
    assert questions == ["split"] * asked
    assert facts.unanswered == (asked if again else 0)
    assert alone.split(0) != facts.split(0)


def test_what_questions_about_launches_need_is_imported_before_the_first(tmp_path: Path) -> None:
    process = WorkerProcess()
    maps = Path(f"/proc/{process.process.pid}/maps")
    request = "kernel void k(global int *d) { d[0] = 1; }", "<source>", str(tmp_path), ()
    process.ask(Limited(20.0, request))
    assert "islpy" not in maps.read_text()
    process.ask(Limited(20.0, request, before_launches=True))
    while "islpy" not in maps.read_text():
        time.sleep(0.01)
    process.close()


def test_an_error_of_the_analysis_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the other process, where nothing is left of it but words."""
    program = parse_program("kernel void k(global int *d, int n) { d[get_global_id(0) * n] = 1; }")
    launch = KnownLaunch((64,), (8,), (), {1: b"\3\0\0\0"}, {0: 1024})

    def fails(*_: object) -> object:
        raise KeyError("broken")

    monkeypatch.setattr(worker, "about_launch", fails)
    question = worker.LaunchQuestion(program.tree, program.kernels["k"], launch, "split", (0,))
    assert "KeyError: 'broken'" in worker.answer(question).failure
    facts = LaunchFacts(service._unit(program), program.kernels["k"], launch)
    monkeypatch.setattr(Regions, "region", fails)
    monkeypatch.setattr(Regions, "rectangular", fails)
    monkeypatch.setattr(LaunchCost, "totals", fails)
    with pytest.warns(UnforeseenWarning, match="broken"):
        region = facts.region(0, "write")
    assert (region.exact, region.rectangles, "broken" in region.reason) == (False, (Rectangle(0, 1024),), True)
    with pytest.warns(UnforeseenWarning, match="broken"):
        assert "broken" in facts.work().reason
    monkeypatch.setattr(interpret_module, "_AbstractRun", fails)
    with pytest.warns(UnforeseenWarning, match="broken"):
        assert "broken" in LaunchFacts(service._unit(program), program.kernels["k"], launch).summary.failure
