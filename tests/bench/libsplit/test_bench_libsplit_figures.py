"""Libsplit's experiments, simulated at small sizes: adapted splits end where the oracle's are; pictures and a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from manycl.cli import main
from manycl_bench.libsplit import experiments, report
from manycl_bench.libsplit.experiments import Settings, imbalance, settled

NAMES = ("GEMM", "Jacobi2D")


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    settings = Settings(repetitions=14, drifting=12, scale=4, names=NAMES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "MACHINES", ("conan",))
        patch.setattr(experiments, "SHOWN", ("EP",))
        return experiments.run(settings, lambda text: None)


def test_adapted_splits_are_the_oracles_after_a_few_repetitions(figures: dict[str, Any]) -> None:
    for row in figures["overall"]["conan"]:
        assert row["profile_behind_percent"] <= 3.0, row["application"]
        assert row["profile_settled"] <= 4
        assert row["samples_ms"]["profile"][0] == pytest.approx(row["samples_ms"]["fixed_point"][0])  # evenly divided
        assert row["uniform_speedup"] < row["profile_speedup"] <= row["oracle_speedup"]
        assert row["bound_speedup"] > 1.3  # of three GPUs and the processor
    (ep,) = figures["per_iteration"]
    assert ep["profile"][0] < 1.0 < ep["profile"][3]  # it began evenly divided, too much for the processor
    assert ep["profile"][-1] >= 0.97 * ep["oracle"][-1]


def test_the_drifting_load_is_followed(figures: dict[str, Any]) -> None:
    drift = figures["drifting"]
    assert min(drift["uniform_imbalance_percent"]) > 100.0
    assert max(drift["profile_imbalance_percent"][6:]) < 60.0


def test_figures_by_hand() -> None:
    assert imbalance([1.0, 3.0, 0.0]) == pytest.approx(50.0)
    assert settled([9.0, 1.2, 1.0, 1.02], [1.0] * 4) == 3
    assert settled([1.0, 1.0], [1.0] * 2) == 1
    assert settled([1.0, 2.0], [1.0] * 2) is None


def test_a_page_and_pictures_are_written(figures: dict[str, Any], tmp_path: Path) -> None:
    report.write(figures, tmp_path)
    assert json.loads((tmp_path / "libsplit.json").read_text())["summary"] == figures["summary"]
    page = (tmp_path / "libsplit.md").read_text()
    for name in NAMES:
        assert f"| {name} |" in page
    for picture in ("libsplit_iterations.png", "libsplit_drift.png", "libsplit_overall.png"):
        assert picture in page
        assert (tmp_path / picture).stat().st_size > 1000


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for flags, words in (
        (["--applications", "LU"], "there is none"),
        (["--betas", "64"], "whose applications have one size"),
        (["--profile"], "--profile is not for bench libsplit"),
        (["--repeats", "0"], "at least 1"),
        (["--devices", "cpu/1"], "two devices"),
    ):
        assert main(["bench", "libsplit", *flags]) == 2
        assert words in capsys.readouterr().err
    assert main(["bench", "mkmd", "--applications", "EP"]) == 2
    monkeypatch.setattr(
        experiments, "run", lambda settings, say: {"overall": {}, "scale": settings.scale, "names": settings.names}
    )
    assert main(["bench", "libsplit", "--quick", "--applications", "EP", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.pop("made")["command"].endswith("manycl bench libsplit --quick --applications EP")
    assert found == {"overall": {}, "scale": 16, "names": ["EP"]}
