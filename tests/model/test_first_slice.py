"""First slices of launches that nobody has measured: as the predictors that come with manycl have them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from manycl.analysis import parse_program
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, Launch
from manycl.machine import Device, Machine
from manycl.model import slices
from manycl.model.estimate import History, ModelEstimates
from manycl.model.history.history import Shape, identity, kernel_key
from manycl.model.slices import LinearSlices, Predictors
from manycl_bench.slices.sampling import OVERHEADS
from tests import ROOT

CPU, GPU = Device("cpu0", "cpu", compute_units=16), Device("gpu0", "gpu", memory=1)
MACHINE = Machine((CPU, GPU))
KNOWN = Predictors({"cpu": LinearSlices((0.0, -1.0, 0.0), 0.0, (0.0,) * 4, (1.0,) * 4)})
"""One over one more than the compute operations of a work-item, in points per compute unit; nothing of GPUs."""
SAMPLES = ROOT / "docs" / "results" / "slices"
SOURCE = "kernel void k(global float *a) { int i = get_global_id(0); a[i] = a[i] * 2 + 1; }"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    slices.shipped.cache_clear()
    yield
    slices.shipped.cache_clear()


def graph(text: str = SOURCE) -> Graph:
    program, builder = parse_program(text), GraphBuilder()
    key = builder.buffer(4 << 12)
    kernel = program.kernels["k"]
    builder.add(Launch("k", program, kernel, (1 << 12,), (64,), (BufferArg(key),), (key,), (key,)))
    return builder.build()


def shipping(path: Path, monkeypatch: pytest.MonkeyPatch, known: Predictors = KNOWN) -> None:
    known.write(path / "slices.json")
    monkeypatch.setattr(slices, "SHIPPED", path / "slices.json")


def test_features_tell_it_until_it_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    big = replace(KNOWN, models={"cpu": replace(KNOWN.models["cpu"], intercept=9.0)})
    shipping(tmp_path, monkeypatch, big)
    asked, history = graph(), History()
    launch = asked.nodes[0]
    assert isinstance(launch, Launch)
    found = ModelEstimates(asked, MACHINE, history)
    assert found.first_slice(0, 0) == pytest.approx(16 * math.exp(9.0) / 3)  # two operations, and 1
    assert found.first_slice(0, 1) is None
    assert ModelEstimates(asked, MACHINE, history, exact=True).first_slice(0, 0) is None
    history.observe(kernel_key(launch), Shape(launch.global_size, 1.0), identity(CPU), 1.0)
    assert ModelEstimates(asked, MACHINE, history).first_slice(0, 0) is None


def test_a_forest_that_was_trained_tells_it_of_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From samples to the first packets: two kinds of kernels, of which a work-item has about 2 or 1000 operations, and
    slices of 4096 or 64 points."""
    pytest.importorskip("sklearn", reason="the extra train")
    from manycl.model.slices import SliceSample, train

    rows = [(math.log1p(operations), points) for operations, points in ((2.0, 4096.0), (1000.0, 64.0))]
    samples = [SliceSample(f"k{i}", "gpu", (math.log1p(4.0), work), points) for i in range(8) for work, points in rows]
    shipping(tmp_path, monkeypatch, train(samples))
    found = ModelEstimates(graph(), MACHINE, History())
    assert found.first_slice(0, 0) is None
    light = found.first_slice(0, 1)
    text = SOURCE.replace("a[i] * 2 + 1", "a[i]; for (int q = 0; q < 500; q++) a[i] = a[i] * 2 + 1")
    heavy = ModelEstimates(graph(text), MACHINE, History()).first_slice(0, 1)
    assert light is not None
    assert heavy is not None
    assert light == pytest.approx(4096.0)
    assert heavy == pytest.approx(64.0)


def test_what_has_no_features_has_no_first_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipping(tmp_path, monkeypatch)
    asked = graph()
    launch = asked.nodes[0]
    assert isinstance(launch, Launch)
    blind = replace(launch, program=replace(launch.program, tree=None))
    builder = GraphBuilder()
    builder.buffer(4 << 12)
    builder.add(blind)
    assert ModelEstimates(builder.build(), MACHINE).first_slice(0, 0) is None


@pytest.mark.parametrize("text", [None, "{", '{"format": 2, "models": {"fpga": {}}}'])
@pytest.mark.filterwarnings("ignore")
def test_files_that_are_missing_or_damaged_tell_nothing(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SHIPPED", tmp_path / "slices.json")
    if text is not None:
        (tmp_path / "slices.json").write_text(text)
    assert slices.shipped().models == {}
    assert ModelEstimates(graph(), MACHINE).first_slice(0, 0) is None


def test_what_comes_with_manycl_is_what_its_samples_give() -> None:
    pytest.importorskip("sklearn", reason="the extra train")
    from manycl.cli.learning.train import read_samples
    from manycl.model.slices import train
    from manycl_bench.slices.targets import target

    samples = []
    for path in sorted(SAMPLES.glob("*.json")):
        samples += read_samples(path)
        for row in json.loads(path.read_text())["slice_samples"]:  # targets are those of what was measured
            count = target(dict(row["overheads"]), OVERHEADS[row["kind"]])
            assert count is None or row["points"] == pytest.approx(row["total"] / count, rel=1e-2)
            assert count is not None or row["kind"] == "gpu"  # of which more is allowed where there is none
    again, found = train(samples), slices.read(slices.SHIPPED)
    assert again.models.keys() == found.models.keys() == {"cpu", "gpu"}
    for kind, about in found.about.items():
        assert again.about[kind]["samples"] == about["samples"]
        assert again.about[kind]["median_factor"] == pytest.approx(about["median_factor"], rel=0.3)
    for s in samples:  # other versions of the library may draw other forests
        told = found.models[s.kind].predict(s.logarithms)
        assert again.models[s.kind].predict(s.logarithms) == pytest.approx(told, rel=1e-6 if s.kind == "cpu" else 0.5)


def test_what_comes_with_manycl_can_be_read_and_says_how_good_it_is() -> None:
    found = slices.read(slices.SHIPPED)
    assert found.models.keys() == {"cpu", "gpu"}
    assert found.models.keys() == found.about.keys()
    for about in found.about.values():
        assert about["kernels"] >= 5
        assert 1.0 <= about["median_factor"] <= about["largest_factor"]
