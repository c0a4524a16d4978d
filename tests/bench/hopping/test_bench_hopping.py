"""``manycl bench hopping``: the model and the lines always, measurements on two devices."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import manycl as mc
from manycl.cli import main
from manycl.machine import DeviceIndex
from manycl_bench.hopping import model, real, report, ways
from manycl_bench.hopping.data import CASES
from manycl_bench.hopping.kept import Kept
from manycl_bench.hopping.real import Settings
from manycl_bench.hopping.ways import WAYS


def test_model_and_lines_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "hopping", "--output", str(tmp_path)]) == 0
    assert "fewer_lines_percent" in capsys.readouterr().out
    figures = json.loads((tmp_path / "hopping.json").read_text())
    assert len(figures["lines"]) == 9
    assert [row["k"] for row in figures["model"]] == list(report.SHOWN)
    page = (tmp_path / "hopping.md").read_text()
    assert "1.333" in page
    assert "## Measured" not in page
    assert (tmp_path / "hopping_model.svg").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--applications", "GEM"], "--applications GEM"),
        (["--applications", "GEMM"], "measures nothing"),
        (["--repeats", "3"], "measures nothing"),
        (["--heads", "2"], "--heads"),
    ],
)
def test_what_is_not_for_it_is_refused(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "hopping", *words]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("apart", [False, True])
def test_two_devices_are_measured_and_results_are_right(
    apart: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is fast is not judged here; but all ways ran, and the page tells them."""
    if apart:
        monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    names = ("GEMM",) if apart else ("GEMM", "Reduction")
    settings = Settings(names=names, parts=(0.3, 0.6), repeats=1, warm=1, seconds=(0.01, 0.02))
    figures = real.run("native/2#0,native/2#1@2", settings, lambda text: None)
    found = [(row["benchmark"], row["size"]) for row in figures["results"]]
    assert found == [(name, size) for name in names for size in ("small", "medium")]
    for row in figures["results"]:
        assert row["k"] >= 1.0
        for point in row["points"]:
            assert set(point["seconds"]) == set(WAYS)
            assert all(seconds > 0 for seconds in point["seconds"].values())
            assert point["wait"] > 0
        assert math.isnan(row["switch_ms"]) or row["switch_ms"] > 0.0
        assert row["slices"] >= 1
        assert 1 <= row["predicted_slices"] <= real.SLICES
        assert row["predicted_percent"] > -100.0
    figures["others"] = [{**figures, "devices": "the same again"}]
    report.write({**report.figures_of_model(), **figures}, tmp_path)
    page = (tmp_path / "hopping.md").read_text()
    assert "## Measured" in page
    assert page.count(f"| {names[-1]} (m) | cpu0") == 2  # their devices and times
    assert "On `the same again`:" in page
    assert (tmp_path / "hopping_measured.svg").stat().st_size > 5_000
    assert (tmp_path / "hopping_slices.svg").stat().st_size > 5_000


def test_one_device_is_not_enough() -> None:
    with pytest.raises(mc.ManyclError, match="two devices"):
        real.run("cpu/2#0", Settings(), lambda text: None)


def test_plans_give_the_fast_device_nothing() -> None:
    """Nothing of a wait is in what migrates: it is the same plan for all; what cannot be divided is refused."""
    with mc.Queue("cpu/2") as queue:
        benchmark = ways.Benchmark(queue, "GEMM", CASES["GEMM"](1 << 12))
        occupant = ways.Occupant(queue)
        form = benchmark.enqueued(occupant.occupy("cpu0.1", 1e-3))
        problem, pair = ways.asked(queue, form.graph), ways.Pair(DeviceIndex(0), DeviceIndex(1))
        groups = problem.splits[1].groups
        for way in WAYS:
            made = ways.plan(problem, way, pair, True)
            shares = {a.device: a.groups for a in made.assignments if a.node == 1}
            if way in ways.MIGRATING:
                assert shares == {0: groups}
            else:
                assert list(shares) == [1 if way == "waits" else 0]
            assert made.movable == ((1,) if way in ways.MIGRATING else ())
            assert made.in_turn == ((1,) if way == "hop" else ())
        ranges = [a for a in ways.plan(problem, "slow", pair, True, 5).assignments if a.node == 1]
        assert sum(a.groups for a in ranges) == groups
        assert len(ranges) == 5
        with pytest.raises(mc.ManyclError, match="cannot be divided"):
            ways.plan(replace(problem, splits={}), "hop", pair, True)


def row(k: float, points: list[tuple[float, float, float, float]], sliced: float = 2.0) -> dict[str, Any]:
    seconds = [dict(zip(WAYS, p, strict=True)) for p in points]
    return {
        "k": k,
        "slow_ms": 80.0,
        "sliced_percent": sliced,
        "predicted_percent": 2.44,
        "points": [{"part": 0.5, "seconds": s} for s in seconds],
    }


def test_the_summary() -> None:
    """Of k = 2: speed-ups of 1.2 and 1.0 over the better of waiting and the slow device; of k = 1, where nothing is
    gained, 0.5."""
    rows = [row(2.0, [(2.4, 3.0, 2.0, 1.6), (5.0, 2.0, 2.0, 2.0)]), row(1.0, [(2.0, 1.0, 2.0, 1.0)], sliced=4.0)]
    found = real.summary(rows)
    assert found["bound_share_mean"] == pytest.approx((1.2 - 1) / (4 / 3 - 1))
    assert found["geomean_over_pns"] == pytest.approx((1.2 * 1.0 * 0.5) ** (1 / 3))
    assert found["both_geomean"] == pytest.approx(1.5 ** (1 / 3))
    assert found["never_migrating_percent"] == pytest.approx(100 * (math.sqrt(1.02 * 1.04) - 1))
    assert found["both_bound_share_mean"] == pytest.approx((1.5 - 1) / (1.5 - 1))
    assert math.isnan(real.summary(rows[1:])["bound_share_mean"])
    assert (found["most_over_pns"], found["cannot_be"]) == (pytest.approx(1.2), 0)
    assert found["never_predicted_percent"] == pytest.approx(2.44)
    disturbed = real.summary([rows[0], row(2.0, [(4.4, 5.0, 2.0, 2.0)])])  # 2.2 times as fast, of 1.33
    assert (disturbed["bound_share_most"], disturbed["cannot_be"]) == (found["bound_share_mean"], 1)
    nearly = row(1.02, [(2.4, 3.0, 2.0, 1.6)])
    assert math.isnan(real.summary([nearly])["bound_share_mean"])  # of which a hundredth can be gained
    few = {**rows[1], "slow_ms": 20.0}  # what a run costs the host would decide
    assert real.summary([rows[0], few]) == {**real.summary(rows[:1]), "too_short": 1}
    assert real.summary([few]) == {"too_short": 1}
    assert model.share_of_bound(1.2, 2.0) == pytest.approx(found["bound_share_mean"])


def test_a_measurement_that_was_stopped_goes_on(tmp_path: Path) -> None:
    settings = Settings(names=("GEMM", "Reduction"), parts=(0.5,), repeats=1, warm=1, seconds=(0.01,))
    file, asked = tmp_path / "rows.json", {"settings": asdict(settings)}
    told: list[str] = []

    def stop(text: str) -> None:
        told.append(text)
        if text.startswith("Reduction"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        real.run("native/2#0,native/2#1@2", settings, stop, Kept(file, asked))
    first = Kept(file, asked).rows
    assert [row["benchmark"] for row in first] == ["GEMM"]
    figures = real.run("native/2#0,native/2#1@2", settings, told.append, Kept(file, asked))
    assert [text.partition(",")[0] for text in told] == ["GEMM", "Reduction", "Reduction"]
    assert [row["benchmark"] for row in figures["results"]] == ["GEMM", "Reduction"]
    assert figures["results"][0] == first[0]
    assert Kept(file, {"settings": "others"}).rows == []
