"""MKMD's Table 1: the figures, and what is printed of them."""

from __future__ import annotations

from manycl.bench import model_error
from manycl.bench.model_error import Settings


def test_small_table() -> None:
    figures = model_error.run(
        Settings(unseen=5, runs=1, turns=1, device="cpu/2#0", kernels=("blackscholes",)), lambda text: None
    )
    row = figures["blackscholes"]
    assert (row["paper_20"], row["paper_40"]) == (2.12, 1.27)
    assert abs(row["error_20"] - figures["mean_error_percent"]) < 0.01  # of one kernel
    assert figures["simulated_s"] > 0
    page = model_error.page(figures)
    assert f"| blackscholes | {row['error_20']} | {row['error_40']} | 2.12 | 1.27 | {row['noise']} |" in page
