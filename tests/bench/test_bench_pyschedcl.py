"""PySchedCL's experiments: all policies are timed alike, on devices and on a described machine."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from manycl.cli import main
from manycl_bench import pyschedcl
from manycl_bench.pyschedcl import PUBLISHED_QUEUES, Settings

SMALL = ["--heads", "2", "--queue-betas", "32", "--betas", "32", "--most-heads", "2", "--queues", "2"]


def test_on_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "pyschedcl", "--devices", "cpu/2", *SMALL, "--repeats", "2", "--output", str(tmp_path), "--json"]
    assert main(words) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures == json.loads((tmp_path / "pyschedcl.json").read_text(encoding="utf-8"))
    (row,) = figures["policies"]
    for of in row["samples_ms"].values():  # equally often, in both ways
        assert {how: len(taken) for how, taken in of.items()} == {"anew": 2, "prepared": 2}
    assert row["samples_ms"].keys() == {"clustering", "eager", "heft"}
    for how, of in row["how"].items():
        taken = {policy: row["samples_ms"][policy][how] for policy in ("clustering", "eager")}
        assert of["over_eager"] == pytest.approx(sum(taken["eager"]) / sum(taken["clustering"]))  # medians of two
    pictures = {"pyschedcl.png", *(f"pyschedcl_{p}.png" for p in ("clustering", "eager", "heft"))}
    assert {p.name for p in tmp_path.iterdir()} == {"pyschedcl.json", "pyschedcl.md", *pictures}
    assert "cpu/2" in figures["made"]["command"]


def test_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way once in every turn, both ways of running it, from one end and from the other."""
    bench = pyschedcl.Real("cpu/2", 1, 32, Settings(cold=True))
    ran = []
    monkeypatch.setattr(bench, "_run", lambda way, kept: ran.append((way.policy, kept is not None)) or 1.0)
    try:
        taken = bench.in_turns({"a": pyschedcl.EAGER, "b": pyschedcl.HEFT}, 2, 1)
    finally:
        bench.close()
    each = [("eager", False), ("eager", True), ("heft", False), ("heft", True)]
    assert ran == [*each, *each[2:], *each[:2], *each]
    assert taken["a"] == {"anew": [1.0, 1.0], "prepared": [1.0, 1.0]}


def test_on_its_machine_one_queue_takes_what_it_took_there(capsys: pytest.CaptureFixture[str]) -> None:
    """The GPU's rate is that of 16 heads; the other published figures follow within 9 %, which is one head's."""
    settings = Settings(heads=tuple(PUBLISHED_QUEUES), betas=(64,), queues=(2, 5), machine="pyschedcl")
    for row in pyschedcl.several_queues(None, settings, lambda text: None):
        one, _ = PUBLISHED_QUEUES[row["heads"]]
        assert row["how"]["simulated"]["one_ms"] == pytest.approx(one, rel=0.09)
        assert row["best_cpu_heads"] == (1 if row["heads"] > 10 else 0)  # Figure 11
    assert main(["bench", "pyschedcl", "--machine", "pyschedcl", *SMALL]) == 0
    out = capsys.readouterr().out
    assert "simulated_over_eager_geomean" in out
    assert "…" not in out


def test_late_callbacks_hold_up_who_waits_for_them() -> None:
    """Clustering's components need none until the results are there; each of the others' kernels that waits for another
    device's does."""
    settings = Settings(betas=(64,), queues=(5,), machine="pyschedcl", most_heads=4)
    (row,) = pyschedcl.against_others(None, settings, lambda text: None)
    plain, late = (row["how"][how] for how in ("simulated", "late callbacks"))
    assert late["clustering_ms"] <= plain["clustering_ms"] + settings.callback_delay * 1e3
    for rival in ("eager", "heft"):
        assert late[f"{rival}_ms"] > plain[f"{rival}_ms"] + 2 * settings.callback_delay * 1e3
    (row,) = pyschedcl.against_others(None, replace(settings, callback_delay=0.0), lambda text: None)
    assert set(row["how"]) == {"simulated"}
    assert row["how"]["simulated"] == plain


def test_late_callbacks_are_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "pyschedcl", "--callback-delay", "1ms"]) != 0
    assert "give a --machine, too" in capsys.readouterr().err
    sample = str(pyschedcl.SPECIFICATION)
    words = ["simulate", sample, "-D", "H=1", "-D", "beta=64", "--machine", "pyschedcl", "--policy", "eager", "--json"]
    took = []
    for more in ([], ["--callback-delay", "2ms"]):
        assert main([*words, *more]) == 0
        took.append(json.loads(capsys.readouterr().out)["simulated_s"])
    assert took[1] > took[0] + 2e-3
    assert main([*words, "--callback-delay", "soon"]) != 0


def test_one_queue_does_everything_in_turn() -> None:
    """One head after another by one queue, with transfers in it: no command runs beside another, as in Figure 4; with
    several queues some do."""
    bench = pyschedcl.opened(None, 2, 256, Settings(machine="pyschedcl"))
    assert isinstance(bench, pyschedcl.Simulated)
    found = []
    for queues in (1, 3):
        trace = bench.trace(pyschedcl.clustering(bench, queues, 0, alone=True))
        spans = sorted((e.start, e.end) for e in (*trace.kernels(), *trace.transfers()))
        found.append(sum(max(0.0, end - start) for (_, end), (start, _) in itertools.pairwise(spans)))
    assert found[0] == pytest.approx(0.0, abs=1e-9)
    assert found[1] > 1e-4


def test_two_kernels_of_a_fork_share_the_gpu() -> None:
    """Figure 1: by three queues k1 and k2 run together, each longer than alone, and their inputs come together; all
    ends sooner."""
    found = pyschedcl.in_queues(Settings(betas=(64,), machine="pyschedcl"))
    by_one, by_three = found["fork_join_1"], found["fork_join_3"]
    kernels = [{e.name: e for e in trace.kernels()} for trace in (by_one, by_three)]
    assert [{name: e.device for name, e in of.items()} for of in kernels] == [
        {"k0": "cpu0", "k1": "gpu0", "k2": "gpu0", "k3": "cpu0"}
    ] * 2
    assert kernels[0]["k2"].start >= kernels[0]["k1"].end
    assert kernels[1]["k2"].start == kernels[1]["k1"].start
    for name in ("k1", "k2"):
        alone, beside = (of[name].end - of[name].start for of in kernels)
        assert alone < beside < 2.0 * alone
    sent = [sorted((e.start, e.end) for e in trace.transfers()) for trace in (by_one, by_three)]
    together = [any(b < end for (_, end), (b, _) in itertools.pairwise(of[:3])) for of in sent]
    assert together == [False, True]
    assert by_three.makespan < by_one.makespan


def test_the_eleventh_head_is_the_first_that_the_processor_takes() -> None:
    settings = Settings(heads=(10, 11), queues=(5,), machine="pyschedcl")
    found = pyschedcl.several_queues(None, settings, lambda text: None)
    assert [r["best_cpu_heads"] for r in found] == [0, 1]


def test_half_of_the_heads_are_tried_where_devices_are_alike() -> None:
    alike = pyschedcl.opened("cpu/2", 4, 32, Settings())
    slower = pyschedcl.opened("cpu/2#0,cpu/2#1@4", 4, 32, Settings())
    try:
        found = [{h for _, h in pyschedcl.configurations(bench, Settings(queues=(2,)))} for bench in (alike, slower)]
    finally:
        alike.close()
        slower.close()
    assert found == [{0, 1, 2}, {0, 1}]
