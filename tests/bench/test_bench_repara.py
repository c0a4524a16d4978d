"""REPARA's experiments: what its kernels compute, its graphs, and the plans that are chosen."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.cli import main
from manycl.errors import MachineError
from manycl.graph.graph import Launch
from manycl.machine import Machine
from manycl.machine_file import load_machine
from manycl.plan.plan import ON_HOST
from manycl.plan.policy import find
from manycl.plan.verification.verify import verify
from manycl.run.simulation.simulate import simulate
from manycl_bench import repara, repara_graphs, repara_real
from manycl_bench.repara_graphs import BENCHMARKS
from manycl_bench.repara_rates import CACHES, Profiled, Real
from tests.graph.graph_judge import verify as verify_graph

SETTINGS = repara.Settings(sample=40, effort=20_000)
SMALLEST = {name: experiment.sizes[0] for name, experiment in repara.EXPERIMENTS.items()}


@pytest.fixture(scope="module")
def machine() -> Machine:
    return load_machine(repara.MACHINE)


@pytest.fixture(scope="module")
def queue() -> Any:
    with mc.Queue("cpu") as queue:
        yield queue


@pytest.fixture(scope="module")
def program() -> mc.Program:
    return mc.Program.from_file(repara_graphs.SOURCE)


# the kernels


def test_stencil_and_median(queue: mc.Queue, program: mc.Program) -> None:
    n = 32
    data = np.random.default_rng(1).random((n + 2, n + 2), np.float32)
    spread, filtered = queue.empty((n, n)), queue.empty((n, n))
    given = queue.array(data)
    program.stencil(queue, (n, n), (16, 16), given, spread, n)
    program.median_filter(queue, (n, n), (16, 16), given, filtered, n)
    sides = data[1:-1, :-2] + data[1:-1, 2:] + data[:-2, 1:-1] + data[2:, 1:-1]
    middle = data[1:-1, 1:-1]
    np.testing.assert_allclose(spread.get(), middle + 0.2 * (sides - 4 * middle), rtol=1e-5)
    windows = np.lib.stride_tricks.sliding_window_view(data, (3, 3)).reshape(n, n, 9)
    np.testing.assert_array_equal(filtered.get(), np.median(windows, axis=2))


def test_transitive_closure(queue: mc.Queue, program: mc.Program) -> None:
    n = 32
    chance = np.random.default_rng(2)
    a, b = (chance.random((n, n)) < 0.1).astype(np.uint8), (chance.random((n, n)) < 0.1).astype(np.uint8)
    arrays = [queue.array(x) for x in (a, np.ascontiguousarray(a.T), b)]
    product, both, differs = (queue.empty((n, n), np.uint8) for _ in range(3))
    program.multiply(queue, (n, n), (16, 16), arrays[0], arrays[1], product, n)
    program.unite(queue, (n, n), (16, 16), arrays[0], arrays[2], both, n)
    program.compare(queue, (n, n), (16, 16), arrays[0], arrays[2], differs, n)
    np.testing.assert_array_equal(product.get(), (a.astype(int) @ a > 0).astype(np.uint8))
    np.testing.assert_array_equal(both.get(), a | b)
    np.testing.assert_array_equal(differs.get(), a != b)


def test_lu_decomposition_of_a_block_column(queue: mc.Queue, program: mc.Program) -> None:
    block, rest = 16, 32
    whole = np.random.default_rng(3).random((block + rest, block + rest)).astype(np.float32) + 20 * np.eye(
        block + rest, dtype=np.float32
    )
    parts = whole[:block, :block], whole[:block, block:], whole[block:, :block], whole[block:, block:]
    corner, top, left, inner = (queue.array(np.ascontiguousarray(p)) for p in parts)
    program.lud_corner(queue, (1,), (1,), corner, block)
    program.lud_top(queue, (rest,), (16,), corner, top, block, rest)
    program.lud_left(queue, (rest,), (16,), corner, left, block)
    program.lud_rest(queue, (rest, rest), (16, 16), left, top, inner, block, rest)
    lower = np.vstack([np.tril(corner.get(), -1) + np.eye(block), left.get()])
    upper = np.hstack([np.triu(corner.get()), top.get()])
    again = lower @ upper
    again[block:, block:] += inner.get()
    np.testing.assert_allclose(again, whole, rtol=1e-4, atol=1e-4)


def test_gemm_and_sort_and_monte_carlo(queue: mc.Queue, program: mc.Program) -> None:
    n = 32
    chance = np.random.default_rng(4)
    a, b = (chance.random((n, n), np.float32) for _ in range(2))
    c = queue.empty((n, n))
    program.gemm(queue, (n, n), (16, 16), queue.array(a), queue.array(b), c, n)
    np.testing.assert_allclose(c.get(), a @ b, rtol=1e-5)
    numbers = np.concatenate([np.sort(chance.random(512)), np.sort(chance.random(512))[::-1]]).astype(np.float32)
    data = queue.array(numbers)
    distance = 512
    while distance:
        program.bitonic(queue, (distance, 512 // distance), None, data, distance)
        distance //= 2
    np.testing.assert_array_equal(data.get(), np.sort(numbers))
    value = queue.empty(64)
    prices, strikes = np.full(64, 100, np.float32), np.linspace(0, 300, 64, dtype=np.float32)
    program.monte_carlo(queue, (64,), (64,), queue.array(prices), queue.array(strikes), value, 64)
    found = value.get()
    # worth the stock's price if it costs nothing, nothing if it costs three times as much
    assert found[0] == pytest.approx(100, rel=0.1)
    assert found[-1] == 0
    assert np.all(found >= 0)


def test_chemistry_at_a_few_points(queue: mc.Queue, program: mc.Program) -> None:
    n, species, reactions = 64, repara_graphs.SPECIES, repara_graphs.REACTIONS
    chance = np.random.default_rng(5)
    heat, pressure, mass = (chance.random(k, np.float32) + 300 for k in (n, n, species * n))
    given = [queue.array(x) for x in (pressure, heat, mass)]
    moles, gibbs = queue.empty(species * n), queue.empty(species * n)
    low, forward, backward = (queue.empty(reactions * n) for _ in range(3))
    share, change = queue.empty(n), queue.empty(n)
    program.concentrations(queue, (n,), (64,), *given, moles, n)
    program.equilibria(queue, (n,), (64,), given[1], gibbs, n)
    program.arrhenius(queue, (n,), (64,), given[1], low, n)
    program.rates(queue, (n,), (64,), given[1], gibbs, forward, backward, n, 3)
    program.reactions(queue, (n,), (64,), moles, low, forward, backward, n, 3)
    program.steady(queue, (n,), (64,), forward, backward, share, n)
    program.produced(queue, (n,), (64,), forward, backward, share, change, n)
    s = np.arange(species)[:, None]
    expected = mass.reshape(species, n) * pressure / (8.314 * heat * (s + 2))
    np.testing.assert_allclose(moles.get().reshape(species, n), expected, rtol=1e-5)
    up, down = (x.get().reshape(reactions, n).astype(float) for x in (forward, backward))
    assert np.all(up > 0)
    assert np.all(down > 0)
    np.testing.assert_allclose(share.get(), up.sum(0) / (up.sum(0) + down.sum(0) + 1), rtol=1e-4)
    np.testing.assert_allclose(change.get(), (up - share.get() * down).sum(0), rtol=1e-3)


# the graphs


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_graph_is_valid_and_divided_where_the_paper_divides(name: str) -> None:
    found = BENCHMARKS[name](SMALLEST[name])
    verify_graph(found.graph)
    assert len(found.graph) == len(found.kernels) == len(found.work)
    written = set(found.valid)
    for task in found.graph.nodes:
        assert written.issuperset(task.reads), "everything but the inputs is written before it is read"
        written.update(task.writes)
    divided = {found.kernels[n] for n in found.splits}
    assert divided == {
        "stencil": {"stencil"},
        "transitive closure": {"multiply"},
        "S3D": set(),
        "LUD": {"lud_top", "lud_left", "lud_rest"},
        "GEMM": {"gemm"},
        "Monte Carlo": {"monte_carlo"},
        "median filter": {"median_filter"},
        "bitonic sort": {"bitonic"},
    }.get(name, divided)


def test_s3d_has_27_kernels_and_two_groups_of_eight() -> None:
    found = BENCHMARKS["S3D"](24)
    launches = [n for n in found.graph.nodes if isinstance(n, Launch)]
    assert len(launches) == 27
    for kernel in ("rates", "produced"):
        members = {i for i, k in enumerate(found.kernels) if k == kernel}
        assert len(members) == 8
        assert all(members.isdisjoint(found.graph.predecessors[i]) for i in members)


def test_the_kernels_of_the_transitive_closure_do_not_depend_on_one_another() -> None:
    assert BENCHMARKS["transitive closure"](128).graph.predecessors[:3] == ((), (), ())


# profiles


def test_profiles_are_near_the_truth_where_they_were_taken(machine: Machine) -> None:
    found = BENCHMARKS["stencil"](2048)
    real, seen = Real(found, machine), Profiled(found, machine, (256, 2048, 8192), BENCHMARKS["stencil"])
    for device in range(3):
        assert seen.launch(0, device) == pytest.approx(real.launch(0, device), rel=0.15)
        groups = found.splits[0].groups
        for count in (groups // 4, groups // 2, 5 * groups // 8):
            assert seen.groups(0, device, count, groups) == pytest.approx(
                real.groups(0, device, count, groups), rel=0.2
            )
    again = Profiled(found, machine, (256, 2048, 8192), BENCHMARKS["stencil"])
    assert [again.launch(0, d) for d in range(3)] == [seen.launch(0, d) for d in range(3)]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_no_kernel_draws_more_of_a_memory_than_it_carries(name: str, machine: Machine) -> None:
    """Each launch reads and writes its buffers once, at least."""
    found = BENCHMARKS[name](repara.EXPERIMENTS[name].sizes[-1])
    real = Real(found, machine)
    for node, task in enumerate(found.graph.nodes):
        nbytes = sum(found.graph.buffers[key].nbytes for key in {*task.reads} | {*task.writes})
        for d, device in machine.numbered():
            if isinstance(task, Launch):
                seconds = real.launch(node, d) - device.launch_overhead
                is_cached = device.kind == "cpu" and found.nbytes <= CACHES
                assert nbytes <= seconds * device.bandwidth * (1 + 1e-9) or is_cached


def test_rates_that_need_more_of_a_memory_than_it_carries_are_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Real, "part", lambda self, node, device, part: 50e-6 + self._of.work[node] * part / 3e11)
    with pytest.raises(MachineError, match=r"on (cpu0|gpu0) at .* but its memory carries (95|320) GB/s") as refused:
        repara.problems(BENCHMARKS["S3D"](48), machine, (24, 48))
    assert "give" in refused.value.hint


# the experiments


def test_all_plans_of_a_small_problem_are_there(machine: Machine) -> None:
    pair = replace(machine, devices=machine.devices[:2])
    given, real = repara.problems(BENCHMARKS["stencil"](256), pair, (256, 512))
    of_nodes = [repara.valid_ways(given, n) for n in range(2)]
    assert [len(w) for w in of_nodes] == [17, 1]
    seen = set()
    for chosen in repara.combinations(of_nodes, 100, 0):
        plan = repara.laid_out(given, chosen)
        verify(plan, given.graph, pair, given)
        assert simulate(real, plan).makespan > 0
        seen.add(frozenset((a.device, a.groups) for a in plan.assignments if a.device != ON_HOST))
    assert len(seen) == 17
    assert len(list(repara.combinations([of_nodes[0]] * 3, 100, 0))) == 100


def test_the_stencils_plans_are_the_papers(machine: Machine) -> None:
    for size in (1024, 2048, 8192):
        row = repara.measure("stencil", size, machine, SETTINGS, bounded=False)
        assert tuple(row["plan"][0]) == row["paper"] == repara.PAPER["stencil"][size]
        assert row["as_paper"] == 1.0
        assert row["search_complete"]
        assert row["percentile"] >= 90
        assert row["best_ms"] <= row["ms"] <= min(row["alone_ms"].values())


CASES = [("transitive closure", 128), ("S3D", 24), ("LUD", 1024), ("median filter", 1024), ("median filter", 4096)]


@pytest.mark.parametrize("policy", ["balance", "mkmd"])
@pytest.mark.parametrize(("name", "size"), CASES)
def test_a_plan_takes_what_its_policy_says_if_it_is_to_run_as_planned(
    name: str, size: int, policy: str, machine: Machine
) -> None:
    """Whole kernels and ranges; small transfers and large ones. By default the engine cuts and orders by itself."""
    experiment = repara.EXPERIMENTS[name]
    some = replace(machine, devices=machine.devices[: experiment.devices])
    _, real = repara.problems(BENCHMARKS[name](size), some, experiment.profiled)
    plan = find(policy).plan(real)  # type: ignore[union-attr]
    assert simulate(replace(real, as_planned=True), plan).makespan == pytest.approx(plan.makespan, rel=1e-6)
    if (name, size) == ("median filter", 4096):
        assert simulate(real, plan).makespan < 0.8 * plan.makespan, "cuts that overlap large transfers"
    if (name, size) == ("median filter", 1024):
        assert simulate(real, plan).makespan == pytest.approx(plan.makespan), "none that cost a latency more"


def test_words_of_table_3() -> None:
    assert [repara.words(s) for s in ((16, 0), (0, 16), (12, 4), (1, 15), (2, 4, 10))] == [
        "CPU", "GPU", "CPU 3/4", "GPU 15/16", "ACC 5/8",
    ]  # fmt: skip


def test_a_page_and_a_picture_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ("stencil", "transitive closure", "GEMM")
    monkeypatch.setattr(repara, "EXPERIMENTS", {k: repara.EXPERIMENTS[k] for k in few})
    assert main(["bench", "repara", "--quick", "--json", "--output", str(tmp_path)]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert list(figures)[-1] == "summary"
    assert figures["summary"]["as_paper_stencil"] == 1.0
    assert all(math.isfinite(v) for v in figures["summary"].values())
    assert json.loads((tmp_path / "repara.json").read_text()) == figures
    page = (tmp_path / "repara.md").read_text()
    assert "repara.png" in page
    assert "| CPU, paper | 16 |" in page
    assert "| GEMM | 256 |" in page
    assert (tmp_path / "repara.png").stat().st_size > 1000


def test_it_needs_two_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "repara", "--devices", "cpu"]) == 2
    assert "needs two devices" in capsys.readouterr().err


def test_plans_are_measured_on_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All of them compute the same, in place, too."""
    monkeypatch.setattr(repara_real, "SIZES", {"stencil": 64, "LUD": 128, "transitive closure": 64})
    found = repara_real.run("cpu0/2", repara.Settings(sample=4), 2, lambda text: None)
    for row in found["results"]:
        assert row["plans"] >= 5
        assert len(row["samples_ms"]) == 2
        assert row["planned_ms"] > 0.0 < row["best_ms"] <= row["alone_ms"]
        assert 0.0 < row["percent_of_best"] <= 100.0
    repara_real.write(found, tmp_path)
    assert "| transitive closure | 64 |" in (tmp_path / "repara_real.md").read_text()


def test_the_hosts_time_for_commands_is_found_from_whole_runs() -> None:
    """Of devices alone: plans of several then take as long as on the machine that they ran on."""
    of, where = repara.EXPERIMENTS["stencil"], load_machine(repara.MACHINE)
    problem = replace(repara.problems(BENCHMARKS["stencil"](of.sizes[0]), where, of.profiled)[1], as_planned=True)
    costs = (4e-4, 2e-3, 7e-4)
    slow = [replace(d, enqueuing=c, enqueuing_copy=c) for d, c in zip(where.devices, costs, strict=True)]
    real = replace(problem, machine=replace(where, devices=tuple(slow)))
    ways, (results,) = (repara.valid_ways(problem, node) for node in (0, 1))
    single = {way[0].device: way for way in ways if len(way) == 1}
    alone = [repara.laid_out(problem, [single[d], results]) for d in where.indices]
    measured = [simulate(real, plan).makespan for plan in alone]
    found = repara_real.with_host_time(problem, alone, measured)
    assert [simulate(found, plan).makespan for plan in alone] == pytest.approx(measured, rel=0.05)
    for way in [way for way in ways if len(way) > 1][:: len(ways) // 5]:
        plan = repara.laid_out(problem, [way, results])
        assert simulate(found, plan).makespan == pytest.approx(simulate(real, plan).makespan, rel=0.2)
