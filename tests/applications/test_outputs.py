"""Outputs of applications are planned: what policies make of a large result behind a slow link; when repetitions are
read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manycl.applications.application import Application, Contents, Iterate, Output
from manycl.applications.load import load_application
from manycl.applications.planning import described_machine, problem_of
from manycl.cli import main
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferKey
from manycl.run.simulation.simulate import simulate
from manycl.trace import TransferEvent
from tests.plan.plan_cases import launch

SOURCE = """kernel void big(global float *out, int n) {
    int i = get_global_id(0);
    float s = 0;
    for (int k = 0; k < 40; k++) s += (float)k * 0.5f + (float)i;
    out[i] = s;
}"""
MACHINE = """
name = "final transfer"
source = "invented: a GPU that computes ten times as fast, behind a slow link"
[[device]]
name = "cpu0"
kind = "cpu"
memory = "host"
compute_units = 4
clock = "3 GHz"
flops = "60 GFLOP/s"
bandwidth = "20 GB/s"
global_memory = "8 GiB"
[[device]]
name = "gpu0"
kind = "gpu"
memory = "own"
compute_units = 16
clock = "1 GHz"
flops = "600 GFLOP/s"
bandwidth = "200 GB/s"
global_memory = "4 GiB"
[[link]]
from = "host"
to = "gpu0"
both_ways = true
bandwidth = "2 GB/s"
latency = "20 us"
"""
DOCUMENT = {
    "manycl": 1,
    "parameters": {"n": 1 << 24},
    "source": "k.cl",
    "buffers": {"out": {"type": "float", "shape": "n", "init": "undefined"}},
    "kernels": [{"name": "big", "global": "n", "local": 256, "args": ["out", "n"]}],
    "outputs": ["out"],
}


@pytest.fixture
def big(tmp_path: Path) -> Path:
    (tmp_path / "k.cl").write_text(SOURCE)
    (tmp_path / "m.toml").write_text(MACHINE)
    (tmp_path / "app.json").write_text(json.dumps(DOCUMENT))
    return tmp_path


def test_no_policy_computes_where_the_result_comes_home_later(big: Path) -> None:
    """The CPU takes 39.3 ms; the GPU 7.0, and its result 33.6 on the way; half and half is there in half the time."""
    application = load_application(str(big / "app.json"), {})
    p, _ = problem_of(application, described_machine(str(big / "m.toml")), {}, {})
    cpu, gpu = (p.estimates.launch(0, d) for d in p.machine.indices)
    home = p.estimates.transfer(1 << 26, 1, 0)
    assert gpu < 0.2 * cpu < cpu < gpu + home
    for name in ("in_order", "heft", "eager", "clustering", "mkmd_coarse", "portfolio", "pns", "mig_heft"):
        assert simulate(p, name).makespan <= cpu + 2 * p.handover, name
    for name in ("mkmd", "balance", "repara"):
        trace = simulate(p, name)
        assert trace.makespan < 0.52 * cpu, name
        moved = sum(e.nbytes for e in trace.events if isinstance(e, TransferEvent) and e.target == "host")
        assert 0.4 < moved / (1 << 26) < 0.6, name


def test_plans_and_pictures_show_the_results(big: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = [str(big / "app.json"), "--machine", str(big / "m.toml")]
    assert main(["plan", *where, "--policy", "heft", "--json", "--graph", str(big / "g.dot")]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert [a["node"] for a in planned["plan"]["assignments"]] == [0, 1]
    assert "results" in (big / "g.dot").read_text()
    assert main(["simulate", *where, "--policy", "heft", "--json"]) == 0
    simulated = json.loads(capsys.readouterr().out)
    assert simulated["simulated_s"] == pytest.approx(planned["plan"]["makespan"])


def repeated(times: int, every: int, condition: bool) -> Application:
    builder = GraphBuilder()
    a, b, c = (builder.buffer(4, name) for name in "abc")
    builder.add(launch("k", (a,), (b, c)))
    until = ("host.py", "converged") if condition else None
    contents = {key: Contents("zeros", "float32", (1,)) for key in (a, b, c)}
    outputs = (Output("a", a, "float32", (1,)),)
    iterate = Iterate(times, ((a, b),), until, (c,), every)
    return Application("loop", builder.build(), contents, outputs, iterate=iterate)


def test_repetitions_are_read_when_the_host_reads() -> None:
    """Outputs after the last one, under the names that they have in the graph: a and b have exchanged contents then."""
    a, b, c = map(BufferKey, range(3))
    assert [repeated(4, 2, True).read_after(turn) for turn in (1, 2, 3, 4)] == [(), (c,), (), (c, b)]
    assert [repeated(2, 1, False).read_after(turn) for turn in (1, 2)] == [(), (b,)]
    assert a not in repeated(1, 1, False).read_after(1)
