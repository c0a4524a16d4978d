"""The benchmarks run, check their own results, and print the figures that are asked of them."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

KEYS = {
    "arrays": {"on_devices", "host", "silent", "refused", "operations", "chains"},
    "dispatch": {"chain_us_per_kernel", "parallel_us_per_kernel", "prepared_extra_us_per_kernel"},
    "two_devices": {"speedup"},
    "split": {"equal_speedup", "pair_speedup", "halo_only", "decide_us", "spill_ratio"},
    "regions": {"region_us", "first_region_us", "lowered_ms", "lowered_again_ms", "launches", "pieces", "touched"},
    "load": {"import_s", "spec_1000_s"},
    "hop": {"over_oracle_worst_percent", "static_worst_percent", "stealing_cost_percent", "free_ms", "decide_us"},
    "analysis": {
        "load_200_lines_ms",
        "launch_first_ms",
        "launch_repeat_us",
        "split_proof_ms",
        "exact_share",
        "unsound",
    },
    "foreign": {"programs", "same", "exact", "second_geomean", "processor_geomean"},
    "model_error": {"mean_error_percent", "noise_floor_percent", "simulated_vs_real_percent", "ranges_worst"},
    "planning": {"coarse_40_s", "split_40_s", "exponent", "simulate_40_s"},
    "planning_saga": {"saga_ratio", "saga_worst", "valid_schedules"},
    "found": {"wrong", "crashed", "hung", "silent", "refused_though_valid", "reports", "kinds", "corpus", "fuzz"},
    "papers": {"reached", "wrong", "missing", "measured"},
    "reserve": {"free_ms", "free_1_ms", "free_20_ms", "worst_ms", "alone_us", "listening_us"},
    "overlap": {"overlapping_geomean", "whole_geomean", "unforeseen_geomean", "least"},
    "transfers": {"skipped"},
    "ranges": {"kernels", "ranges_off_percent", "ranges_worst", "ranges_noise_percent", "ranges"},
    "drivers": {
        "queues_8_speedup",
        "out_of_order_speedup",
        "polled_us",
        "waited_us",
        "callback_us",
        "pinned_gb_per_s",
        "result_beside_us",
        "result_behind_us",
    },
    "native_runtime": {
        "threads",
        "enqueue_us",
        "chain_us",
        "little_us",
        "rested_us",
        "range_us",
        "done_us",
        "spread_us",
    },
    "native": {
        "hand_cut_least",
        "over_pocl_geomean",
        "over_pocl_least",
        "blas_share",
        "compile_ms",
        "cached_ms",
        "enqueue_us",
        "little_us",
        "range_us",
    },
    "first_guesses": {
        "native_within_2",
        "native_within_4",
        "native_held_out_within_2",
        "native_refitted_within_2",
        "native_worst",
        "native_kernels",
        "pocl_within_2",
    },
    "worker": {
        "here_enqueue_us",
        "worker_enqueue_us",
        "worker_chain_us",
        "worker_known_us",
        "worker_fetch_ms",
        "open_ms",
    },
    "cluster": {
        *("open_ms", "kernel_us", "kernel_client_us", "step_ms", "kept_step_ms", "run_ms", "run_client_ms"),
        *("overlap_ratio", "product_ratio", "bytes_beyond", "same", "asked"),
    },
    "builtin_functions": {
        "compile_ms",
        "found_ms",
        "small_ms",
        "exp_float_vector_ns",
        "exp_double_libm_ns",
        "exp_float_same",
    },
    "losses": {"losses", "right", "clear", "other", "wrong", "hung", "over_oracle_median", "over_oracle_worst"},
    "serve": {
        "clients",
        "own_processes",
        "client_ms",
        "descriptors_left",
        "threads_left",
        "files_left",
        "bytes_left",
        "processes_more",
        "processes_replaced",
        "together_more",
        "killed_finished",
        "killed_clear",
        "killed_other",
        "killed_wrong",
        "killed_hung",
        "restarts_stale",
    },
    "adaptive": {"within_oracle_percent", "iterations", "settled", "drift_imbalance_percent", "decide_us"},
    "commands": {"extra_worst_us", "extra_each_worst_us", "extra_median_worst_us", "extra_thread_worst_us"},
    "everyday": {
        "first_worst",
        "ten_worst",
        "ten_geomean",
        "steady_worst",
        "steady_geomean",
        "regret_worst",
        "prepared_worst",
        "wait_manycl_us",
        "wait_plain_us",
        "threads_manycl_s",
        "threads_plain_s",
    },
}
# than the others' command lines: small enough for a test
MORE = {
    "commands": ["--only", "launch,copy,fill,launch_and_read,map_unmap", "--rounds", "2", "--devices", "cpu/2#0"],
    "regions": ["--rows", "48"],
    "ranges": ["--only", "five_points,libsplit FDTD-2D", "--devices", "cpu/2#0"],
    "found": ["--only", "comments"],
    "papers": ["--items", "libsplit_d,pyschedcl_b,mkmd_d,hopping_a"],
    "losses": ["--losses", "1", "--ms", "20", "--turns", "3", "--only", "enqueued,auto,shared"],
    "serve": ["--count", "4", "--own", "1", "--rounds", "1", "--settle", "4"],
    "builtin_functions": ["--function", "exp"],
    "first_guesses": ["--quick", "--only", "five_points,polybench mvt"],
    "native": ["--quick", "--only", "bodies,product_2048,libsplit MVT"],
    "everyday": ["--only", "triad,launch_and_wait", "--devices", "opencl"],  # one driver: the same bits
    "adaptive": ["--applications", "GEMM", "--devices", "cpu/2", "--seconds", "0.1", "--drifting", "3"],
}


def command(name: str) -> list[str]:
    """The file of a benchmark, or that of its group and its name."""
    if (alone := ROOT / "benchmarks" / f"{name}.py").exists():
        return [str(alone)]
    (inner,) = (ROOT / "benchmarks").glob(f"*_figures/{name}.py")
    return [str(ROOT / "benchmarks" / f"{inner.parent.name.removesuffix('_figures')}.py"), name]


@pytest.mark.parametrize("name", KEYS)
def test_prints_one_json_object(name: str, tmp_path: Path) -> None:
    # what it reserves is nobody else's; Python's code is where it is compiled already
    env = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": tempfile.mkdtemp(dir=tmp_path)}
    env["PYTHONPYCACHEPREFIX"] = ""
    words = [
        sys.executable,
        *command(name),
        "--json",
        "--quick",
        "--repeats",
        "1",
        *MORE.get(name, []),
    ]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures.keys() >= KEYS[name] or figures.keys() >= {"ordinary_share", "allocated_share"}
    if name == "everyday":
        assert figures["wrong"] == figures["failed"] == []
        assert set(figures["programs"]) == {"triad", "launch_and_wait"}
        assert all(row["error"] == 0.0 for row in figures["programs"].values())
        assert min(figures[key] for key in KEYS[name]) > 0.0
    if name == "native":
        assert figures["wrong"] == figures["failed"] == []
        assert {row["application"] for row in figures["kernels"]} == set(MORE[name][-1].split(","))
        assert all(figures[key] > 0.0 for key in KEYS[name])
    if name == "first_guesses":
        assert figures["native_kernels"] == figures["pocl_kernels"] == 3
        assert all(row["guess_s"] > 0.0 < row["cpu_s"] for row in figures["kernels"])
    if name == "hop":  # simulated: the same everywhere
        assert figures["over_oracle_worst_percent"] < 5 < 50 < figures["static_worst_percent"]
        assert 0.0 < figures["stealing_cost_percent"] < 1.5
        assert 0.5 < figures["free_ms"] < 20  # of launches of 20 to 100 ms
    if name == "cluster":
        assert figures["same"]
        assert figures["bytes_beyond"] == 0
        assert figures.keys() >= {row for row in figures["asked"] if row != "numba_ratio" or figures["numba"]}
    if name == "ranges":
        assert figures["kernels"] == len(figures["ranges"]) == 4
    if name == "analysis":
        assert figures["unsound"] == 0 < figures["exact_share"]
    if name == "foreign":
        assert figures["programs"] == figures["exact"] == 1
    if name == "planning_saga":
        assert 0 < figures["saga_ratio"] < 1.1
    if name == "found":
        assert [figures[bad] for bad in ("wrong", "crashed", "hung", "silent", "refused_though_valid")] == [0] * 5
        assert set(figures["reports"].values()) == {"right"}
        assert len(figures["reports"]) == 3
    if name == "losses":
        assert figures["losses"] == figures["right"] + figures["clear"] == 1
    if name == "papers":
        states = {key: row["state"] for key, row in figures.items() if isinstance(row, dict)}
        assert states == {
            "libsplit_d": "reached",
            "pyschedcl_b": "reached",
            "mkmd_d": "reached",
            "hopping_a": "measured",
        }
        assert all(row["figure"] for row in figures.values() if isinstance(row, dict) and row["state"] == "reached")
    if name == "serve":
        assert figures["clients"] == figures["own_processes"] + 3 == 4
        assert figures["killed_finished"] + figures["killed_clear"] == 3
        assert figures["processes_more"] == figures["processes_replaced"] == figures["together_more"] == 0
        assert figures["files_left"] == figures["folder_left"] == figures["restarts_stale"] == 0
    if name == "adaptive":  # how far it has come, where standard error is no terminal either
        assert "cpu/2 GEMM: " in done.stderr


def test_files_of_applications_are_counted(tmp_path: Path) -> None:
    source = "kernel void k(global int *x) { x[get_global_id(0)] = N; }\n%s"
    for name, more in (("a/taken.cl", ""), ("a/more.cl", 'kernel void p() { printf(""); }'), ("b/broken.cl", "int f(")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source % more)
    words = [sys.executable, *command("corpus"), "--json", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": tempfile.mkdtemp(dir=tmp_path)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["files"] == figures["files_analysed"] == figures["kernels_native"] == 2
    assert (figures["kernels_elsewhere"], figures["native"]) == (1, 1.0)


def test_without_options_a_few_are_measured_and_with_all_every_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = runpy.run_path(str(ROOT / "benchmarks" / "stages_figures" / "adaptive.py"))
    asked: list[tuple[str, float]] = []
    rows = dict.fromkeys(("within_oracle_percent", "iterations", "settled", "adaptive_speedup", "oracle_speedup"), 1)

    def measure(name: str, devices: str, settings: Any) -> dict[str, int]:
        asked.append((name, settings.seconds))
        return rows

    monkeypatch.setattr(module["real"], "measure", measure)
    monkeypatch.setattr(module["real"], "drifting", lambda *_: {"drift_imbalance_percent": 1.0})
    for words, names, seconds in (
        ([], module["FEW"], 2.0),
        (["--all"], tuple(module["APPLICATIONS"]), 8.0),
        (["--all", "--seconds", "1", "--applications", "EP"], ("EP",), 1.0),
    ):
        asked.clear()
        monkeypatch.setattr(sys, "argv", ["stages.py adaptive", "--devices", "cpu0", "--json", *words])
        monkeypatch.setitem(module["main"].__globals__, "decide_us", lambda _: (1.0, 1.0))
        module["main"]()
        assert asked == [(name, seconds) for name in names]


def test_what_was_judged_before_it_was_cut_off_is_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = runpy.run_path(str(ROOT / "benchmarks" / "stages_figures" / "adaptive.py"))
    figures = {"within_oracle_percent": 1.0, "iterations": 1, "settled": 2}
    figures.update(adaptive_speedup=1.5, oracle_speedup=1.6)

    def measure(name: str, *_: object) -> dict[str, float]:
        if name == "GEMM":
            raise KeyboardInterrupt
        return figures

    monkeypatch.setattr(module["real"], "measure", measure)
    output = tmp_path / "figures.json"
    command = ["stages.py adaptive", "--devices", "cpu0", "--applications", "EP,GEMM", "--output", str(output)]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(KeyboardInterrupt):
        module["main"]()
    found = json.loads(output.read_text(encoding="utf-8"))
    assert found["details"] == {"cpu0": {"EP": figures}}
    assert found["cpu0 EP iterations"] == found["iterations"] == 1
    assert found["cpu0 EP settled"] == found["settled"] == 2
    assert [p.name for p in tmp_path.iterdir()] == ["figures.json"]


def test_the_worst_reproduction_of_a_report_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = runpy.run_path(str(ROOT / "benchmarks" / "found.py"))
    module["load"]()
    assert {n for names in (*module["REPORTS"].values(), *module["KINDS"].values()) for n in names} <= set(
        module["CASES"]
    )
    outcomes = {"a": "right", "b": "silent", "c": "wrong", "d": "right"}
    keys = {"one": ("a", "d"), "two": ("a", "b"), "three": ("b", "c"), "not run": ("a", "e")}
    assert module["worst"](outcomes, keys) == {"one": "right", "two": "silent", "three": "wrong"}
