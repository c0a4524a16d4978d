"""Regions and hazards of every corpus kernel against what the kernels really do, range by range."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pytest
import truth
from corpus_case import Case
from corpus_case import Launch as CaseLaunch
from corpus_launch import launch_of
from kernel_corpus import CASES

from manycl.analysis import frontend, kernels, parse_program
from manycl.analysis.launched import LaunchFacts
from manycl.analysis.options import read_options
from manycl.analysis.regions import Regions
from manycl.analysis.service import launched

LAUNCHES = [(case, ndrange) for case in CASES for ndrange in case.launches]
# Oclgrind takes the default of a switch in a loop whose first case continues; PoCL and a reading of the source agree
JUDGED_BY_POCL = {"switch_in_loop"}
IDS = [f"{case.name}-{case.launches.index(ndrange)}" for case, ndrange in LAUNCHES]


@functools.cache
def _program(source: str, options: tuple[str, ...]):
    unit = frontend.load(source, "<source>", None, read_options(options))
    return unit, kernels.kernel_facts(unit)


def facts_of(case: Case, ndrange: CaseLaunch) -> LaunchFacts:
    return launched(parse_program(case.source, options=case.options), case.name, launch_of(ndrange))


def regions_of(case: Case, ndrange: CaseLaunch) -> Regions:
    """With isl in this process."""
    unit, facts = _program(case.source, case.options)
    return LaunchFacts(unit, facts[case.name], launch_of(ndrange)).regions


def ranges(groups: int) -> Iterator[tuple[int, int]]:
    """A few ranges of work-groups: the first, the last, a middle part, all but one."""
    found = {(0, 1), (groups - 1, 1), (groups // 3, max(1, groups // 3)), (0, groups)}
    return iter(sorted(found))


def masks(facts: LaunchFacts, ndrange: CaseLaunch, kind: str, dimension: int, first: int, count: int):
    """Per buffer a bool per byte, of all arguments that share it."""
    found = {i: np.zeros(b.nbytes, bool) for i, b in ndrange.buffers.items()}
    exact = dict.fromkeys(found, True)
    for index in facts.regions.buffers:
        root = facts.regions.memory(index)
        region = facts.region(index, kind, dimension, first, count)
        found[root] |= region.mask(ndrange.buffers[root].nbytes)
        exact[root] &= region.exact
    return found, exact


def check_launch(case: Case, ndrange: CaseLaunch, name: str = truth.OCLGRIND, *, exactness: bool = True) -> None:
    facts = facts_of(case, ndrange)
    for dimension in range(len(ndrange.global_size)):
        for first, count in ranges(ndrange.groups[dimension]):
            predicted, exact = masks(facts, ndrange, "write", dimension, first, count)
            reads, _ = masks(facts, ndrange, "read", dimension, first, count)
            happened = truth.written(case, ndrange, dimension, first, count, name)
            for index, mask in happened.items():
                where = f"argument {index}, dimension {dimension}, groups [{first}, {first + count})"
                assert not (mask & ~predicted[index]).any(), f"written outside of the region: {where}"
                if exactness and exact[index]:
                    whole = truth.rounded(ndrange, index, mask)
                    said = truth.rounded(ndrange, index, predicted[index])
                    again = said & reads[index]  # what is read may be written back as it was
                    assert (said & ~whole <= again).all(), f"said to be exact, but larger: {where}"
            leaks = truth.reads_leak(case, ndrange, dimension, first, count, reads, name)
            assert not leaks, f"arguments {leaks} are read elsewhere: {dimension} [{first}, {first + count})"


def check(case: Case, ndrange: CaseLaunch) -> None:
    check_launch(case, ndrange, truth.POCL if case.name in JUDGED_BY_POCL else truth.OCLGRIND)


@pytest.mark.parametrize(("case", "ndrange"), LAUNCHES, ids=IDS)
def test_regions_contain_what_happens(case: Case, ndrange: CaseLaunch) -> None:
    check(case, ndrange)


@pytest.mark.parametrize(("case", "ndrange"), LAUNCHES, ids=IDS)
def test_hazards(case: Case, ndrange: CaseLaunch) -> None:
    """Nothing is called splittable or repeatable that a person found not to be; a reason goes with every no."""
    facts = facts_of(case, ndrange)
    for dimension, expected in enumerate(case.split):
        verdict = facts.split(dimension)
        assert expected or not verdict.splittable, f"dimension {dimension}"
        assert verdict.splittable == (not verdict.reasons and not verdict.merges)
    verdict = facts.repeat
    assert case.idempotent or not verdict.idempotent
    for index in facts.regions.buffers:
        for kind in ("read", "write"):
            region = facts.region(index, kind)
            assert region.exact or region.reason
            assert "isl:" not in region.reason
