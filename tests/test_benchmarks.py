"""The benchmarks run, check their own results, and print the figures that are asked of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KEYS = {
    "dispatch": {"chain_us_per_kernel", "parallel_us_per_kernel", "prepared_extra_us_per_kernel"},
    "two_devices": {"speedup"},
    "split": {"equal_speedup", "pair_speedup", "halo_only", "decide_us", "spill_ratio"},
    "load": {"import_s", "spec_1000_s"},
    "overlap": {"overlapping_geomean", "whole_geomean", "unrehearsed_geomean", "least"},
    "transfers": {"skipped"},
    "drivers": {"queues_8_speedup", "out_of_order_speedup", "polled_us", "waited_us", "callback_us", "pinned_gb_per_s"},
    "adaptive": {"within_oracle_percent", "iterations", "drift_imbalance_percent", "decide_us"},
}
# than the others' command lines
MORE = {"adaptive": ["--applications", "Jacobi2D", "--devices", "cpu/2", "--seconds", "1"]}


@pytest.mark.parametrize("name", KEYS)
def test_prints_one_json_object(name: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), "--json", "--repeats", "1", *MORE.get(name, [])]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures.keys() >= KEYS[name] or figures.keys() >= {"ordinary_share", "allocated_share"}
    if name == "adaptive":  # how far it has come, where standard error is no terminal either
        assert "cpu/2 Jacobi2D: " in done.stderr
