"""Regions and hazards of random kernels against what the trees they were made from do when they are executed.

``KERNELS`` says how many (default 500; 20000 was run once); ``SEED`` where to begin.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from generator import Generated, conflicts, generate, repeatable, touched
from test_regions import facts_of, masks, ranges

PER_PROGRAM = 25
SEED = int(os.environ.get("SEED", "1"))
PROGRAMS = -(-int(os.environ.get("KERNELS", "500")) // PER_PROGRAM)


def check(case: Generated) -> tuple[int, int]:
    """How many regions were exact, and how many there were."""
    ndrange = case.launches[0]
    facts = facts_of(case, ndrange)
    exact_regions = regions = 0
    for dimension in range(len(ndrange.global_size)):
        for first, count in ranges(ndrange.groups[dimension]):
            *plain, atomic = touched(case, ndrange, dimension, first, count)
            for kind, happened in zip(("read", "write"), plain, strict=True):
                predicted, exact = masks(facts, ndrange, kind, dimension, first, count)
                for index in happened:
                    true = happened[index] | atomic[index]
                    groups = f"dimension {dimension}, groups [{first}, {first + count})"
                    where = f"{case.name}: {kind} of argument {index}, {groups}"
                    missing = np.flatnonzero(true & ~predicted[index])
                    assert not len(missing), f"outside of the region: {where}, bytes {missing[:8]}\n{case.text}"
                    if exact[index]:
                        extra = np.flatnonzero(predicted[index] & ~true)
                        assert not len(extra), f"said to be exact: {where}, bytes {extra[:8]}\n{case.text}"
                    regions += 1
                    exact_regions += exact[index]
        verdict = facts.split(dimension)
        assert not (verdict.splittable and conflicts(case, ndrange, dimension)), f"{case.name} {dimension}\n{case.text}"
    assert not (facts.repeat.idempotent and not repeatable(case, ndrange)), f"{case.name} repeats\n{case.text}"
    return exact_regions, regions


@pytest.mark.parametrize("seed", range(SEED, SEED + PROGRAMS))
def test_random_kernels(seed: int) -> None:
    found = [check(case) for case in generate(seed, PER_PROGRAM).cases]
    assert sum(exact for exact, _ in found) > sum(regions for _, regions in found) / 2
