"""Memory that processes share: arrays have parts of it that nobody else has, and give them back."""

from __future__ import annotations

import gc
import itertools
import mmap
import os
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.drivers.addresses import aligned
from manycl.drivers.shared import Arena, shared_memory
from manycl.run.data.host_memory import HostMemory

PAGE = mmap.PAGESIZE


@settings(max_examples=60)
@given(st.lists(st.one_of(st.integers(1, 5 * PAGE), st.none()), max_size=40), st.randoms(use_true_random=False))
def test_arrays_have_parts_of_their_own(steps: list[int | None], rng: random.Random) -> None:
    """Numbers take so many bytes, None gives one back; each array keeps what was written to it."""
    memory = Arena(32 * PAGE)
    held: list[tuple[int, np.ndarray]] = []
    for number, step in enumerate(steps):
        if step is None:
            if held:
                held.pop(rng.randrange(len(held)))
            continue
        try:
            data = memory.take(step)
        except MemoryError:
            pages = -(-step // PAGE)
            assert max((size for _, size in memory.gaps()), default=0) < pages * PAGE
            continue
        assert len(data) == step
        assert data.ctypes.data % PAGE == 0
        data[:] = number % 256
        held.append((number % 256, data))
        del data
    assert all((kept == value).all() for value, kept in held)
    pages = sum(-(-len(kept) // PAGE) for _, kept in held)
    gaps = memory.gaps()
    assert memory.used == pages * PAGE == memory.nbytes - sum(size for _, size in gaps)
    assert all(a + size < b for (a, size), (b, _) in itertools.pairwise(gaps)), "neighbours are one gap"
    held.clear()
    assert memory.gaps() == [(0, memory.nbytes)]
    os.close(memory.descriptor)


def test_what_nobody_has_takes_no_memory() -> None:
    memory = Arena(1 << 30)
    data = memory.take(1 << 22)
    data[:] = 7
    assert os.fstat(memory.descriptor).st_blocks * 512 >= 1 << 22
    view = data[100:200]
    del data
    assert (view == 7).all()
    del view
    gc.collect()
    assert os.fstat(memory.descriptor).st_blocks == 0
    os.close(memory.descriptor)


def test_another_mapping_has_the_same_bytes() -> None:
    memory = Arena(1 << 20)
    data = memory.take(3 * PAGE)
    there = mmap.mmap(memory.descriptor, memory.nbytes)
    place = memory.place(data[5:])
    assert place is not None
    data[5:9] = (1, 2, 3, 4)
    assert there[place : place + 4] == b"\1\2\3\4"
    there[place] = 9
    assert data[5] == 9
    assert memory.place(np.zeros(8, np.uint8)) is None
    there.close()
    os.close(memory.descriptor)


def test_whether_somebody_looks_at_it_is_told_as_of_other_memory() -> None:
    for memory in (HostMemory(aligned(100)), HostMemory(shared_memory().take(100))):
        assert memory.views() == 0
        other = memory.data[:10]
        assert memory.views() == 1
        del other
        assert memory.views() == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_that_was_forked_takes_nothing_away() -> None:
    memory = Arena(1 << 20)
    data = memory.take(2 * PAGE)
    data[:] = 5
    child = os.fork()
    if child == 0:
        del data  # the last view, there
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (data == 5).all()
    os.close(memory.descriptor)
