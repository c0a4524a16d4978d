"""The benchmark of ordinary programs: both halves of its programs are right, and its figures are what they say."""

from __future__ import annotations

import runpy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.drivers.choice import open_devices

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def everyday(path: None) -> Mapping[str, Any]:
    return runpy.run_path(str(BENCHMARKS / "everyday.py"))


@pytest.fixture
def queue() -> Iterator[mc.Queue]:
    with mc.Queue("cpu/4#0-1") as queue:
        yield queue


def _transform(made: Any) -> np.ndarray:
    data = made.inputs[0]
    found = np.fft.fft(data[:, 0] + 1j * data[:, 1])
    return np.stack([found.real, found.imag], axis=1)


def _lyapunov(made: Any) -> np.ndarray:
    a, x, q = (m.astype(np.float64) for m in made.inputs)
    return a @ x + x @ a.T + q


def _relaxed(made: Any) -> np.ndarray:
    now = made.inputs[0].astype(np.float64)
    for _ in range(made.steps):
        new = now.copy()
        new[1:-1, 1:-1] += now[1:-1, :-2] + now[1:-1, 2:] + now[:-2, 1:-1] + now[2:, 1:-1]
        new[1:-1, 1:-1] *= 0.2
        now = new
    return now


def _sparse(made: Any) -> np.ndarray:
    _, columns, values = made.matrix
    x = made.x.astype(np.float64)
    for _ in range(made.steps):
        x = (values.astype(np.float64) * x[columns]).reshape(len(x), -1).sum(axis=1)
    return x


def _levels(made: Any) -> np.ndarray:
    level = made.level.copy()
    depth, here = 0, np.array([0])
    while len(here):
        there = np.unique(made.next.reshape(len(level), -1)[here])
        here = there[level[there] < 0]
        depth += 1
        level[here] = depth
    return level


TRUTHS: dict[str, tuple[dict[str, int], Any]] = {
    "fft": ({"n": 256}, _transform),
    "bitonic_sort": ({"n": 256}, lambda made: np.sort(made.inputs[0])),
    "histogram": ({"n": 1024}, lambda made: np.bincount(made.inputs[0], minlength=256)),
    "lyapunov": ({"n": 32}, _lyapunov),
    "stencil": ({"n": 32, "steps": 3}, _relaxed),
    "spmv": ({"n": 256, "steps": 3}, _sparse),
    "bfs": ({"n": 256}, _levels),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_both_halves_compute_what_numpy_does(name: str, path: None, queue: mc.Queue) -> None:
    from everyday_programs import program, worker  # type: ignore[import-not-found]

    given, truth = TRUTHS[name]
    kind = program.PROGRAMS[name].kind
    made, expected = kind(**given), truth(kind(**given))
    plain = program.Plain(open_devices("cpu/4#0")[1][0].handle.cl, made.source)  # type: ignore[attr-defined]
    mine = mc.Program(made.source)
    for turn in range(2):
        for found in (made.plain(plain, turn), kind(**given).manycl(queue, mine, turn)):
            assert worker._error([found[0].astype(expected.dtype)], [expected]) < 1e-5
    if isinstance(made, program.Repeatable):
        run = made.prepare(queue, mine)
        assert worker._error([run()[0].astype(expected.dtype)], [expected]) < 1e-5
        assert np.array_equal(run()[0], run()[0])


def test_results_that_differ_in_any_run_are_noticed(path: None, tmp_path: Path) -> None:
    from everyday_programs import worker

    file = tmp_path / "results"
    right = worker.Outcomes()
    for turn in range(3):
        right.add([np.full(4, turn // 2, np.float32)])
    right.save(file)
    assert len(right.distinct) == 2
    assert right.error(file) == 0.0
    for wrong, least in ((np.full(4, 1.5, np.float32), 0.5), (np.full(4, np.nan, np.float32), np.inf)):
        other = worker.Outcomes()
        for turn in range(3):
            other.add([np.full(4, turn // 2, np.float32) if turn < 2 else wrong])
        assert other.error(file) == least
    shape = worker.Outcomes()
    shape.add([np.zeros(5, np.float32)])
    assert shape.error(file) == np.inf


def test_figures_are_plains_best_single_device_over_manycl(everyday: Mapping[str, Any]) -> None:
    slow_start = [9.0] + 19 * [2.0]
    turns = everyday["Turns"](
        {0: slow_start, 1: 20 * [4.0], 2: [1.0, 50.0]}, [10.0] + 9 * [4.0] + 9 * [1.0] + [8.0], 20 * [0.5], 20 * [2.0]
    )
    found = everyday["row"]([turns, turns], ["cpu0", "gpu0", "gpu1"])
    assert found["first"] == pytest.approx(0.1)  # of the third, which was given up as too slow
    assert found["ten"] == pytest.approx((9 + 18) / 46, rel=1e-3)
    assert found["steady"] == pytest.approx(2.0)
    assert found["prepared"] == pytest.approx(4.0)
    assert found["regret"] == pytest.approx((10 + 36 + 9 + 8) / 40, rel=1e-3)
    assert found["peak"] == pytest.approx(4.0)
    assert found["plain_on"] == "cpu0"
    over_all = everyday["summary"]({"triad": found, "fft": {**found, "steady": 0.5}, "bfs": {"failed": "why"}})
    assert over_all["steady_worst"] == 0.5
    assert over_all["steady_worst_program"] == "fft"
    assert over_all["steady_geomean"] == pytest.approx(1.0)
    assert over_all["regret_worst"] == found["regret"]


def test_every_program_has_its_sizes_and_there_are_two_dozen(path: None) -> None:
    from everyday_programs import program, worker  # noqa: F401 (which registers them)

    assert len(program.PROGRAMS) >= 24
    for entry in program.PROGRAMS.values():
        assert set(entry.sizes) == set(program.SIZES)
        assert entry.made("small")


def test_a_process_that_fails_says_why(everyday: Mapping[str, Any]) -> None:
    task = everyday["Task"]("triad", "small", "no such device", 0, "")
    import os

    with everyday["Worker"](task, os.environ) as worker, pytest.raises(everyday["Failed"], match="no such device"):
        worker.built()
