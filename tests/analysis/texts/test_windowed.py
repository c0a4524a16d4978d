"""Sub-kernels whose buffers are windows: on Oclgrind, which sees every access outside of a buffer, ranges of corpus
kernels run on allocations of just the bytes that the analysis says they touch, and give the whole launch's bits."""

from __future__ import annotations

import itertools
import os
from typing import Any

import numpy as np
import pytest

from manycl.analysis import parse_program
from manycl.analysis.service import sub_kernel
from manycl.analysis.texts.rewrite import SubKernel
from tests.analysis import truth
from tests.analysis.corpus_case import Case, Local, Same
from tests.analysis.corpus_case import Launch as CaseLaunch
from tests.analysis.regions.test_regions import IDS, JUDGED_BY_POCL, LAUNCHES, facts_of, masks

cl = pytest.importorskip("pyopencl")

EVERYTHING = bool(os.environ.get("NIGHTLY"))
SAMPLE = slice(None) if EVERYTHING else slice(2, None, 13)
ALIGNED = 128  # bytes: no type is aligned to more


class OnWindows:
    """The ranges of a launch along a dimension, one after another; the host holds what buffers hold in between."""

    def __init__(self, case: Case, ndrange: CaseLaunch, sub: SubKernel, dimension: int, name: str) -> None:
        self.case, self.ndrange, self.sub, self.dimension = case, ndrange, sub, dimension
        self.facts = facts_of(case, ndrange)
        _, self.context, self.queue = truth.device(name)
        self.kernel = truth._kernel(name, sub.source, sub.options, case.name)
        self.contents = {i: data.copy() for i, data in truth.contents(ndrange, 1).items()}
        self.moved = 0

    def run(self, first: int, count: int) -> None:
        ndrange, dimensions = self.ndrange, range(len(self.ndrange.global_size))
        reads, _ = masks(self.facts, ndrange, "read", self.dimension, first, count)
        writes, _ = masks(self.facts, ndrange, "write", self.dimension, first, count)
        lows: dict[int, int] = {}
        buffers: dict[int, Any] = {}
        sizes: dict[int, int] = {}
        for root, data in self.contents.items():
            low, high = 0, len(data)
            arguments = [i for i in self.facts.regions.buffers if self.facts.regions.memory(i) == root]
            if set(arguments) <= set(self.sub.windows):
                touched = np.flatnonzero(reads[root] | writes[root])
                low, high = (int(touched[0]), int(touched[-1]) + 1) if len(touched) else (0, 1)
                # who touches a part of a vector may load all of it
                low, high = low // ALIGNED * ALIGNED, min(-(-high // ALIGNED) * ALIGNED, len(data))
                self.moved += low > 0
            lows[root], sizes[root] = low, high - low
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            buffers[root] = cl.Buffer(self.context, flags, hostbuf=data[low:high])
        firsts = [first if d == self.dimension else 0 for d in dimensions]
        groups = [count if d == self.dimension else ndrange.groups[d] for d in dimensions]
        offset = ndrange.offset or (0,) * len(dimensions)
        size, start, hidden = self.sub.arguments(ndrange.global_size, ndrange.local_size, offset, firsts, groups)
        root_of = {i: a.index if isinstance(a, Same) else i for i, a in enumerate(ndrange.arguments)}
        given: list[Any] = []
        for i, a in enumerate(ndrange.arguments):
            if root_of[i] in buffers:
                given.append(buffers[root_of[i]])
            else:
                given.append(cl.LocalMemory(a.nbytes) if isinstance(a, Local) else a)
        moved = [np.uint64(lows[root_of[i]]) for i in self.sub.windows]
        self.kernel.set_args(*given, *(np.frombuffer(h, np.uint8) for h in hidden), *moved)
        cl.enqueue_nd_range_kernel(self.queue, self.kernel, size, ndrange.local_size, start)
        for root, buffer in buffers.items():
            part = np.empty(sizes[root], np.uint8)
            cl.enqueue_copy(self.queue, part, buffer)
            self.contents[root][lows[root] : lows[root] + sizes[root]] = part
            buffer.release()


def parts(groups: int) -> list[tuple[int, int]]:
    """All groups, in three ranges at most, in no order."""
    cuts = sorted({0, 1, groups // 2, groups})
    return [(a, b - a) for a, b in itertools.pairwise(cuts)][::-1]


@pytest.mark.parametrize(("case", "ndrange"), LAUNCHES[SAMPLE], ids=IDS[SAMPLE])
def test_ranges_on_windows(case: Case, ndrange: CaseLaunch, capfd: pytest.CaptureFixture[str]) -> None:
    sub = sub_kernel(parse_program(case.source, options=case.options), case.name, "windowed_kernel")
    facts = facts_of(case, ndrange)
    wanted = [d for d, n in enumerate(ndrange.groups) if n > 1 and facts.split(d).mergeable]
    if sub.reason or not wanted or case.name in JUDGED_BY_POCL:
        pytest.skip(sub.reason or "its groups may not run apart")
    whole = truth.run_range(case, ndrange, 0, 0, None, truth.contents(ndrange, 1))
    capfd.readouterr()
    for dimension in wanted:
        machine = OnWindows(case, ndrange, sub, dimension, truth.OCLGRIND)
        for first, count in parts(ndrange.groups[dimension]):
            machine.run(first, count)
        for root, data in machine.contents.items():
            wrong = np.flatnonzero(data != whole[root].view(np.uint8).reshape(-1))
            assert not len(wrong), f"argument {root}, dimension {dimension}: bytes {wrong[:8]}"
    said = capfd.readouterr()
    assert "Invalid" not in said.err + said.out, said.err


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("if (a == b) b[0] = 1;", "compares an address"),
        ("if (a) b[0] = 1;", "compares an address"),
        ("b[0] = (ulong)a & 7;", "turns it into a number"),
        ("b[0] = a - b;", "turns it into a number"),
        ("global int *p; global int **q = &p; *q = b; p[0] = 1;", "takes the address of a pointer"),
        ("struct { global int *p; } s; s.p = b; s.p[0] = 1;", "an address"),
        ('printf("%p", a); b[0] = 1;', "hands an address to printf"),
        ("b[0] = a ? 1 : 2;", "compares an address"),
        ("b[0] = !a;", "turns it into a number"),
    ],
)
def test_who_looks_at_pointers_gets_no_windows(body: str, why: str) -> None:
    program = parse_program(f"kernel void k(global int *a, global int *b) {{ {body} }}")
    sub = sub_kernel(program, "k", "windowed_kernel")
    assert why in sub.reason
    assert not sub.windows


def test_what_may_be_moved() -> None:
    """Pointers that can be assigned to; helpers may follow them."""
    sub = sub_kernel(
        parse_program("""
        float at(global const float *p, int i) { return p[i]; }
        kernel void k(global const float *restrict a, constant float *c, global float *const d, local float *l,
                      global float4 e[], int n) {
            global const float *p = a + n;
            for (int i = 0; i < n; i++) d[i] = at(a, i) + *p++ + c[i] + vload4(0, a + i).x;
            e[0].x = l[0];
        }
        """),
        "k",
        "windowed_kernel",
    )
    assert not sub.reason
    assert sub.windows == (0, 4)
    called = "kernel void k(global int *a) { a[0] = 1; } kernel void other(global int *a) { k(a); }"
    for how in ("windowed_kernel", "guarded_kernel"):
        assert sub_kernel(parse_program(called), "k", how).reason == "other calls it"
