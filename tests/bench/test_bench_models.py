"""MKMD's Table 1: the figures, and what is printed of them."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from manycl.analysis.service import launched
from manycl.api.program import Program
from manycl.api.queue import Queue
from manycl.graph.graph import Launch
from manycl.graph.known import known_launch
from manycl_bench import model_error
from manycl_bench.model_error import PAPER, RESTRICTED, WIDE, Settings, arrays, draw


def test_small_table(tmp_path: Path) -> None:
    figures = model_error.run(
        Settings(unseen=5, runs=1, turns=1, device="cpu/2#0", kernels=("blackscholes",), ranged=2), lambda text: None
    )
    row = figures["blackscholes"]
    assert (row["paper_20"], row["paper_40"]) == (2.12, 1.27)
    assert abs(row["error_20"] - figures["mean_error_percent"]) < 0.01  # of one kernel
    assert abs(row["wide_error_20"] - figures["wide_mean_error_percent"]) < 0.01
    assert figures["simulated_s"] > 0
    for drawn in ("restricted", "wide"):
        assert len(figures["samples"][drawn]["blackscholes"]) == model_error.MORE + 5
    assert [len(of) for of in figures["ranges"].values()] == [6, 6]
    for milliseconds, middle, most, learned, most_learned, noise in figures["ranges"].values():
        assert milliseconds > 0
        assert 1 <= middle <= most
        assert 1 <= learned <= most_learned
        assert noise >= 1
    model_error.write(figures, tmp_path / "new")
    page = (tmp_path / "new" / "models.md").read_text()
    wide = f"{row['wide_error_20']} | {row['wide_error_40']} | {row['wide_noise']}"
    ours = f"{row['error_20']} | {row['error_40']} | 2.12 | 1.27 | {row['noise']} | {wide}"
    assert f"| blackscholes | 8th argument | {ours} |" in page
    assert json.loads((tmp_path / "new" / "models.json").read_text()) == figures
    assert (tmp_path / "new" / "models.png").stat().st_size > 1000
    assert len(figures["figure_5"]["blackscholes"]) == 3 * model_error.DRAWN
    model_error.write({**figures, "large": True}, tmp_path / "gpu")
    assert "models_gpu.png" in (tmp_path / "gpu" / "models_gpu.md").read_text()


def test_the_bend_is_how_far_a_line_is_off() -> None:
    straight = [[1.0, x, 3.0 + 2.0 * x] for x in range(model_error.DRAWN)]
    alternating = [[1.0, x, 100.0 + (-1.0) ** x] for x in range(model_error.DRAWN)]
    assert model_error.bend(straight) == pytest.approx(0.0, abs=1e-9)
    assert model_error.bend(straight + alternating) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("kernel", PAPER)
def test_all_sizes_are_smaller_and_larger_and_fit_into_the_arrays(kernel: str) -> None:
    """Launches of all sizes begin below the restricted ones; none touches what is not there."""
    with Queue("cpu/2#0") as queue:
        a, program = arrays(queue), Program.from_file(model_error.KERNELS)
        items: dict[str, list[int]] = {}
        with queue.prepare() as prepared:
            for name, sizes in (("restricted", RESTRICTED), ("wide", WIDE)):
                rng = random.Random(kernel)
                cases = [draw(kernel, a, rng, sizes) for _ in range(60)]
                items[name] = [math.prod(c.size) for c in cases]
                for c in sorted(cases, key=lambda c: math.prod(c.size) * c.f)[-2:]:
                    program.kernel(c.kernel)(queue, c.size, c.local, *c.args)
        graph = prepared.graph
    bytes_of = {key: b.nbytes for key, b in graph.buffers.items()}
    for launch in graph.nodes:
        assert isinstance(launch, Launch)
        facts = launched(launch.program, launch.kernel.name, known_launch(launch, bytes_of))
        assert facts.out_of_bounds == ()
    assert min(items["wide"]) < min(items["restricted"])
    assert max(items["wide"]) >= 0.8 * max(items["restricted"])


@pytest.mark.parametrize("sizes", [RESTRICTED, WIDE, model_error.LARGE], ids=["restricted", "wide", "large"])
def test_prices_of_all_steps_fit_into_the_arrays(sizes: model_error.Sizes) -> None:
    """Also where a GPU's launches have many paths."""
    nothing: Any = None
    made = model_error.Arrays([nothing] * 3, [nothing] * 2, (nothing, nothing), nothing)
    for seed in range(200):
        case = draw("blackscholes", made, random.Random(seed), sizes)
        assert 0 < math.prod(case.size) * case.f <= sizes.floats
