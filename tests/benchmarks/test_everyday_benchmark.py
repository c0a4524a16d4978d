"""The benchmark of ordinary programs: both halves of its programs are right, and its figures are what they say."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.drivers.choice import open_devices
from tests import ROOT

BENCHMARKS = ROOT / "benchmarks"


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
    task = everyday["Task"]("triad", "small", "no such device", "plain", "")

    with everyday["Worker"](task, os.environ) as worker, pytest.raises(everyday["Failed"], match="no such device"):
        worker.built()


LITTLE: dict[str, dict[str, int]] = {
    "stencil": {"n": 64, "steps": 3},
    "nbody": {"n": 320, "steps": 3},
    "triad": {"n": 960},
    "chain_20": {"n": 64, "launches": 20},
    "histogram": {"n": 1024},
    "bitonic_sort": {"n": 1024},
    "blur": {"n": 64},
    "mandelbrot": {"n": 64, "most": 50},
    "one_huge_kernel": {"n": 256, "rounds": 20},
    "logistic_map": {"n": 256, "rounds": 200},
    "matrix_chain": {"n": 64},
    "transformer": {"words": 32, "width": 32, "heads": 2},
} | {name: {"n": 80} for name in ("product", "stein", "sylvester", "lyapunov", "commutator", "abe")}


@pytest.mark.parametrize("name", LITTLE)
def test_what_a_hand_divides_is_the_same_bit_for_bit(name: str, path: None, queue: mc.Queue) -> None:
    from everyday_programs import program, worker

    kind, given = program.PROGRAMS[name].kind, LITTLE[name]
    parts = [one.handle.cl for one in open_devices("portable/4#0-2")[1]]  # type: ignore[attr-defined]
    (expected,) = kind(**given).plain(program.Plain(parts[0], kind.source), 0)
    assert len(np.unique(expected)) > 1
    for count in (1, 2, 3):
        made, at = kind(**given), program.Hand(parts[:count], kind.source)
        for _ in range(3):  # on the buffers of the first time
            (found,) = made.hand(at)
            assert found.dtype == expected.dtype
            assert np.array_equal(found, expected), count
            at.done()
    made = kind(**given)
    kept, anew = made.on_kept(queue, mc.Program(kind.source)), made.manycl(queue, mc.Program(kind.source), 0)
    for _ in range(2):
        assert np.array_equal(kept()[0], anew[0])
    assert worker._error(anew, [expected]) < 1e-5


def test_every_program_that_a_hand_divides_is_among_them(path: None) -> None:
    from everyday_programs import program, worker  # noqa: F401

    divided = {entry.kind for entry in program.PROGRAMS.values() if issubclass(entry.kind, program.Divisible)}
    assert divided == {program.PROGRAMS[name].kind for name in LITTLE}


@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 96, 1000])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_hand_divides_as_evenly_as_units_allow(path: None, rows: int, count: int) -> None:
    from everyday_programs import program

    hand = program.Hand.__new__(program.Hand)
    hand.devices = [None] * count
    parts = hand.split(rows, 16)
    assert len(parts) == count
    assert [row for begin, many in parts for row in range(begin, begin + many)] == list(range(rows))
    assert all(begin % 16 == 0 for begin, many in parts if many)
    assert max(many for _, many in parts) - min(many for _, many in parts) < 32


def test_the_share_is_what_is_reached_of_the_hands_gain(path: None) -> None:
    from everyday_programs import divided

    bench = divided.DividedBench.__new__(divided.DividedBench)
    bench.exactly = {"all": True, "hand": False}
    single = {"gpu0": [9.0, 8.0, 7.0] + 4 * [6.0] + 13 * [4.0], "cpu0": [1.0, 50.0]}
    every = [8.0, 7.0, 6.0] + 4 * [5.0] + 13 * [2.5]
    turns = divided.DividedTurns(single, {"all": every, "hand": 20 * [2.0]}, {"all": 0.0, "hand": 1e-6})
    found = bench.row("triad", [turns])
    assert found["single_on"] == "gpu0"
    assert [found[f"{f}_single_ms"] for f in ("first", "third", "ten", "twenty", "steady")] == [
        9e3,
        7e3,
        60e3,
        1e5,
        4e3,
    ]
    assert (found["ratio"], found["ratio_hand"], found["share"]) == (1.6, 2.0, 0.75)
    assert "wrong" not in found
    slow = bench.row(
        "triad", [divided.DividedTurns(single, {"all": every, "hand": 20 * [3.9]}, {"all": 1e-9, "hand": 0.0})]
    )
    assert "share" not in slow
    assert slow["wrong"], "all devices and the single one are alike: every bit counts"
    over_all = bench.figures({"triad": found, "chain_20": slow, "blur": {"failed": "why"}})
    assert over_all["share_worst_program"] == "triad"
    assert over_all["ratio_hand_worst_program"] == "chain_20"


@pytest.mark.parametrize(
    ("devices", "singles"),
    [
        ("cpu/2", {"cpu0.0": "cpu0/2#0"}),
        ("cpu/4#1-2,cpu/4#3@4", {"cpu0.1": "cpu0/4#1", "cpu0.3": "cpu0/4#3@4"}),
        ("cpu,portable/2", {"cpu0": "cpu0", "cpu1.0": "cpu1/2#0"}),
    ],
)
def test_single_devices_are_asked_once_of_each_kind(path: None, devices: str, singles: dict[str, str]) -> None:
    from everyday_programs import divided

    assert divided.single_devices(devices) == singles
    for name, selector in singles.items():
        assert [device.name for device in open_devices(selector)[0].devices] == [name]


def test_all_devices_are_compared_with_the_best_one_and_a_hand() -> None:
    command = [sys.executable, str(BENCHMARKS / "everyday.py"), "--by-hand", "--kept", "--json", "--repeats", "1"]
    done = subprocess.run(
        [*command, "--devices", "cpu/2", "--only", "chain_20,bfs"],
        env=os.environ | {"PYTHONPYCACHEPREFIX": ""},  # where Python's code is compiled already
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["wrong"] == figures["failed"] == []
    assert set(figures["programs"]) == {"chain_20"}, "nobody has divided bfs"
    for row in figures["programs"].values():
        assert row["error_all"] == row["error_hand"] == 0.0
        for figure in ("first", "third", "ten", "twenty", "steady"):
            assert min(row[f"{figure}_{way}_ms"] for way in ("single", "all", "hand")) > 0.0
    alone = subprocess.run([*command, "--devices", "cpu/2#0"], capture_output=True, text=True, timeout=300)
    assert alone.returncode == 1
    assert "more than one device" in alone.stderr
