"""The benchmark of first guesses fits weights without what it judges them by, and gives the model its own back."""

from __future__ import annotations

import importlib
import random
from types import ModuleType
from typing import Any

import pytest

from manycl.analysis.costs.cost import Work
from manycl.machine import NATIVE, Device
from manycl.model import prior
from tests import ROOT

DEVICE = Device("cpu0", "cpu", platform=NATIVE, flops=1e9, bandwidth=1e15, launch_overhead=0.0)
TRUE = {"float": 2.0, "load": 4.0, "special": 16.0}
"""What operations really take; no other kind occurs."""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("native_kernels.held_out")


def kernels(module: ModuleType, slower: dict[str, float]) -> list[Any]:
    """Of eight benchmarks, some of which take longer than their operations tell."""
    chance, found = random.Random(4), []
    for number in range(24):
        operations = {kind: float(chance.randint(0, 40) * 1000) for kind in TRUE}
        operations["load"] += 1000.0
        benchmark = f"b{number % 8}"
        seconds = sum(n * TRUE[kind] for kind, n in operations.items()) / DEVICE.flops
        work = Work(1 << 20, 1 << 14, operations=operations, exact=True)
        found.append(module.Judged(benchmark, work, DEVICE, False, seconds * slower.get(benchmark, 1.0)))
    return found


def test_weights_that_explain_everything_are_found(module: ModuleType) -> None:
    own = dict(prior._WEIGHTS[NATIVE])
    for ratios in (module.refitted(kernels(module, {})), module.held_out(kernels(module, {}))):
        assert module.within(ratios, 1.5) == 1.0
    assert prior._WEIGHTS[NATIVE] == own


def test_what_a_benchmark_takes_has_no_part_in_its_guesses(module: ModuleType) -> None:
    plain, slowed = kernels(module, {}), kernels(module, {"b3": 7.0})
    guesses = [
        [
            ratio * kernel.seconds
            for ratio, kernel in zip(module.held_out(of), of, strict=True)
            if kernel.benchmark == "b3"
        ]
        for of in (plain, slowed)
    ]
    assert guesses[0] == pytest.approx(guesses[1], rel=1e-9)
    assert module.within(module.held_out(slowed), 2) == 21 / 24


def test_shares(module: ModuleType) -> None:
    assert module.within([0.5, 2.0, 0.49, 2.1], 2) == 0.5
