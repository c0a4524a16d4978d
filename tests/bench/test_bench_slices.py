"""``manycl bench slices``: what is sampled, and what its file says."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import manycl as mc
from manycl.cli import main
from manycl.cli.learning.train import read_samples
from manycl_bench.hopping.ways import Benchmark
from manycl_bench.slices import command, sampling
from manycl_bench.slices.loops import BEHIND, OWN, Sampled, sampled
from manycl_bench.slices.sampling import Measured, Sampler, Settings

DEVICE = "native/2#0"
ALL = sampled()


def wanted(name: str, form: int = 0) -> Sampled:
    return [s for s in ALL if s.name == name][form]


def test_every_kernel_is_sampled_once_before_any_is_again() -> None:
    names = [s.name for s in ALL]
    kernels = set(names)
    assert set(names[: len(kernels)]) == kernels
    assert "SPMV" not in kernels
    assert len(kernels) >= 30


@pytest.mark.parametrize("apart", [False, True])
def test_all_of_them_run_and_divided_ones_come_out_alike(apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of every kernel have the results of the whole, also where a device has a memory of its own."""
    if apart:
        monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    seen = set()
    with mc.Queue(DEVICE) as queue:
        sampler = Sampler(queue, 0, Settings())
        for what in ALL:
            if what.name not in OWN or (apart and what.name in seen):
                continue
            seen.add(what.name)
            benchmark = Benchmark(queue, what.name, what.make(1 << 14), what.enqueue)
            form = benchmark.enqueued()
            found = []
            for slices in (1, 3):
                sampling._seconds(benchmark, sampler._prepared(form, slices), form)
                found.append([array.get().copy() for array in form.results])
            assert found[0], what.name
            assert all(np.any(a) for a in found[0]), what.name
            for one, three in zip(*found, strict=True):
                assert np.array_equal(one, three), what.name


def test_features_tell_kernels_and_their_forms_apart() -> None:
    """Of the work of a point, by hand: a polynomial of degree m has 2 m operations, beside those of its loop."""
    each = {}
    with mc.Queue(DEVICE) as queue:
        for form, m in enumerate((12, 300)):
            what = wanted("polynomial", form)
            graph = Benchmark(queue, what.name, what.make(1 << 14), what.enqueue).enqueued().graph
            each[m] = [math.expm1(x) for x in sampling.features(graph, graph.nodes[0], "cpu")]
            on_gpu = [math.expm1(x) for x in sampling.features(graph, graph.nodes[0], "gpu")]
            assert on_gpu[0] == pytest.approx(4 + 4 * (BEHIND + 1024) / (1 << 14))  # x, and all of the coefficients
            assert on_gpu[1] == pytest.approx(each[m][1])
    (compare, compute, memory), (more, most, further) = each[12], each[300]
    assert more - compare == pytest.approx(288)
    assert further - memory == pytest.approx(288)
    assert most - compute >= 2 * 288


def test_targets_are_those_of_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each slice after the first one takes 1 % of the whole: on CPUs, where 4 % are allowed, five of them do."""
    monkeypatch.setattr(Sampler, "_overhead", lambda self, b, f, w, slices: (1e-3, 0.01 * (slices - 1)))
    monkeypatch.setattr(sampling, "_seconds", lambda benchmark, prepared, form: 1e-4)
    with mc.Queue(DEVICE) as queue:
        found = Sampler(queue, 0, Settings(seconds=1e-4)).measured(wanted("scale"))
    assert found.points == pytest.approx(found.total / 5)
    assert found.overheads == pytest.approx({2: 0.01, 4: 0.03, 8: 0.07, 16: 0.15, 32: 0.31})
    assert found.seconds == 1e-3
    assert found.kind == "cpu"


def test_the_file_holds_what_was_found_after_every_kernel_and_training_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[tuple[int, int]] = []

    def measured(self: Sampler, what: Sampled) -> Measured:
        if what.name == "dot":
            raise mc.ManyclError("dot cannot be divided")
        points = None if what.name == "triad" else 100.0
        file = tmp_path / command.FILE
        rows = json.loads(file.read_text()) if file.exists() else {"slice_samples": [], "without": []}
        kept.append((len(rows["slice_samples"]), len(rows["without"])))
        return Measured(what.name, "cpu", (1.0, 2.0, 3.0), points, "cpu0", 1e-3, 1000, 10, {2: 0.1}, 4)

    monkeypatch.setattr(Sampler, "measured", measured)
    names = "scale,triad,dot,tones"
    assert main(["bench", "slices", "--devices", DEVICE, "--applications", names, "--output", str(tmp_path)]) == 0
    assert kept == [(0, 0), (1, 0), (1, 1)]
    found = read_samples(tmp_path / command.FILE)
    assert [(s.kernel, s.points) for s in found] == [("scale", 25.0), ("tones", 25.0)]  # points per compute unit
    assert "made" in json.loads((tmp_path / command.FILE).read_text())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "measures one device"),
        (["--devices", "native/2"], "not 2"),
        (["--devices", DEVICE, "--applications", "sort"], "there is none"),
        (["--devices", DEVICE, "--heads", "2"], "--heads"),
    ],
)
def test_what_is_not_for_it_is_refused(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "slices", *words]) == 2
    assert told in capsys.readouterr().err
