"""MKMD's Table 1: the figures, and what is printed of them."""

from __future__ import annotations

import json
from pathlib import Path

from manycl.bench import model_error
from manycl.bench.model_error import Settings


def test_small_table(tmp_path: Path) -> None:
    figures = model_error.run(
        Settings(unseen=5, runs=1, turns=1, device="cpu/2#0", kernels=("blackscholes",)), lambda text: None
    )
    row = figures["blackscholes"]
    assert (row["paper_20"], row["paper_40"]) == (2.12, 1.27)
    assert abs(row["error_20"] - figures["mean_error_percent"]) < 0.01  # of one kernel
    assert figures["simulated_s"] > 0
    model_error.write(figures, tmp_path / "new")
    page = (tmp_path / "new" / "models.md").read_text()
    assert f"| blackscholes | {row['error_20']} | {row['error_40']} | 2.12 | 1.27 | {row['noise']} |" in page
    assert json.loads((tmp_path / "new" / "models.json").read_text()) == figures
