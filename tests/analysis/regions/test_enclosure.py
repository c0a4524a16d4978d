"""What intervals enclose, against what kernels touch: random ones, whose trees are executed, and the corpus.

``KERNELS`` says how many random ones (default 100; 5000 were tried once); ``SEED`` where to begin.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from manycl.analysis import parse_program, service
from manycl.analysis.facts import KernelFacts
from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.regions.enclosure import Enclosure, launch_values
from manycl.analysis.service import launched
from tests.analysis.corpus_launch import launch_of
from tests.analysis.generated.generator import Generated, generate, touched_by
from tests.analysis.kernel_corpus import CASES

SEED = int(os.environ.get("SEED", "1"))
PROGRAMS = -(-int(os.environ.get("KERNELS", "100")) // 25)


def keeps(enclosure: Enclosure, facts: KernelFacts, known: KnownLaunch, sizes: dict[int, int]) -> bool:
    arguments = [known.scalars.get(a.index) for a in facts.arguments]
    return enclosure.keeps(launch_values(facts, (known.global_size, known.local_size, known.offset), arguments), sizes)


def whatever_is_in_buffers(enclosure: Enclosure) -> Enclosure:
    """The same, but that it has to hold for all contents of buffers."""
    origins = {name: replace(origin, argument=-1) for name, origin in enclosure.origins.items()}
    return replace(enclosure, origins=origins)


def ends(case: Generated) -> dict[int, int]:
    """Behind the last byte that is touched, by argument."""
    found = touched_by(case, case.launches[0])
    masks = found.masks(np.ones(found.state.count, bool))
    return {
        i: max(int(np.flatnonzero(kind[i])[-1]) + 1 if kind[i].any() else 0 for kind in masks.values())
        for i in case.launches[0].buffers
    }


@pytest.mark.parametrize("seed", range(SEED, SEED + PROGRAMS))
def test_no_memory_that_is_too_small_is_kept_to(seed: int) -> None:
    met: Counter[bool] = Counter()
    for case in generate(seed, 25).cases:
        program = parse_program(case.source)
        enclosure = service.enclosed(program, case.name)
        if enclosure is None:
            continue
        enclosure, known = whatever_is_in_buffers(enclosure), launch_of(case.launches[0])
        facts = program.kernels[case.name]
        room = dict.fromkeys(known.sizes, 1 << 40)
        for index, end in ends(case).items():
            same = {i for i in known.sizes if known.same.get(i, i) == index}
            if end:
                assert not keeps(enclosure, facts, known, room | dict.fromkeys(same, end - 1)), (case.name, index, end)
                met[keeps(enclosure, facts, known, room | dict.fromkeys(same, end))] += 1
    assert met[True] > met[False] / 4, "some are enclosed by just what they touch"


def test_what_leaves_for_certain_is_not_kept_to() -> None:
    """Each buffer of each launch of the corpus a little too small: what isl is certain of, intervals must not deny. It
    is asked where they do: that takes milliseconds each time."""
    refused = 0
    for case in CASES:
        program = parse_program(case.source, options=case.options)
        enclosure = service.enclosed(program, case.name)
        for ndrange in case.launches if enclosure is not None else ():
            known, facts = launch_of(ndrange), program.kernels[case.name]
            for index, nbytes in known.sizes.items():
                small = replace(known, sizes={**known.sizes, index: nbytes // 2})
                if small.same or small.overlapping:
                    continue
                if keeps(enclosure, facts, small, small.sizes):
                    assert not launched(program, case.name, small).outside, (case.name, ndrange, index)
                else:
                    refused += 1
    assert refused > 500


IDIOMS = """
kernel void strided(global float *x, int n) { for (int i = get_global_id(0); i < n; i += get_global_size(0)) x[i] = 1; }
kernel void product(global float *c, global const float *a, uint n, uint k) {
    uint row = get_global_id(1), column = get_global_id(0);
    for (uint i = 0; i < k; i++) c[row * n + column] += a[row * k + i];
}
kernel void inner(global float *to, global const float *from, int w, int h) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x > 0 && x < w - 1 && y > 0 && y < h - 1) to[y * w + x] = from[(y - 1) * w + x] + from[(y + 1) * w + x];
}
kernel void flat(global float *x, int w, int n) {
    int i = get_global_id(1) * w + get_global_id(0);
    if (i < n) x[i] = 1;
}
kernel void grouped(global float *x, ulong n) {
    size_t i = get_group_id(0) * get_local_size(0) + get_local_id(0);
    if (i < n) x[i] = 1;
}
kernel void halved(global float *x, uint stride, uint n) {
    uint i = get_global_id(0) * 2 * stride;
    if (i + stride < n) x[i] += x[i + stride];
}
kernel void swapped(global int *x, int phase, int n) {
    int i = 2 * get_global_id(0) + phase;
    if (i + 1 < n && x[i] > x[i + 1]) x[i] = x[i + 1];
}
kernel void leaning(global float *x, int first, int least) {
    int i = 4 * get_global_id(0) + get_global_id(1) - first;
    if (i >= least) x[i] = 1;
}
kernel void rounded(global int *x, int by, int less) { int i = get_global_id(0); x[i - i % by - less] = 1; }
kernel void masked(global int *x, int by, int less) { int i = get_global_id(0); x[i - (i & (by - 1)) - less] = 1; }
kernel void bytes(global char *x, int by) { x[get_global_id(0) - by] = 1; }
kernel void around(global int *x, uint shift, uint less) { x[(((uint)get_global_id(0) << shift) >> 26) - less] = 1; }
kernel void ring(global float *x, int n, int head) { x[(get_global_id(0) + head) % n] = 1; }
kernel void shortest(global int *x, int less) { x[(int)get_local_size(0) - less] = 1; }
kernel void thirds(global float *x, uint least) { uint i = get_global_id(0); if (2 * i >= least) x[i / 3 - 8] = 1; }
kernel void powers(global float *x, int shift) { x[get_global_id(0) ^ (1 << shift)] = 1; }
"""


@pytest.mark.parametrize(
    ("kernel", "size", "elements", "scalars"),
    [
        ("strided", (64,), [1000], [1000]),
        ("product", (32, 16), [512, 128], [32, 8]),
        ("inner", (64, 64), [2949, 2999], [50, 60]),
        ("flat", (32, 16), [500], [32, 500]),
        ("grouped", (64,), [50], [50]),
        ("halved", (64,), [128], [4, 128]),
        ("swapped", (32,), [64], [1, 64]),
        ("leaning", (16, 4), [57], [7, 0]),
        ("bytes", (64,), [16], [0]),
        ("rounded", (64,), [57], [8, 0]),
        ("masked", (64,), [57], [8, 0]),
        ("around", (32,), [63], [27, 0]),
        ("ring", (64,), [64], [64, 7]),
        ("powers", (64,), [64], [3]),
        ("thirds", (64,), [14], [47]),
        ("shortest", (12,), [5], [4]),  # of groups of eight and of four
    ],
)
def test_idioms_are_enclosed(kernel: str, size: tuple[int, ...], elements: list[int], scalars: list[int]) -> None:
    sizes = {i: 4 * n for i, n in enumerate(elements)}
    assert idiom_keeps(kernel, size, (), sizes, scalars)
    for index, nbytes in sizes.items():
        assert not idiom_keeps(kernel, size, (), sizes | {index: nbytes - 1}, scalars)


@pytest.mark.parametrize(
    ("kernel", "size", "offset", "elements", "scalars"),
    [
        ("leaning", (16, 4), (), 57, [7, -1]),
        ("bytes", (64,), (), 16, [1]),
        ("rounded", (16,), (16,), 64, [8, 17]),
        ("masked", (16,), (16,), 64, [8, 17]),
        ("ring", (64,), (1 << 20,), 64, [65, 0]),
        ("around", (8,), (60,), 64, [27, 120]),  # it would be, did nothing come around
        ("grouped", (64,), (), 50, [51]),
        ("thirds", (64,), (), 14, [46]),
        ("shortest", (12,), (), 64, [5]),
    ],
)
def test_what_is_outside_is_not_enclosed(
    kernel: str, size: tuple[int, ...], offset: tuple[int, ...], elements: int, scalars: list[int]
) -> None:
    assert not idiom_keeps(kernel, size, offset, {0: 4 * elements}, scalars)


@pytest.mark.parametrize("which", ["min", "max"])
@pytest.mark.parametrize("ends", ["i, at[i]", "at[i], i", "at[i], at[0]"])
def test_what_contents_may_decide_is_kept_to(which: str, ends: str) -> None:
    program = parse_program(
        f"kernel void f(global int *x, global const int *at) {{ int i = get_global_id(0); x[{which}({ends})] = 1; }}"
    )
    enclosure, sizes = service.enclosed(program, "f"), {0: 256, 1: 256}
    assert enclosure is not None
    known = KnownLaunch((64,), (8,), (), {}, sizes)
    assert keeps(enclosure, program.kernels["f"], known, sizes)
    assert not keeps(whatever_is_in_buffers(enclosure), program.kernels["f"], known, sizes)


def idiom_keeps(
    kernel: str, size: tuple[int, ...], offset: tuple[int, ...], sizes: dict[int, int], scalars: list[int]
) -> bool:
    program = parse_program(IDIOMS)
    facts, enclosure = program.kernels[kernel], service.enclosed(program, kernel)
    given = [a for a in facts.arguments if a.kind == "scalar"]
    values = {a.index: n.to_bytes(a.size, "little", signed=n < 0) for a, n in zip(given, scalars, strict=True)}
    assert enclosure is not None
    return keeps(enclosure, facts, KnownLaunch(size, (8, 1)[: len(size)], offset, values, sizes), sizes)
