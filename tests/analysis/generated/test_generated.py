"""Regions and hazards of random kernels against what they do: the trees that they were made from are executed, and
their ranges of work-groups run one at a time on Oclgrind (all of them) and PoCL (some).

``KERNELS`` says how many (default 75; 20000 were run once); ``SEED`` where to begin.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.analysis import truth
from tests.analysis.generated.generator import Generated, conflicts, generate, in_small_programs, repeatable, touched
from tests.analysis.generated.own_process import own_process
from tests.analysis.regions.test_regions import check_launch, facts_of, masks, ranges
from tests.analysis.texts.test_taken_apart import taken_apart

PER_PROGRAM = 25
PER_BUILD = 3  # of a program's kernels, as Oclgrind compiles all of them for each launch
PER_PROCESS = 4  # on PoCL, which compiles slowly
SEED = int(os.environ.get("SEED", "1"))
PROGRAMS = -(-int(os.environ.get("KERNELS", "75")) // PER_PROGRAM)


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


def check_runs(case: Generated, name: str, *, apart: bool) -> None:
    """With sentinels where it writes and poison where it does not read; the tree has told what is exact."""
    check_launch(case, case.launches[0], name, exactness=False)
    if apart:
        taken_apart(case, case.launches[0], name)


def check_on_pocl(seed: int) -> None:
    del truth.UNOPTIMISED[truth.POCL]
    os.environ["POCL_MAX_PTHREAD_COUNT"] = "1"  # groups that race do so in the same way every time
    for case in generate(seed, PER_PROCESS).cases:
        check_runs(case, truth.POCL, apart=True)


@pytest.mark.parametrize("seed", range(SEED, SEED + PROGRAMS))
def test_random_kernels(seed: int) -> None:
    cases = in_small_programs(seed, PER_PROGRAM, PER_BUILD)
    found = [check(case) for case in cases]
    assert sum(exact for exact, _ in found) > sum(regions for _, regions in found) / 2
    for number, case in enumerate(cases):
        check_runs(case, truth.OCLGRIND, apart=number % 5 == 0)


@pytest.mark.parametrize(("seed", "number"), [(91520, 2)])
def test_once_wrong(seed: int, number: int) -> None:
    """Found among many more kernels than are tried each time: isl is wrong about the least element of a set."""
    check(generate(seed, number + 1).cases[number])


@pytest.mark.parametrize("seed", range(SEED + 100000, SEED + 100000 + -(-PROGRAMS // 3)))
def test_random_kernels_on_pocl(seed: int) -> None:
    """In a process of their own: now and then PoCL's compiler crashes or does not come to an end."""
    truth.device(truth.POCL)
    status = own_process(check_on_pocl, seed)
    if status is None or status < 0:
        pytest.skip(f"PoCL crashed or hung: {status}")
    assert status == 0
