"""Sub-kernels: a launch put together from any ranges of its work-groups gives the bits of the whole launch."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manycl.analysis import parse_program
from manycl.analysis.service import sub_kernel
from manycl.analysis.texts.rewrite import SubKernel
from tests.analysis.texts import rewrite_corpus as corpus
from tests.analysis.truth import OCLGRIND, POCL, UNOPTIMISED, device

cl = pytest.importorskip("pyopencl")

LAUNCHES = {  # global size, local size, offset
    1: ((12,), (3,), (5,)),
    2: ((8, 6), (2, 3), (3, 7)),
    3: ((6, 4, 4), (2, 2, 1), (0, 9, 2)),
}
Ranges = Sequence[tuple[tuple[int, ...], tuple[int, ...]]]  # (first group, groups)


@functools.lru_cache(maxsize=16)
def built(name: str, source: str, options: tuple[str, ...]) -> Any:
    found, context, _ = device(name)
    return cl.Program(context, source).build(["-w", *UNOPTIMISED[name], *options], devices=[found])


@functools.lru_cache(maxsize=16)
def function(name: str, source: str, options: tuple[str, ...], kernel: str) -> Any:
    return cl.Kernel(built(name, source, options), kernel)


@functools.lru_cache(maxsize=16)
def edited(kernel: str) -> tuple[str, tuple[str, ...], SubKernel]:
    """The kernel's program, its build options and its sub-kernel."""
    source, options = (corpus.ASKING_NEW, ("-cl-std=CL3.0",)) if kernel in corpus.NEW else (corpus.ASKING, ())
    return source, options, sub_kernel(parse_program(source, options=options), kernel)


def inputs() -> np.ndarray:
    return np.random.default_rng(7).integers(0, 1000, corpus.SLOTS).astype(np.int32)


class Buffers:
    """Output full of sentinels, and input."""

    def __init__(self, name: str) -> None:
        _, context, self.queue = device(name)
        flags = cl.mem_flags.COPY_HOST_PTR
        self.out = cl.Buffer(context, flags, hostbuf=np.full(corpus.SLOTS, 0xABCDEF0123, np.uint64))
        self.input = cl.Buffer(context, flags, hostbuf=inputs())

    def result(self) -> np.ndarray:
        found = np.empty(corpus.SLOTS, np.uint64)
        cl.enqueue_copy(self.queue, found, self.out)
        self.out.release()
        self.input.release()
        return found


@functools.cache
def whole(name: str, kernel: str, dimensions: int) -> np.ndarray:
    """What the unchanged kernel's whole launch writes."""
    source, options, _ = edited(kernel)
    buffers = Buffers(name)
    original = function(name, source, options, kernel)
    size, local, offset = LAUNCHES[dimensions]
    cl.enqueue_nd_range_kernel(_set(original, buffers), *_range(buffers, original, size, local, offset))
    return buffers.result()


def _set(kernel: Any, buffers: Buffers, hidden: Sequence[bytes] = ()) -> Any:
    for index, value in enumerate((buffers.out, buffers.input, *hidden)):
        kernel.set_arg(index, np.frombuffer(value, np.uint8) if isinstance(value, bytes) else value)
    return buffers.queue


def _range(buffers: Buffers, kernel: Any, size: Any, local: Any, offset: Any) -> tuple[Any, ...]:
    return kernel, size, local, offset


def pieces(name: str, kernel: str, dimensions: int, ranges: Ranges) -> np.ndarray:
    """What the ranges write, one after another."""
    _, _, sub = edited(kernel)
    assert not sub.reason
    rewritten = function(name, sub.source, sub.options, kernel)
    buffers = Buffers(name)
    size, local, offset = LAUNCHES[dimensions]
    for first, groups in ranges:
        part, start, hidden = sub.arguments(size, local, offset, first, groups)
        assert len(hidden) == len(sub.hidden)
        cl.enqueue_nd_range_kernel(_set(rewritten, buffers, hidden), rewritten, part, local, start)
    return buffers.result()


def grid(dimensions: int) -> tuple[int, ...]:
    size, local, _ = LAUNCHES[dimensions]
    return tuple(s // n for s, n in zip(size, local, strict=True))


def one_by_one(dimensions: int) -> Ranges:
    return [(tuple(index), (1,) * dimensions) for index in np.ndindex(grid(dimensions))][::-1]


@st.composite
def partitions(draw: st.DrawFn) -> tuple[int, Ranges]:
    """A number of dimensions, and its groups cut into ranges, in any order."""
    dimensions = draw(st.integers(1, 3))
    parts = [((0,) * dimensions, grid(dimensions))]
    for _ in range(draw(st.integers(0, 5))):
        first, groups = parts.pop(draw(st.integers(0, len(parts) - 1)))
        d = draw(st.integers(0, dimensions - 1))
        cut = draw(st.integers(0, groups[d]))
        for at, count in ((0, cut), (cut, groups[d] - cut)):
            if count:
                begin = (*first[:d], first[d] + at, *first[d + 1 :])
                parts.append((begin, (*groups[:d], count, *groups[d + 1 :])))
    return dimensions, draw(st.permutations(parts))


def check(name: str, kernel: str, dimensions: int, ranges: Ranges) -> None:
    found, expected = pieces(name, kernel, dimensions, ranges), whole(name, kernel, dimensions)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("kernel", [*corpus.OLD, *corpus.PLAIN])
def test_whole_and_single_groups_on_oclgrind(kernel: str) -> None:
    for dimensions in (1, 2, 3):
        check(OCLGRIND, kernel, dimensions, [((0,) * dimensions, grid(dimensions))])
    check(OCLGRIND, kernel, 2, one_by_one(2))


@pytest.mark.parametrize("kernel", [*corpus.OLD[::3], *corpus.NEW])
def test_whole_and_single_groups_on_pocl(kernel: str) -> None:
    for dimensions in (1, 2, 3):
        check(POCL, kernel, dimensions, [((0,) * dimensions, grid(dimensions))])
        check(POCL, kernel, dimensions, one_by_one(dimensions))


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([*corpus.OLD, *corpus.PLAIN]), partitions())
def test_any_partition_on_oclgrind(kernel: str, partition: tuple[int, Ranges]) -> None:
    check(OCLGRIND, kernel, *partition)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([*corpus.OLD[::3], *corpus.NEW]), partitions())
def test_any_partition_on_pocl(kernel: str, partition: tuple[int, Ranges]) -> None:
    check(POCL, kernel, *partition)


def test_the_whole_launch_is_not_what_ranges_give_without_the_rewriting() -> None:
    """The other side: with the original kernel and an offset alone, most of these kernels go wrong."""
    wrong = 0
    for kernel in corpus.OLD:
        source, options, sub = edited(kernel)
        buffers = Buffers(OCLGRIND)
        original = function(OCLGRIND, source, options, kernel)
        size, local, offset = LAUNCHES[2]
        for first, groups in one_by_one(2):
            part, start, _ = sub.arguments(size, local, offset, first, groups)
            cl.enqueue_nd_range_kernel(_set(original, buffers), original, part, local, start)
        wrong += not np.array_equal(buffers.result(), whole(OCLGRIND, kernel, 2))
    assert wrong >= len(corpus.OLD) - 8


@pytest.mark.parametrize("kernel", corpus.PLAIN)
def test_kernels_that_ask_for_nothing_stay_as_they_are(kernel: str) -> None:
    source, options, sub = edited(kernel)
    assert (sub.source, sub.options, sub.hidden, sub.edited) == (source, options, (), False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ulong far(uint d); kernel void k(global ulong *o) { o[0] = far(0); }", "line 1 calls far, whose body is not"),
        (
            'uint id() { uint x; __asm__("mov %%ctaid.x, %0" : "=r"(x)); return x; }\n'
            "kernel void k(global ulong *o) { o[id()] = 1; }",
            "id in line 1 has inline assembly",
        ),
        (
            "size_t get_group_id(uint d);\nkernel void k(global ulong *o) { o[get_group_id(0)] = 1; }",
            "line 2 uses a decl",
        ),
    ],
)
def test_kernels_that_cannot_be_run_in_ranges(text: str, reason: str) -> None:
    sub = sub_kernel(parse_program(text), "k")
    assert sub.reason.startswith(reason)
    assert sub.source == ""


@pytest.mark.parametrize("name", [OCLGRIND, POCL])
def test_another_kernel_that_cannot_be_run_in_ranges_is_no_hindrance(name: str) -> None:
    text = """ulong far(uint d); ulong farther(uint d) { return far(d) + get_group_id(d); }
        kernel void other(global ulong *o) { o[0] = farther(0); if (o[1]) { o[2] = 3; } }
        kernel void k(global ulong *o) { o[get_global_id(0)] = get_group_id(0); }"""
    sub = sub_kernel(parse_program(text), "k")
    assert sub.hidden == ("first_group",)
    _, context, queue = device(name)
    compiled = function(name, sub.source, sub.options, "k")
    out = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.full(8, 9, np.uint64))
    part, start, hidden = sub.arguments((8,), (2,), (0,), (1,), (2,))
    compiled.set_args(out, np.frombuffer(hidden[0], np.uint8))
    cl.enqueue_nd_range_kernel(queue, compiled, part, (2,), start)
    found = np.empty(8, np.uint64)
    cl.enqueue_copy(queue, found, out)
    assert found.tolist() == [9, 9, 1, 1, 2, 2, 9, 9]


def test_helpers_that_no_kernel_reaches_are_edited_too() -> None:
    source = """int first(int x) { return x + get_num_groups(0); }
    int unused(int x) { return first(x); }
    kernel void k(global int *d) { d[get_group_id(0)] = first(1); }"""
    found = sub_kernel(parse_program(source), "k")
    assert not found.reason
    parse_program(found.source)  # it compiles
