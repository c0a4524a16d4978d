"""What a specification may run and write: beneath its folder and the working folder, unless it is trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from manycl.applications.load import load_application
from manycl.cli import main
from manycl.errors import SpecificationError

SOURCE = "kernel void one(global float *a) { a[get_global_id(0)] = 1; }"
EVIL = "open(MARK, 'w').close()\ndef converged(now):\n    return True\ndef reference(inputs):\n    return {}\n"


def written(folder: Path, **fields: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "one.cl").write_text(SOURCE)
    document = {
        "manycl": 1,
        "source": "one.cl",
        "buffers": {"a": {"type": "float", "shape": 16}},
        "kernels": [{"name": "one", "global": 16, "args": ["a"]}],
        **fields,
    }
    path = folder / "app.json"
    path.write_text(json.dumps(document))
    return path


def places(tmp_path: Path) -> dict[str, str]:
    """Ways out of a folder."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "link").symlink_to(tmp_path)
    (tmp_path / "app" / "link.py").symlink_to(tmp_path / "evil.py")
    (tmp_path / "evil.py").write_text(f"MARK = {str(tmp_path / 'mark')!r}\n{EVIL}")
    absolute = str(tmp_path / "evil.py")
    return {"above": "../evil.py", "absolute": absolute, "a linked folder": "link/evil.py", "a link": "link.py"}


def test_python_files_lie_beneath_the_specification(tmp_path: Path) -> None:
    for file in places(tmp_path).values():
        fields: dict[str, dict[str, Any]]
        for fields in ({"iterate": {"times": 2, "until": {"file": file}}}, {"check": {"file": file}}):
            path = written(tmp_path / "app", **fields)
            with pytest.raises(SpecificationError, match="a Python file outside of") as caught:
                load_application(path)
            assert "--trust" in caught.value.hint
            assert load_application(path, trust=True).name == "app"


def test_the_command_runs_them_when_told_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = places(tmp_path)["above"]
    path = written(tmp_path / "app", iterate={"times": 2, "until": {"file": file}})
    for command in ("run", "plan"):
        assert main([command, str(path), "--devices", "cpu/2"]) == 2
        assert "--trust" in capsys.readouterr().err
        assert not (tmp_path / "mark").exists()
    assert main(["run", str(path), "--devices", "cpu/2", "--quiet", "--trust"]) == 0
    assert (tmp_path / "mark").exists()


def test_results_are_written_beneath_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    victim = tmp_path / "victim.npy"
    victim.write_text("mine")
    for save in ("../victim.npy", "../victim", str(victim)):
        path = written(tmp_path / "app", outputs=[{"buffer": "a", "save": save}])
        assert main(["run", str(path), "--devices", "cpu/2", "--quiet"]) == 2
        assert victim.read_text() == "mine"
    for save in ("b.npy", str(here / "c.npy"), str(tmp_path / "app" / "d.npy"), "e"):
        path = written(tmp_path / "app", outputs=[{"buffer": "a", "save": save}])
        assert main(["run", str(path), "--devices", "cpu/2", "--quiet"]) == 0
    assert sorted(p.name for p in here.iterdir()) == ["b.npy", "c.npy", "e.npy"]
    assert (tmp_path / "app" / "d.npy").exists()
    path = written(tmp_path / "app", outputs=[{"buffer": "a", "save": str(victim)}])
    assert main(["run", str(path), "--devices", "cpu/2", "--quiet", "--trust"]) == 0
    assert victim.read_bytes()[:6] == b"\x93NUMPY"
