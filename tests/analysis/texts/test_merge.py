"""Merge kernels of the whole corpus: they copy what a range of work-groups writes, and nothing else."""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np
import pytest

from manycl.analysis.reading import frontend
from manycl.analysis.reading.options import read_options
from manycl.analysis.texts.merge import MergeKernel, merge_kernel
from tests.analysis import truth
from tests.analysis.corpus_case import Buffer, Case, Launch, Local, Same
from tests.analysis.generated.generator import generate, touched
from tests.analysis.kernel_corpus import CASES

cl = truth.cl
IDS = [case.name for case in CASES]
ON_POCL = slice(None, None, 1 if os.environ.get("NIGHTLY") else 101)
ON_OCLGRIND = slice(None) if os.environ.get("NIGHTLY") else slice(None, None, 2)
# they store what some elements held before (the first by chance), which cannot be seen
WRITTEN_BACK = {"bfs_expand", "closure_union", "exchanged_neighbours", "transposed_in_place"}


@functools.lru_cache(maxsize=16)
def unit(source: str, options: tuple[str, ...]) -> Any:
    return frontend.load(source, "<source>", None, read_options(options))


@functools.cache  # one test looks at those of the whole corpus
def made(kernel: str, source: str, options: tuple[str, ...]) -> MergeKernel:
    return merge_kernel(unit(source, options), kernel, options)


def merging(case: Case) -> MergeKernel:
    return made(case.name, case.source, case.options)


def roots(ndrange: Launch, arguments: tuple[int, ...]) -> set[int]:
    """The buffers behind arguments."""
    found = {i: a.index if isinstance(a, Same) else i for i, a in enumerate(ndrange.arguments)}
    return {found[i] for i in arguments}


def copied(case: Case, merge: MergeKernel, ndrange: Launch, dimension: int, first: int, count: int, name: str) -> Any:
    """Per written buffer a bool per byte, and the result of the whole launch: what the merge kernel copied.

    Everything that it may not read is noise, and what it copies to differs from the source in every bit.
    """
    before = truth.contents(ndrange, 1)
    after = truth.run_range(case, ndrange, 0, 0, None, before, name)
    written, reads = roots(ndrange, merge.written), roots(ndrange, merge.reads)
    assert not written & reads
    noise = np.random.default_rng(3)
    start = {
        i: ~after[i] if i in written else data if i in reads else noise.integers(0, 256, data.size, np.uint8)
        for i, data in before.items()
    }
    _, context, queue = truth.device(name)
    flags = cl.mem_flags.COPY_HOST_PTR
    to = {i: cl.Buffer(context, flags, hostbuf=data) for i, data in start.items()}
    source = {i: cl.Buffer(context, flags, hostbuf=after[i]) for i in written}
    arguments: list[Any] = []
    for i, a in enumerate(ndrange.arguments):
        shared = a.index if isinstance(a, Same) else i
        is_buffer = isinstance(a, Buffer | Same)
        arguments.append(to[shared] if is_buffer else cl.LocalMemory(a.nbytes) if isinstance(a, Local) else a)
    for hidden in merge.hidden:
        (root,) = roots(ndrange, (hidden.argument,))
        arguments.append(source[root] if hidden.kind == "copy" else np.uint64(before[root].size))
    size, local = ndrange.global_size, ndrange.local_size
    at, groups = [0] * len(size), list(ndrange.groups)
    at[dimension], groups[dimension] = first, count
    part, offset, values = merge.ranges.arguments(size, local, ndrange.offset or (0,) * len(size), at, groups)
    arguments += [np.frombuffer(value, np.uint8) for value in values]
    compiled = truth._kernel(name, merge.source, merge.options, case.name)
    compiled.set_args(*arguments)
    cl.enqueue_nd_range_kernel(queue, compiled, part, local, offset)
    found = {}
    for i in to:
        end = np.empty_like(start[i])
        cl.enqueue_copy(queue, end, to[i])
        to[i].release()
        found[i] = end != start[i]
        assert not found[i].any() or i in written
        assert (end[found[i]] == after[i][found[i]]).all()
    return found


def written(
    case: Case, merge: MergeKernel, ndrange: Launch, dimension: int, first: int, count: int, name: str
) -> dict[int, np.ndarray]:
    """Per buffer a bool per byte: changed by the range, the inputs being those of the launch to merge."""
    changed = {i: np.zeros(b.nbytes, bool) for i, b in ndrange.buffers.items()}
    outputs = roots(ndrange, merge.written)
    for seed in (1, 2):
        start = {i: truth.contents(ndrange, seed if i in outputs else 1)[i] for i in changed}
        after = truth.run_range(case, ndrange, dimension, first, count, start, name)
        for i, mask in changed.items():
            mask |= after[i] != start[i]
    return changed


def check(case: Case, merge: MergeKernel, ndrange: Launch, dimension: int, name: str) -> None:
    groups = ndrange.groups[dimension]
    first, count = groups // 3, max(1, groups // 3)
    found = copied(case, merge, ndrange, dimension, first, count, name)
    for index, mask in written(case, merge, ndrange, dimension, first, count, name).items():
        where = f"argument {index}, dimension {dimension}"
        assert not (mask & ~found[index]).any(), f"not copied: {where}"
        if case.name not in WRITTEN_BACK:
            assert not (found[index] & ~truth.rounded(ndrange, index, mask)).any(), f"copied too much: {where}"


def check_case(case: Case, name: str) -> None:
    merge = merging(case)
    assert "cannot be edited" not in merge.reason
    if merge.reason:
        return
    for ndrange in case.launches:
        if roots(ndrange, merge.written) & roots(ndrange, merge.reads):
            continue
        for dimension in range(len(ndrange.global_size)):
            check(case, merge, ndrange, dimension, name)


@pytest.mark.parametrize("case", CASES[ON_OCLGRIND], ids=IDS[ON_OCLGRIND])
def test_exactly_what_a_range_writes_is_copied(case: Case, capfd: pytest.CaptureFixture[str]) -> None:
    check_case(case, truth.OCLGRIND)
    complaints = capfd.readouterr()
    assert "Invalid" not in complaints.err + complaints.out


@pytest.mark.parametrize("case", CASES[ON_POCL], ids=IDS[ON_POCL])
def test_exactly_what_a_range_writes_is_copied_on_pocl(case: Case) -> None:
    check_case(case, truth.POCL)


@pytest.mark.parametrize("seed", range(40 if os.environ.get("NIGHTLY") else 2))
def test_random_kernels(seed: int) -> None:
    """Against the generator's own knowledge of what each work-item writes."""
    for case in generate(seed).cases:
        merge, ndrange = merging(case), case.launches[0]
        assert not merge.reason or "atomic" in merge.reason
        if merge.reason or roots(ndrange, merge.written) & roots(ndrange, merge.reads):
            continue
        for dimension, groups in enumerate(ndrange.groups):
            part = groups // 3, max(1, groups // 3)
            found = copied(case, merge, ndrange, dimension, *part, truth.OCLGRIND)
            for index, mask in touched(case, ndrange, dimension, *part)[1].items():
                assert (found[index] == mask).all(), f"{case.name}, argument {index}, dimension {dimension}"


def test_few_kernels_of_the_corpus_are_refused() -> None:
    """For atomics, for steering by what is written, and for addresses from nowhere."""
    refused = {case.name: reason for case in CASES if (reason := merging(case).reason)}
    expected = ("atomic operation", "which the kernel writes", "stores where it is not known")
    assert [name for name, reason in refused.items() if not any(words in reason for words in expected)] == []
    assert len(refused) < 0.1 * len(CASES)
