"""Launches taken apart: sub-kernels on devices of their own, with only the bytes that the analysis says they read,
put together from the bytes that it says they write, give the bits of the whole launch."""

from __future__ import annotations

import itertools
import os
import random
from typing import Any

import numpy as np
import pytest

from manycl.analysis import parse_program
from manycl.analysis.launched import LaunchFacts
from manycl.analysis.service import sub_kernel
from manycl.group_range import GroupRange
from tests.analysis import truth
from tests.analysis.corpus_case import Buffer, Case, Local, Same
from tests.analysis.corpus_case import Launch as CaseLaunch
from tests.analysis.regions.test_regions import IDS, JUDGED_BY_POCL, LAUNCHES, facts_of

cl = pytest.importorskip("pyopencl")
EVERYTHING = bool(os.environ.get("NIGHTLY"))
SAMPLE = slice(None) if EVERYTHING else slice(None, None, 3)
ON_POCL = slice(None) if EVERYTHING else slice(None, None, 23)


def part(case: Case, ndrange: CaseLaunch, dimension: int, first: int, count: int, contents: truth.Contents, name: str):
    """The buffers after groups [first, first + count) ran as a sub-kernel on them."""
    machine = truth.Machine(case, ndrange, contents, name)
    sub = sub_kernel(parse_program(case.source, options=case.options), case.name)
    assert not sub.reason
    firsts, groups = [0] * len(ndrange.global_size), list(ndrange.groups)
    firsts[dimension], groups[dimension] = first, count
    offset = ndrange.offset or (0,) * len(ndrange.global_size)
    size, start, hidden = sub.arguments(ndrange.global_size, ndrange.local_size, offset, firsts, groups)
    kernel = truth._kernel(name, sub.source, tuple(sub.options), case.name)
    given: list[Any] = []
    for index, argument in enumerate(ndrange.arguments):
        if isinstance(argument, Buffer | Same):
            given.append(machine.buffers[argument.index if isinstance(argument, Same) else index])
        else:
            given.append(cl.LocalMemory(argument.nbytes) if isinstance(argument, Local) else argument)
    kernel.set_args(*given, *(np.frombuffer(data, np.uint8) for data in hidden))
    cl.enqueue_nd_range_kernel(machine.queue, kernel, size, ndrange.local_size, start if any(start) else None)
    return machine.after()


def cuts(groups: int, seed: int) -> list[tuple[int, int]]:
    """Two to four ranges that cover all groups, in some order."""
    chance = random.Random(seed)
    inner = chance.sample(range(1, groups), min(groups - 1, chance.randint(1, 3)))
    ranges = [(a, b - a) for a, b in itertools.pairwise([0, *sorted(inner), groups])]
    chance.shuffle(ranges)
    return ranges


def region(facts: LaunchFacts, ndrange: CaseLaunch, kind: str, dimension: int, first: int, count: int):
    """Per buffer a bool per byte: what the range reads (or writes), by any of the arguments that share it."""
    found = {i: np.zeros(b.nbytes, bool) for i, b in ndrange.buffers.items()}
    for index in facts.regions.buffers:
        root = facts.regions.memory(index)
        found[root] |= facts.region(index, kind, GroupRange(dimension, first, count)).mask(ndrange.buffers[root].nbytes)
    return found


def taken_apart(case: Case, ndrange: CaseLaunch, name: str) -> None:
    facts = facts_of(case, ndrange)
    start = truth.contents(ndrange, 1)
    whole: truth.Contents | None = None
    for dimension, groups in enumerate(ndrange.groups):
        if groups < 2 or not facts.split(dimension).splittable:
            continue
        if whole is None:
            whole = truth.run_range(case, ndrange, 0, 0, None, start, name)
        result = {i: data.copy() for i, data in start.items()}
        parts = cuts(groups, 31 * dimension + len(case.name))
        written = [region(facts, ndrange, "write", dimension, *each) for each in parts]
        shared = {i: sum(each[i].astype(int) for each in written) > 1 for i in start}
        for each, writes in zip(parts, written, strict=True):
            reads = region(facts, ndrange, "read", dimension, *each)
            # what may be written but need not be must come there first; everything else is not there
            there = {i: truth._poisoned(ndrange, i, data, reads[i] | writes[i], 77) for i, data in start.items()}
            after = part(case, ndrange, dimension, *each, there, name)
            for index, mask in writes.items():
                # regions that are larger than what is written may overlap although that does not: there, by difference
                taken = mask & ~(shared[index] & (after[index] == start[index]))
                result[index][taken] = after[index][taken]
        for index, data in whole.items():
            wrong = np.flatnonzero(result[index] != data)
            assert not len(wrong), f"argument {index}, dimension {dimension}: bytes {wrong[:8]}"


@pytest.mark.parametrize(("case", "ndrange"), LAUNCHES[SAMPLE], ids=IDS[SAMPLE])
def test_parts_on_devices_of_their_own(case: Case, ndrange: CaseLaunch) -> None:
    taken_apart(case, ndrange, truth.POCL if case.name in JUDGED_BY_POCL else truth.OCLGRIND)


@pytest.mark.parametrize(("case", "ndrange"), LAUNCHES[ON_POCL], ids=IDS[ON_POCL])
def test_parts_on_pocl(case: Case, ndrange: CaseLaunch) -> None:
    taken_apart(case, ndrange, truth.POCL)
