"""``manycl analyze`` of a specification: the versions of its kernels, and how launches may be divided by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from manycl.cli import main

SOURCE = """\
kernel void add(global const int *x, global int *y) { int i = get_global_id(0); y[i] = x[i] + 1; }
kernel void fours(global const int *x, global int *y) {
  for (int i = 4 * get_global_id(0); i < 4 * get_global_id(0) + 4; i++) y[i] = x[i] + 1; }
kernel void backwards(global const int *x, global int *y) { int i = N - 1 - get_global_id(0); y[i] = x[i] + 1; }
kernel void copied(global const int *x, global int *t) { int i = get_global_id(0); t[i] = x[i]; }
"""
VERSIONS: list[dict[str, Any]] = [
    {"for": "gpu", "name": "fours", "global": "n / 4", "local": 4},
    {"for": ["cpu", "gpu"], "name": "backwards"},
    {"file": "host.py", "function": "by_numpy", "divide": 0},
    {
        "for": "gpu",
        "buffers": {"t": {"type": "int", "shape": "n"}},
        "kernels": [{"name": "copied", "args": ["x", "t"]}, {"name": "add", "args": ["t", "y"]}],
    },
]


def written(folder: Path, *versions: dict[str, Any]) -> str:
    (folder / "k.cl").write_text(SOURCE)
    (folder / "host.py").write_text("\ndef by_numpy(items, x, y):\n    y[items] = x[items] + 1\nraise SystemExit\n")
    kernel = {"name": "add", "id": "step", "global": "n", "local": 16, "args": ["x", "y"]}
    if versions:
        kernel["versions"] = list(versions)
    document = {
        "manycl": 1,
        "source": "k.cl",
        "macros": {"N": "n"},
        "parameters": {"n": None},
        "buffers": {"x,y": {"type": "int", "shape": "n", "init": "range"}},
        "kernels": [kernel],
    }
    path = folder / "app.json"
    path.write_text(json.dumps(document))
    return str(path)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["analyze", *words, "-D", "n=256"]) == 0
    return capsys.readouterr().out


def test_each_is_told_with_how_it_is_divided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, *VERSIONS)
    assert shown(capsys, path).splitlines() == [
        "add (step): 5 versions",
        f"  add: kernel {tmp_path}/k.cl:1; 256 work-items in work-groups of 16",
        "    divided along dimension 0",
        f"  fours: kernel {tmp_path}/k.cl:2 for gpu; 64 work-items in work-groups of 4",
        "    divided along dimension 0",
        f"  backwards: kernel {tmp_path}/k.cl:4 for cpu, gpu; 256 work-items in work-groups of 16",
        "    divided along dimension 0",
        f"  by_numpy: function {tmp_path}/host.py:2 for cpu; 256 work-items in work-groups of 16",
        "    divided along dimension 0",
        "  copied + add: kernels copied, add with 1,024 bytes of temporary memory for gpu; 256 work-items in"
        " work-groups of 16",
        "    step cannot be split along dimension 0: its version copied + add is several kernels",
        "  ranges along dimension 0 may not run in different versions: ranges of work-groups do not touch the same in"
        " each of add, fours, backwards, by_numpy (argument y)",
        "",
    ]


def test_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, VERSIONS[0], VERSIONS[2])
    found = json.loads(shown(capsys, path, "step", "--json"))
    (launch,) = found["launches"]
    assert [(v["name"], v["kinds"], v["dimensions"]) for v in launch["versions"]] == [
        ("add", [], [0]),
        ("fours", ["gpu"], [0]),
        ("by_numpy", ["cpu"], [0]),
    ]
    assert launch["together"] == {"0": ""}


def test_other_numbers_of_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, VERSIONS[0] | {"local": 8})
    assert "may not run in different versions: they have 8 and 16 work-groups" in shown(capsys, path)


def test_what_cannot_be_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path)
    assert shown(capsys, path) == f"{path}: no kernel has versions\n"
    for words, said in (
        ([path], "no value for n"),
        ([path, "nothing", "-D", "n=16"], "has no kernel 'nothing'"),
        ([path, "-D", "n=16", "--global", "16"], "--global goes with OpenCL C"),
        ([str(tmp_path / "none.json")], "none.json"),
    ):
        assert main(["analyze", *words]) == 2
        assert said in capsys.readouterr().err
