"""Device-Hopping's benchmarks as loops: the results of NumPy and hashlib, on one device and two."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import manycl as mc
from manycl_bench.hopping.data import CASES
from manycl_bench.hopping.loops import LOOPS
from manycl_bench.hopping.model import TABLE_3


@pytest.fixture(scope="module")
def queue() -> Iterator[mc.Queue]:
    with mc.Queue("cpu/2", policy="balance") as queue:
        yield queue


@pytest.mark.parametrize("name", TABLE_3)
def test_results_are_the_references(queue: mc.Queue, name: str) -> None:
    for size in (1500, 4096):
        case = CASES[name](size)
        given = {k: queue.array(v, name=k) if isinstance(v, np.ndarray) else v for k, v in case.given.items()}
        result = LOOPS[name](queue, **given)
        found = {k: np.asarray(v.get() if isinstance(v, mc.Array) else v) for k, v in given.items()}
        if isinstance(result, mc.Array):
            found |= dict.fromkeys(case.expected, result.get())
        elif not isinstance(result, mc.Event):
            found |= dict.fromkeys(case.expected, result)
        assert case.check(found) == []
        for key in case.expected:
            broken = np.array(found[key])
            broken.reshape(-1)[-1] += 1 + abs(broken.reshape(-1)[-1])
            assert case.check({**found, key: broken}) == [key]


def test_numpys_arrays_do_as_well() -> None:
    for name in ("GEMM", "Reduction", "B+Tree Find Range"):
        case = CASES[name](900)
        with mc.Queue("cpu/2#0") as alone:
            result = LOOPS[name](alone, **case.given)
        found = case.given if result is None else dict.fromkeys(case.expected, result)
        assert case.check(found) == []
