"""Annotations reach the analysis: regions and verdicts under the user's promises, against what kernels really do."""

from __future__ import annotations

import numpy as np
import pytest

from manycl.analysis.annotations import Annotation, annotation
from manycl.analysis.facts import ProgramFacts
from manycl.analysis.launched import LaunchFacts
from manycl.analysis.service import launched, parse_program
from manycl.analysis.symbolic import expr as x
from manycl.errors import LaunchError
from manycl.graph.graph import Buffer as GraphBuffer
from manycl.graph.graph import BufferArg, LocalArg, Version
from manycl.graph.graph import Launch as GraphLaunch
from manycl.graph.known import known_launch
from manycl.graph.launch import LaunchOptions, make_launch
from manycl.group_range import GroupRange
from tests.analysis import truth
from tests.analysis.corpus_case import Buffer, Case, Same, f32, i32, index, launch, out, table
from tests.analysis.corpus_case import Launch as CaseLaunch

SOURCE = """
kernel void gather(global float *out, global const int *map, global const float *in) {
    int i = get_global_id(0);
    out[i] = in[map[i]];
}
kernel void scatter(global float *out, global const int *map, global const float *in) {
    int i = get_global_id(0);
    out[map[i]] = in[i];
}
kernel void scatter_pairs(global int *out, global const int *map) {
    int i = get_global_id(0);
    out[2 * map[i] + 1] += 1;
    out[2 * map[i]] = i;
}
kernel void scatter_wide(global int *out, global const int *map) {
    int i = get_global_id(0);
    out[2 * map[i] + 2] = 1;
    out[2 * map[i]] = i;
}
kernel void scatter_shared(global int *out, global const int *map) {
    out[map[get_global_id(0) / 6]] = get_global_id(0);
}
kernel void scatter_changing(global int *out, global int *map) {
    int i = get_global_id(0), j = map[i];
    map[i] = 0;
    out[j] = i;
}
kernel void count(global int *bins, global const int *map) { atomic_inc(&bins[map[get_global_id(0)]]); }
kernel void fill_rows(global int *out, global const int *first, int n) {
    int i = get_global_id(0);
    for (int k = first[i]; k < first[i + 1]; k++) if (i < n) out[k] = i;
}
kernel void scaled(global float *out, global const float *in, local float *part, float by, char flag, uint4 n) {
    int i = get_global_id(0);
    out[i] = by * in[i + n.y] + flag;
}
"""


@pytest.fixture(scope="module")
def program() -> ProgramFacts:
    return parse_program(SOURCE)


def graph_launch(program: ProgramFacts, name: str, ndrange: CaseLaunch, *promises: Annotation) -> GraphLaunch:
    arguments, buffers = [], {}
    for i, argument in enumerate(ndrange.arguments):
        if isinstance(argument, Buffer):
            buffers[i] = GraphBuffer(i, argument.nbytes)
            arguments.append(BufferArg(i))
        else:
            arguments.append(BufferArg(argument.index) if isinstance(argument, Same) else argument)
    return make_launch(
        program,
        name,
        ndrange.global_size,
        ndrange.local_size,
        arguments,
        buffers=buffers,
        options=LaunchOptions(global_offset=ndrange.offset or None, annotations=promises),
    )


def promised(program: ProgramFacts, name: str, ndrange: CaseLaunch, **promises: dict[str, object]) -> LaunchFacts:
    """What is known of a launch when its arguments are annotated."""
    kernel = program.kernels[name]
    found = [annotation(kernel, argument, **says) for argument, says in promises.items()]
    node = graph_launch(program, name, ndrange, *sorted(found, key=lambda a: a.argument))
    sizes = {i: b.nbytes for i, b in ndrange.buffers.items()}
    return launched(program, name, known_launch(node, sizes))


def contained(known: LaunchFacts, name: str, ndrange: CaseLaunch) -> None:
    """Nothing is written or read outside of the regions, in any single group and in a few together."""
    case = Case(name, "", (ndrange,), (True,), text=SOURCE)
    groups = ndrange.groups[0]
    for first, count in [(g, 1) for g in range(groups)] + [(1, groups - 1)]:
        happened = truth.written(case, ndrange, 0, first, count)
        reads = {}
        for i, buffer in ndrange.buffers.items():
            said = known.region(i, "write", GroupRange(0, first, count)).mask(buffer.nbytes)
            assert not (happened[i] & ~said).any(), (i, first, count)
            reads[i] = known.region(i, "read", GroupRange(0, first, count)).mask(buffer.nbytes)
        assert not truth.reads_leak(case, ndrange, 0, first, count, reads)


def bytes_of(known: LaunchFacts, argument: int, kind: str, first: int, count: int) -> list[tuple[int, int]]:
    return [(b.offset, b.end) for b in known.region(argument, kind, GroupRange(0, first, count)).rectangles]


def test_values_bound_what_is_gathered(program: ProgramFacts) -> None:
    ndrange = launch(16, 4, out(16), index(16, 12, 4), f32(16))
    assert bytes_of(promised(program, "gather", ndrange), 2, "read", 1, 1) == [(0, 64)]
    known = promised(program, "gather", ndrange, map={"values": (4, "len(in) - lsz0")})
    assert bytes_of(known, 2, "read", 1, 1) == [(16, 48)]
    assert not known.region(2, "read").exact
    contained(known, "gather", ndrange)


def test_within_bounds_what_a_work_item_reads(program: ProgramFacts) -> None:
    near = [min(max(i + d, 0), 15) for i, d in enumerate([1, -1, 0, 1] * 4)]
    ndrange = launch(16, 4, out(16), table(*near), f32(16))
    known = promised(program, "gather", ndrange, **{"in": {"within": ("max(gid0 - 1, 0)", "min(gid0 + 2, 16)")}})
    assert bytes_of(known, 2, "read", 1, 2) == [(12, 52)]
    region = known.region(2, "read", GroupRange(0, 1, 2))
    assert not region.exact
    assert region.reason == "annotated: within in, line 4"
    assert known.region(0, "write").exact
    contained(known, "gather", ndrange)


def test_within_makes_rows_of_csr_splittable(program: ProgramFacts) -> None:
    rows = [0, 3, 3, 8, 12, 14, 20, 20, 28]
    ndrange = launch(8, 2, out(32, "i4"), table(*rows), 8)
    assert not promised(program, "fill_rows", ndrange).split(0).splittable
    known = promised(program, "fill_rows", ndrange, out={"within": {"writes": ("4 * gid0 - 2", "4 * gid0 + 3")}})
    assert not known.split(0).splittable
    rows = [0, 3, 8, 12, 16, 20, 24, 28, 32]
    ndrange = launch(8, 2, out(32, "i4"), table(*rows), 6)
    known = promised(program, "fill_rows", ndrange, out={"within": ("grp0 * 8", "grp0 * 8 + 8")})
    assert known.split(0).splittable
    assert bytes_of(known, 0, "write", 1, 2) == [(32, 96)]
    assert bytes_of(known, 0, "write", 2, 2) == [(64, 96)]  # the guard on n still counts
    contained(known, "fill_rows", ndrange)


def test_within_touches_nothing_where_its_bounds_meet(program: ProgramFacts) -> None:
    ndrange = launch(8, 2, out(32, "i4"), table(*range(9)), 8)
    known = promised(program, "fill_rows", ndrange, out={"within": ("2 - grp0", "min(grp0, 2)")})
    assert bytes_of(known, 0, "write", 0, 1) == bytes_of(known, 0, "write", 1, 1) == []
    assert bytes_of(known, 0, "write", 2, 1) == [(0, 8)]


def test_distinct_makes_a_scatter_splittable(program: ProgramFacts) -> None:
    order = np.random.default_rng(3).permutation(16).tolist()
    ndrange = launch(16, 4, out(32), table(*order), f32(16))
    assert not promised(program, "scatter", ndrange).split(0).splittable
    assert promised(program, "scatter", ndrange, map={"distinct": True}).split(0).splittable
    pairs = launch(16, 4, i32(32), table(*order))
    assert not promised(program, "scatter_pairs", pairs, map={"distinct": True}).split(0).splittable  # 2 * map[i] + 1
    both = {"distinct": True, "values": (0, 16)}
    assert promised(program, "scatter_pairs", pairs, map=both).split(0).splittable
    for name, these in (("scatter", ndrange), ("scatter_pairs", pairs)):
        assert truth.split_matches_whole(Case(name, "", (these,), (True,), text=SOURCE), these, 0, 5)
    bins = launch(16, 4, i32(16), table(*order))
    assert promised(program, "count", bins).split(0).merges == {0: "add"}
    assert promised(program, "count", bins, map={"distinct": True}).split(0).splittable


@pytest.mark.parametrize("name", ["scatter_wide", "scatter_shared", "scatter_changing"])
def test_distinct_elements_are_not_enough(program: ProgramFacts, name: str) -> None:
    """Neighbouring elements overlap; groups read the same element; the array changes meanwhile."""
    ndrange = launch(16, 4, out(40, "i4"), table(*range(16)))
    verdict = promised(program, name, ndrange, map={"distinct": True, "values": (0, 16)}).split(0)
    assert verdict.reasons


def test_distinct_elements_of_one_buffer_given_twice(program: ProgramFacts) -> None:
    ndrange = launch(16, 4, i32(32), Same(0))
    assert promised(program, "scatter_pairs", ndrange, map={"distinct": True, "values": (0, 16)}).split(0).reasons


def test_what_the_analysis_is_told(program: ProgramFacts) -> None:
    kernel = program.kernels["scaled"]
    buffers = {7: GraphBuffer(7, 64), 9: GraphBuffer(9, 128)}
    given = [BufferArg(7), BufferArg(9), LocalArg(16), 2.5, -3, np.array([1, 2, 3, 4], np.uint32)]
    node = make_launch(program, "scaled", 16, 4, given, buffers=buffers, options=LaunchOptions(global_offset=(4,)))
    known = known_launch(node, {7: 64, 9: 128})
    assert (known.global_size, known.local_size, known.offset) == ((16,), (4,), (4,))
    assert known.scalars == {4: b"\xfd", 5: np.array([1, 2, 3, 4], np.uint32).tobytes()}
    assert (known.sizes, known.same) == ({0: 64, 1: 128, 2: 16}, {})
    twice = make_launch(program, "scaled", 16, 4, [BufferArg(9), *given[1:]], buffers=buffers)
    assert known_launch(twice, {9: 128}).same == {1: 0}
    wide = Version(program, kernel, (32,), (8,), annotations=(annotation(kernel, "in", within=("gid0", "gid0 + 4")),))
    other = known_launch(node, {7: 64, 9: 128}, wide)
    assert (other.global_size, other.local_size, list(other.within)) == ((32,), (8,), [(1, "read")])
    assert [str(e) for e in other.within[1, "read"]] == ["(8*grp0 + lid0 + 4)", "(8*grp0 + lid0 + 8)"]
    assert other.key != known_launch(node, {7: 64, 9: 128}).key


def test_bounds_are_evaluated_for_the_launch(program: ProgramFacts) -> None:
    kernel = program.kernels["fill_rows"]
    ndrange = launch(16, 4, out(40, "i4"), table(*range(17)), 6)
    node = graph_launch(program, "fill_rows", ndrange)
    assert str(_low(node, annotation(kernel, "out", within=("n * ngrp0 - gsz0 + lsz1", "len(out)")))) == "9"
    for text, value in (("gid0 // 4", lambda i: i // 4), ("gid0 % -4 + lid1", lambda i: i % -4)):
        low = _low(node, annotation(kernel, "out", within=(text, "len(out)")))
        for i in range(16):
            assert _value(low, {"grp0": i // 4, "lid0": i % 4}) == value(i), (text, i)
    for text in ("gid0 // (n - 6)", "gid0 % (n - 6)"):
        with pytest.raises(LaunchError, match="annotation of out divides by zero"):
            _low(node, annotation(kernel, "out", within=(text, "len(out)")))
    with pytest.raises(LaunchError, match="annotation of first divides by zero"):
        _low(node, annotation(kernel, "first", values=(0, "8 // (n - 6)")))
    assert _low(node, annotation(kernel, "out", within=("8 // (gid0 - 3)", "len(out)"))) is None


def _low(node: GraphLaunch, promise: Annotation):
    node.annotations = (promise,)
    found = known_launch(node, {0: 160, 1: 68}).within.get((promise.argument, "write"))
    return None if found is None else found[0]


def _value(expression, ids: dict[str, int]) -> int:
    found = x.substitute(expression, {name: x.const(value) for name, value in ids.items()})
    assert found.op == "const"
    return found.value


def test_an_open_local_size_is_refused(program: ProgramFacts) -> None:
    given = [BufferArg(0), BufferArg(1), BufferArg(2)]
    node = make_launch(program, "gather", 16, None, given, buffers={i: GraphBuffer(i, 64) for i in range(3)})
    with pytest.raises(LaunchError, match="needs a local size"):
        known_launch(node, {0: 64, 1: 64, 2: 64})
