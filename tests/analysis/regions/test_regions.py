"""Regions and hazards of every corpus kernel against what the kernels really do, range by range."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pytest

from manycl.analysis import parse_program, worker
from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.launched import LaunchFacts
from manycl.analysis.reading import frontend, kernels
from manycl.analysis.reading.options import read_options
from manycl.analysis.regions import regions
from manycl.analysis.regions.regions import Footprint, Regions
from manycl.analysis.service import launched
from manycl.group_range import GroupRange
from tests.analysis import truth
from tests.analysis.corpus_case import Case
from tests.analysis.corpus_case import Launch as CaseLaunch
from tests.analysis.corpus_launch import launch_of
from tests.analysis.kernel_corpus import CASES

LAUNCHES = [(case, ndrange) for case in CASES for ndrange in case.launches]
# Oclgrind takes the default of a switch in a loop whose first case continues; PoCL and a reading of the source agree
JUDGED_BY_POCL = {"switch_in_loop"}
IDS = [f"{case.name}-{case.launches.index(ndrange)}" for case, ndrange in LAUNCHES]


@functools.lru_cache(maxsize=16)
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
        region = facts.region(index, kind, GroupRange(dimension, first, count))
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


def judge(case: Case) -> str:
    return truth.POCL if case.name in JUDGED_BY_POCL else truth.OCLGRIND


def check(case: Case, ndrange: CaseLaunch) -> None:
    check_launch(case, ndrange, judge(case))


@pytest.mark.parametrize(("case", "ndrange"), LAUNCHES, ids=IDS)
def test_regions_contain_what_happens(case: Case, ndrange: CaseLaunch) -> None:
    """And something happens: no expectation is about a kernel that does nothing."""
    check(case, ndrange)
    if ndrange is case.launches[0] and case.writes != "nothing":
        everything = truth.written(case, ndrange, 0, 0, ndrange.groups[0], judge(case), seeds=1)
        assert any(mask.any() for mask in everything.values())


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


TRIANGLE = """
kernel void triangle(global const float *data, global float *out, int m, int n) {
    int i = get_global_id(0);
    for (int j = i; j < m; j++) {
        float sum = 0.0f;
        for (int k = 0; k < n; k++) sum += data[k * m + i] * data[k * m + j];
        out[i * m + j] = sum;
        out[j * m + i] = sum;
    }
}
"""


@pytest.mark.parametrize("brief", [regions.BRIEF, 0])
def test_there_may_be_any_number_of_brief_questions(brief: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Divisions are learned, and each one asks what other ranges touch."""
    monkeypatch.setattr(regions, "MOST_SPENT", 100_000)
    monkeypatch.setattr(regions, "BRIEF", brief)
    monkeypatch.setattr(worker, "_launches", {})
    program, size = parse_program(TRIANGLE), 2048 * 2048 * 4
    launch = KnownLaunch(
        (2048,), (1,), (), {2: np.int32(2048).tobytes(), 3: np.int32(2048).tobytes()}, {0: size, 1: size}
    )
    inexact = 0
    for cut in range(1, 2048, 64):
        for first, count in ((0, cut), (cut, 2048 - cut)):
            for argument, kind in ((0, "read"), (1, "write")):
                asked = ("region", (argument, kind, GroupRange(0, first, count)))
                kernel = program.kernels["triangle"]
                answer = worker.about_launch(worker.LaunchQuestion(program.tree, kernel, launch, *asked))
                assert isinstance(answer.result, Footprint)
                inexact += not answer.result.exact
    assert (inexact == 0) == (brief > 0)
