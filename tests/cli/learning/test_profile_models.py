"""``manycl profile`` and ``manycl models``; sessions that begin with what earlier ones measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.applications.load import load_application
from manycl.applications.profiling import variations
from manycl.cli import main
from manycl.model.history.store import NAME, Store
from manycl.run.session.session import Session
from tests import ROOT

EXAMPLES = ROOT / "manycl" / "examples"
EQUATION = str(EXAMPLES / "matrix_equation" / "matrix_equation.json")
SOURCE = "__kernel void twice(__global float *a) { a[get_global_id(0)] *= 2; }"
pytestmark = pytest.mark.usefixtures("folder")


def answer(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> Any:
    capsys.readouterr()
    assert main([*words, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def profiled(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    words = ("profile", EQUATION, "-D", "n=32", "-D", "m=64", "--devices", "cpu/2", *words)
    steps: list[dict[str, Any]] = answer(capsys, *words)["steps"]
    return steps


def test_every_kernel_is_measured_at_several_sizes_once(capsys: pytest.CaptureFixture[str]) -> None:
    steps = profiled(capsys)
    assert steps[0]["parameters"] == {"n": "32", "m": "64"}
    sizes = {tuple(sorted(s["parameters"].items())) for s in steps}
    assert len(sizes) > 4
    # both halves of the processor are alike: what one has measured, the other knows
    assert {s["outcome"] for s in steps if s["device"] == "cpu0.0"} == {"measured"}
    assert {s["outcome"] for s in steps if s["device"] == "cpu0.1"} == {"known"}
    models = answer(capsys, "models", "list")
    assert [m["kernel"] for m in models] == ["matmul", "transpose"]
    for m in models:
        assert len(m["launches"]) >= len(sizes)
        assert all(len(x["samples"]) >= 3 for x in m["launches"])
        assert m["model"] in ("regression", "interpolation")
        assert m["regression"] is not None
    assert {s["outcome"] for s in profiled(capsys)} == {"known"}


def test_a_budget_leaves_the_rest_out(capsys: pytest.CaptureFixture[str]) -> None:
    steps = profiled(capsys, "--budget", "1e-6")
    assert {s["outcome"] for s in steps} == {"left out"}
    assert main(["profile", EQUATION, "--devices", "cpu/2#0", "--budget", "1e-6"]) == 0
    assert "--budget 1e-06 was too little for all" in capsys.readouterr().out
    assert answer(capsys, "models", "list", status=1) == []


def test_one_size(capsys: pytest.CaptureFixture[str]) -> None:
    steps = profiled(capsys, "--one-size")
    assert [(s["device"], s["outcome"], s["runs"]) for s in steps] == [
        ("cpu0.0", "measured", 3),
        ("cpu0.1", "known", 0),
    ]


def test_every_version_is_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "k.cl").write_text(
        "__kernel void one(__global float *a) { a[get_global_id(0)] *= 2; }\n"
        "__kernel void four(__global float *a) { for (int i = 0; i < 4; i++) a[4 * get_global_id(0) + i] *= 2; }\n"
        "__kernel void gpu(__global float *a) { a[get_global_id(0)] *= 2; }\n"
    )
    (tmp_path / "app.json").write_text(
        json.dumps(
            {
                "manycl": 1,
                "parameters": {"N": 4096},
                "buffers": {"a": {"type": "float", "shape": ["N"], "init": "zeros"}},
                "kernels": [
                    {
                        "name": "one",
                        "source": "k.cl",
                        "global": "N",
                        "local": 64,
                        "args": ["a"],
                        "versions": [
                            {"name": "four", "global": "N // 4", "local": 64},
                            {"name": "gpu", "for": "gpu", "local": 64},
                        ],
                    }
                ],
            }
        )
    )
    words = ("profile", str(tmp_path / "app.json"), "--devices", "cpu/2#0", "--one-size")
    steps = answer(capsys, *words)["steps"]
    assert [(s["version"], s["outcome"], s["runs"]) for s in steps] == [(0, "measured", 3), (1, "measured", 3)]
    assert {m["kernel"] for m in answer(capsys, "models", "list")} == {"one", "four"}
    assert [s["outcome"] for s in answer(capsys, *words)["steps"]] == ["known", "known"]


def test_only_symbols_that_change_sizes_are_varied() -> None:
    path = EXAMPLES / "transformer" / "transformer.json"
    found = variations(lambda p: load_application(path, p), {"beta": "32", "H": "2"})
    assert len(found) > 3
    assert all(set(p) == {"beta", "H"} and p["H"] == "2" for p, _ in found)
    assert all(int(p["beta"]) <= 32 for p, _ in found)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["profile", EQUATION, "--budget", "0"], "expected seconds above zero"),
        (["profile", EQUATION, "-D", "nothing=1"], "there is no such parameter"),
        (["models", "forget"], "forget what?"),
        (["models", "forget", "matmul", "--all"], "everything"),
        (["models", "list", "--all"], "--all is for forget"),
        (["models", "list", "-o", "x"], "--output is for export"),
        (["models", "export", "-o", "/no/such/folder/x"], "there is no folder"),
    ],
)
def test_bad_input(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_profiling_without_remembering_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANYCL_MODELS", "0")
    assert main(["profile", EQUATION]) == 2
    assert "MANYCL_MODELS is 0" in capsys.readouterr().err


def test_list_show_export_forget(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    profiled(capsys)
    Store().measured("some device", {"flops": 1e9})
    assert main(["models", "list"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[:3] == ["KERNEL", "GROUP", "TEXT"]
    assert [line.split()[0] for line in table[1:]] == ["matmul", "transpose", "[1]"]
    assert main(["models", "show", "transpose"]) == 0
    text = capsys.readouterr().out
    assert "regression:" in text
    assert "64x32" in text
    assert "matmul" not in text
    target = tmp_path / "models.json"
    assert main(["models", "export", "-o", str(target)]) == 0
    exported = json.loads(target.read_text())
    assert exported["measurements"] == {"some device": {"flops": 1e9}}
    assert exported["models"] == answer(capsys, "models", "list")
    assert answer(capsys, "models", "forget", "matmul")["launches"] > 4
    assert [m["kernel"] for m in answer(capsys, "models", "list")] == ["transpose"]
    assert answer(capsys, "models", "forget", "--device", "nothing like this", status=1)["launches"] == 0
    assert answer(capsys, "models", "forget", "--all")["measurements"] == 1
    assert main(["models", "list"]) == 1
    assert "nothing is known" in capsys.readouterr().err


def launch(queue: mc.Queue, times: int) -> None:
    array = queue.array(np.ones(4096, np.float32))
    for _ in range(times):
        mc.Program(SOURCE).twice(queue, (4096,), (64,), array)
    queue.finish()


def test_a_session_begins_with_what_the_last_one_measured(folder: Path) -> None:
    with mc.Queue("cpu/2#0") as queue:
        launch(queue, 4)
        assert not folder.exists()  # only at the end
    assert (folder / NAME).exists()
    with mc.Queue("cpu/2#1@3") as queue:  # the other half, and slower
        program = mc.Program(SOURCE)
        with queue.prepare() as prepared:
            program.twice(queue, (4096,), (64,), queue.zeros(4096))
        problem = queue.session.problem(prepared.graph)
        found = problem.estimates.estimate(0, 0)  # type: ignore[attr-defined]
    assert (found.source, found.samples) == ("measured", 4)
    (row,) = Store().rows()
    assert found.seconds == pytest.approx(3 * sorted(row.stored.samples[1:])[1])


@pytest.mark.parametrize("how", ["environment", "argument"])
def test_remembering_can_be_switched_off(how: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "environment":
        monkeypatch.setenv("MANYCL_MODELS", "0")
    with Session("cpu/2#0", remember=None if how == "environment" else False) as session:
        queue = mc.Queue(session=session)
        launch(queue, 2)
        session.problem(queue.result.graph)
    assert not folder.exists()


def test_the_command_line_learns_too(folder: Path) -> None:
    words = ["run", EQUATION, "-D", "n=16", "-D", "m=16", "--devices", "cpu/2", "--quiet"]
    assert main(words) == 0
    assert {r.key.kernel for r in Store(folder).rows()} == {"matmul", "transpose"}
