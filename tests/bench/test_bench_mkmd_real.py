"""MKMD's equations with real kernels: they compute what the formulas say, however they are run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manycl.api.queue import Queue
from manycl.errors import ResultError
from manycl_bench.mkmd import real
from manycl_bench.mkmd.equations import EQUATIONS
from manycl_bench.mkmd.real import Kernels, OnQueue, Settings

N = 256


class InNumPy:
    """The same launches, computed by NumPy in double precision."""

    def given(self, data: Any, name: str) -> Any:
        return data.astype(np.float64)

    def made(self, shape: tuple[int, ...], name: str) -> Any:
        return np.full(shape, np.nan)

    def launch(self, kernel: str, size: tuple[int, ...], local: tuple[int, ...], *args: Any) -> None:
        if kernel == "axpy":
            x, y, above, below, out, sign = args
            out[:] = x + float(sign) * above / below * y
        elif kernel == "direction":
            r, p, v, rho, before, alpha, omega, out = args
            out[:] = r + rho / before * (alpha / omega) * (p - omega * v)
        elif kernel == "difference":
            args[2][:] = args[0] - args[1]
        else:
            compute = {
                "matmul": np.matmul,
                "matvec": np.matmul,
                "dot_product": np.dot,
                "transpose": np.transpose,
                "add": np.add,
                "subtract": np.subtract,
            }[kernel]
            *inputs, out, _ = args
            out[:] = compute(*inputs)


@pytest.mark.parametrize("name", EQUATIONS)
def test_equations_are_computed(name: str) -> None:
    with Queue("cpu/2") as queue:
        runs = OnQueue(queue)
        found = EQUATIONS[name](Kernels(runs, N))  # type: ignore[arg-type]
        expected = EQUATIONS[name](Kernels(InNumPy(), N))  # type: ignore[arg-type]
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours.get(), theirs, atol=1e-3 * np.max(np.abs(theirs)))  # type: ignore[attr-defined]


@pytest.mark.parametrize("devices", ["native/2", "opencl/2"])
def test_stein_by_all_ways(devices: str, tmp_path: Path) -> None:
    settings = Settings(n=N, repeats=1, warm=2, policies=("balance", "mkmd"), equations=("Stein", "Jacobi"))
    figures = real.run(devices, settings, lambda text: None)
    assert [r["equation"] for r in figures["equations"]] == ["Stein", "Jacobi"]
    for row in figures["equations"]:
        assert row["in_order_speedup"] == 1.0
        assert row["balance_speedup"] == pytest.approx(row["in_order_ms"] / row["balance_ms"])
    real.write(figures, tmp_path / "new")
    page = (tmp_path / "new" / "mkmd_real.md").read_text()
    assert f"| Stein | {figures['equations'][0]['kernels']} | " in page
    assert json.loads((tmp_path / "new" / "mkmd_real.json").read_text())["summary"] == figures["summary"]
    assert figures["summary"]["least_speedup_mkmd"] <= figures["summary"]["geomean_speedup_mkmd"]


def test_wrong_results_are_told() -> None:
    right = [np.ones(4, np.float32)]
    real._compare("x", "y", right, right, exactly=True)
    with pytest.raises(ResultError, match="off by"):
        real._compare("x", "y", right, [np.array([1, 1, 1, 1.1], np.float32)], exactly=False)
    with pytest.raises(ResultError):
        real._compare("x", "y", right, [np.nextafter(right[0], np.float32(2))], exactly=True)
