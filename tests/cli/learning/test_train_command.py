"""``manycl train``: predictors from files of samples, and what is no such file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from manycl.cli import main
from manycl.model import slices


def rows(kind: str) -> list[dict[str, Any]]:
    """Kernels whose slices are inverse to their work, on devices of four compute units and one."""
    found = []
    for k in range(6):
        for scale in (1.0, 2.0):
            work = [scale * (k + 1), 0.5 * k * k, scale + k % 2][: 3 if kind == "cpu" else 2]
            units = 4 if scale > 1.0 else 1
            points = units * math.exp(12.0 - 0.3 * sum(work))
            found.append({"kernel": f"k{k}", "kind": kind, "logarithms": work, "points": points, "units": units})
    return found


def test_predictors_are_written_and_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn", reason="the extra train")
    files = []
    for kind in ("cpu", "gpu"):
        path = tmp_path / f"{kind}.json"
        path.write_text(json.dumps({"slice_samples": rows(kind), "other": 1}))
        files.append(str(path))
    target = tmp_path / "slices.json"
    assert main(["train", *files, "-o", str(target)]) == 0
    out = capsys.readouterr().out
    assert "cpu: 12 samples of 6 kernels" in out
    assert "gpu: 12 samples of 6 kernels" in out
    found = slices.read(target)
    for row in rows("cpu"):
        assert found.models["cpu"].predict(row["logarithms"]) == pytest.approx(row["points"] / row["units"], rel=1e-6)
    assert main(["train", files[0], "-o", str(target), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["cpu"]["kernels"] == 6
    assert told["cpu"]["median_factor"] == pytest.approx(1.0, abs=1e-6)
    assert set(slices.read(target).models) == {"cpu"}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([], "has no slice_samples"),
        ({"slice_samples": [{"kernel": "k", "kind": "npu"}]}, "is no sample"),
        ({"slice_samples": [{"kernel": "k", "kind": "cpu", "logarithms": [1, 2], "points": 3}]}, "are 3 numbers"),
        ({"slice_samples": [{"kernel": "k", "kind": "gpu", "logarithms": [1, 2], "points": 0.5}]}, "1 point at least"),
        ({"slice_samples": [{"kernel": "k", "kind": "gpu", "logarithms": [1, None], "points": 2}]}, "are 2 numbers"),
        ({"slice_samples": [{"kernel": "k", "kind": "gpu", "logarithms": [1, 2], "points": 2}]}, "1 compute unit at"),
    ],
)
def test_what_are_no_samples(value: Any, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "samples.json"
    path.write_text(json.dumps(value))
    assert main(["train", str(path), "-o", str(tmp_path / "slices.json")]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "slices.json").exists()


def test_one_kernel_is_too_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "samples.json"
    path.write_text(json.dumps({"slice_samples": rows("cpu")[:2]}))
    assert main(["train", str(path), "-o", str(tmp_path / "slices.json")]) == 2
    assert "two kernels at least" in capsys.readouterr().err
    assert main(["train", str(path), "-o", str(tmp_path / "nowhere" / "slices.json")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main(["train", str(tmp_path / "none.json"), "-o", str(tmp_path / "slices.json")]) == 2
