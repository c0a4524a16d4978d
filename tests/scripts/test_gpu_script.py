"""scripts/gpu: what it packs comes out whole elsewhere, damage is told, and steps end with their outcome in JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT


def gpu(*words: object, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "scripts" / "gpu"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree and a file beside it, in parts of a MiB."""
    folder = tmp_path_factory.mktemp("gpu") / "packed"
    added = folder.parent / "added file"
    added.write_bytes(bytes(range(256)) * 10)
    done = gpu("pack", "--to", folder, "--part", 1, "--only", "tree", "--add", added)
    assert done.returncode == 0, done.stderr
    manifest = json.loads(done.stdout)
    assert manifest == json.loads((folder / "manifest.json").read_text())
    assert {p.name: p.stat().st_size for p in folder.iterdir() if p.name in manifest["parts"]} == {
        name: part["bytes"] for name, part in manifest["parts"].items()
    }
    assert sum(name.startswith("tree.part") for name in manifest["parts"]) > 1
    assert max(p["bytes"] for name, p in manifest["parts"].items() if ".part" in name) == 1 << 20
    return folder


@pytest.fixture(scope="module")
def tree(packed: Path) -> Path:
    """The tree, unpacked in another folder."""
    below = packed.parent / "another folder"
    done = gpu("unpack", packed, "--to", below)
    assert done.returncode == 0, done.stderr
    return below / str(ROOT).lstrip("/")


def results(folder: Path) -> dict[str, Any]:
    return {step["name"]: step for step in json.loads((folder / "results.json").read_text())["steps"]}


def test_files_come_out_as_they_were(packed: Path, tree: Path) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.splitlines() if (ROOT / name).exists()]
    assert len(names) > 100
    for name in names:
        assert (tree / name).read_bytes() == (ROOT / name).read_bytes(), name
    added = packed.parent / "added file"
    assert (packed.parent / "another folder" / str(added).lstrip("/")).read_bytes() == added.read_bytes()


@pytest.mark.parametrize("fault", ["missing", "damaged"])
def test_parts_that_are_not_whole_are_named_before_anything_is_unpacked(
    packed: Path, tmp_path: Path, fault: str
) -> None:
    bad = tmp_path / "carried"
    bad.mkdir()
    for path in packed.iterdir():
        (bad / path.name).write_bytes(path.read_bytes())
    part = bad / "tree.part001"
    if fault == "missing":
        part.unlink()
    else:
        part.write_bytes(part.read_bytes()[:-1] + b"?")
    done = gpu("unpack", bad, "--to", tmp_path / "there")
    assert done.returncode == 1
    assert "tree.part001" in done.stderr
    assert "tree.part000" not in done.stderr
    assert "carry" in done.stderr
    assert not any((tmp_path / "there").iterdir())


def test_what_was_unpacked_runs(packed: Path, tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tree / "tests" / "test_trivial.py").write_text("def test_this(): pass\n\n\ndef test_that(): assert 1 == 2\n")
    (tree / "benchmarks" / "trivial.py").write_text(
        "import sys, manycl\n"
        "if __name__ == '__main__': open(sys.argv[sys.argv.index('--output') + 1], 'w').write(manycl.__file__)\n"
    )
    (tree / "benchmarks" / "endless.py").write_text(
        "import subprocess, sys, time\n"
        "if __name__ == '__main__':\n"
        "    if len(sys.argv) > 1: subprocess.run([sys.executable, __file__])\n"
        "    time.sleep(1e6)\n"
    )
    done = gpu("run", "--devices", "cpu", "--out", out, "--tests", "tests/test_trivial.py -k 'this or that'",
               "--benchmark", "trivial", "--page", "MANYCL_DEBUG=0 hopping", root=tree)  # fmt: skip
    assert done.returncode == 1, done.stderr  # for the test that fails
    found = results(out)
    assert {name: step["status"] for name, step in found.items()} == {
        "devices": 0,
        "tests": 1,
        "trivial": 0,
        "page_1_hopping": 0,
    }
    assert json.loads((out / "devices.log").read_text())["selection"] == "cpu"
    assert (out / "trivial.json").read_text() == str(tree / "manycl" / "__init__.py"), "the unpacked tree's"
    suite = next(ElementTree.parse(out / "tests.xml").iter("testsuite"))
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")

    made = json.loads((out / "pages" / "hopping.json").read_text())["made"]
    assert made["command"].endswith(" manycl bench hopping --output docs/results")
    assert "MANYCL_DEBUG=0 " in made["command"]
    assert "MANYCL_DEVICES" not in made["command"]
    assert made["commit"] == json.loads((packed / "manifest.json").read_text())["commit"] != ""
    assert {"hopping.md", "hopping_model.svg"} <= {p.name for p in (out / "pages").iterdir()}

    late = gpu("run", "--devices", "cpu", "--out", out, "--limit", 1, "--benchmark", "endless", root=tree)
    assert late.returncode == 1
    assert results(out)["endless"]["late"] is True


def test_mistakes_are_told(tmp_path: Path) -> None:
    for name in ("no_such", "devices", "devices no_such"):
        unknown = gpu("run", "--out", tmp_path / "out", "--benchmark", name)
        assert unknown.returncode == 1
        assert "devices ranges" in unknown.stderr
        assert "everyday" in unknown.stderr
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").touch()
    full = gpu("pack", "--to", tmp_path)
    assert full.returncode == 1
    assert "not empty" in full.stderr
    nothing = gpu("unpack", tmp_path)
    assert nothing.returncode == 1
    assert "unpack.sh is missing" in nothing.stderr
