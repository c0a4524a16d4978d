"""Counts of every corpus kernel against the instructions that Oclgrind executes."""

from __future__ import annotations

import re
from functools import cache

import pytest

from manycl.analysis.costs.cost import Work
from manycl.group_range import GroupRange
from tests.analysis import truth
from tests.analysis.corpus_case import Case, Launch
from tests.analysis.costs.oclgrind_counts import Job, count_all
from tests.analysis.generated.generator import generate
from tests.analysis.kernel_corpus import BY_NAME, CASES
from tests.analysis.regions.test_regions import facts_of

truth.device(truth.OCLGRIND)  # skips where it is missing

FILES = sorted({case.file for case in CASES})
VECTORS = re.compile(r"(char|short|int|long|float|double|half|vload|vstore)(2|3|4|8|16)\b")
PARTIAL = re.compile(r"\.(?:[xyzw]{2,3}|hi|lo|odd|even) \W?= ")
DECIDED_BY_DATA = {
    "published": {"spmv_csr", "csr_scale_rows"},
    "control": {"conditional_on_data", "logic_reads", "data_dependent_loop"},
    "language": {"guarded_reads", "searched_by_helper"},
    "loops": {"bound_from_memory"},
}
FLOATS = ("float", "double", "half")


def body_of(case: Case) -> str:
    return re.split(rf"\bvoid {case.name}\(", case.source)[-1].split("kernel void")[0]


def calls(counts: dict[str, int], *starts: str) -> int:
    return sum(n for name, n in counts.items() if name.startswith(tuple(f"call {s}" for s in starts)))


def total(counts: dict[str, int], *names: str) -> int:
    return sum(counts.get(name, 0) for name in names)


def ours(work: Work, *kinds: str) -> float:
    return sum(work.operations.get(kind, 0) for kind in kinds)


def accesses(work: Work, counts: dict[str, int]) -> dict[str, tuple[float, float]]:
    """(ours, Oclgrind's): loads, stores, bytes, atomics, barriers; structures are copied by a call."""
    found = {"barrier": (ours(work, "barrier"), calls(counts, "barrier", "work_group_barrier"))}
    found["atomic"] = (ours(work, "atomic.global", "atomic.local"), calls(counts, "atom"))
    if calls(counts, "llvm.memcpy"):
        return found
    for kind in ("load", "store"):
        spaces = [f"{kind} {space}" for space in ("global", "local", "constant")]
        theirs, vectors = total(counts, *spaces), calls(counts, f"v{kind}")
        found[kind] = (ours(work, *(name.replace(" ", ".") for name in spaces)), theirs + vectors)
        if not vectors:
            for name in spaces:
                found[name] = (ours(work, name.replace(" ", ".")), counts.get(name, 0))
    if not calls(counts, "vload", "vstore", "atom", "async"):
        for space, moved in (("global", work.global_bytes), ("local", work.local_bytes)):
            found[f"{space} bytes"] = (moved, total(counts, f"load {space} bytes", f"store {space} bytes"))
    return found


def arithmetic(case: Case, work: Work, counts: dict[str, int]) -> dict[str, tuple[float, float]]:
    """(ours, Oclgrind's) of kernels without vectors, on which Oclgrind counts an operation once."""
    if VECTORS.search(body_of(case)) or total(counts, "extractelement", "insertelement", "shufflevector"):
        return {}
    fused = calls(counts, "llvm.fmuladd")
    return {
        "flops": (
            sum(ours(work, f"{t}.add", f"{t}.mul", f"{t}.div") for t in FLOATS),
            total(counts, "fadd", "fsub", "fmul", "fdiv", "frem") + 2 * fused,
        ),
        "comparisons": (ours(work, "compare.int"), counts.get("icmp", 0)),
        "float comparisons": (sum(ours(work, f"compare.{t}") for t in FLOATS), counts.get("fcmp", 0)),
        "multiplications": (ours(work, "int.mul"), counts.get("mul", 0)),
        "additions": (ours(work, "int.add"), total(counts, "add", "sub")),
        "divisions": (ours(work, "int.div"), total(counts, "sdiv", "udiv", "srem", "urem")),
        "conversions": (
            ours(work, "convert"),
            total(counts, "sitofp", "uitofp", "fptosi", "fptoui", "fpext", "fptrunc") + calls(counts, "convert_"),
        ),
    }


def known_work(case: Case, ndrange: Launch) -> Work:
    """The work of a launch; where data decide it, with the contents of what the kernel only reads."""
    facts = facts_of(case, ndrange)
    if facts.work().exact:
        return facts.work()
    assert facts.work().reason, case.name
    fixed = {a.index for a in facts.facts.arguments if a.kind == "buffer" and not a.writes}
    fixed -= {*facts.launch.same, *facts.launch.same.values()}
    return facts.cost_with({i: d for i, d in truth.contents(ndrange, 1).items() if i in fixed}).work()


@cache
def counted() -> list[tuple[Case, Launch, dict[str, int]]]:
    """All launches of all files, by one process: to begin takes it longer than to count those of a file."""
    launches = [(case, ndrange) for case in CASES for ndrange in case.launches]
    return [(*one, counts) for one, counts in zip(launches, count_all([Job(*one) for one in launches]), strict=True)]


@pytest.mark.parametrize("file", FILES)
def test_exact_counts_are_the_instructions_executed(file: str) -> None:
    launches = [one for one in counted() if one[0].file == file]
    wrong, exact = [], set()
    for case, ndrange, counts in launches:
        work = known_work(case, ndrange)
        if work.exact:
            exact.add(case.name)
            pairs = accesses(work, counts) | arithmetic(case, work, counts)
            wrong += [(case.name, what, pair) for what, pair in pairs.items() if pair[0] != pair[1]]
    assert not wrong
    assert len(exact) >= 0.7 * len(launches)
    assert exact >= DECIDED_BY_DATA.get(file, set())


def test_ranges_are_the_instructions_executed() -> None:
    names = ("matrix_multiply", "reduce_tree", "jacobi_2d", "covariance", "convolution_3d", "gemm_tiled")
    jobs = []
    for name in names:
        ndrange = BY_NAME[name].launches[0]
        for d, groups in enumerate(ndrange.groups):
            jobs += [Job(BY_NAME[name], ndrange, d, first, 1) for first in range(groups)]
    for job, counts in zip(jobs, count_all(jobs), strict=True):
        work = facts_of(job.case, job.launch).work(GroupRange(job.dimension, job.first, job.count))
        pairs = accesses(work, counts)
        assert {k: v for k, v in pairs.items() if v[0] != v[1]} == {}, job


def test_random_kernels() -> None:
    checked = 0
    cases = [case for seed in (3, 6) for case in generate(seed, 25).cases]
    for case, counts in zip(cases, count_all([Job(c, c.launches[0]) for c in cases]), strict=True):
        work = facts_of(case, case.launches[0]).work()
        pairs = accesses(work, counts) | arithmetic(case, work, counts) if work.exact else {}
        if PARTIAL.search(body_of(case)):  # Oclgrind stores some lanes one by one, or all of them
            pairs = {what: pair for what, pair in pairs.items() if "store" not in what and "bytes" not in what}
        assert {what: pair for what, pair in pairs.items() if pair[0] != pair[1]} == {}, case.name
        checked += bool(pairs)
    assert checked > 30


def test_guesses_are_marked() -> None:
    """A condition on data counts half, unless both outcomes cost the same."""
    case = BY_NAME["conditional_on_data"]
    work = facts_of(case, case.launches[0]).work()
    assert not work.exact
    assert "argument 1" in work.reason
