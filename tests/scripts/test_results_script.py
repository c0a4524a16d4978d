"""scripts/results: pages whose runs are simulated say what the simulator says today."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "scripts" / "results"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def test_a_simulated_page_is_true_but_for_a_figure_that_was_changed(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "results", tmp_path / "scripts")
    for name in ("manycl", "manycl_bench"):
        (tmp_path / name).symlink_to(ROOT / name)
    page = tmp_path / "docs" / "results" / "pyschedcl_simulated.json"
    page.parent.mkdir(parents=True)
    figures = json.loads((ROOT / "docs" / "results" / page.name).read_text(encoding="utf-8"))
    figures["several_queues"][0]["how"]["simulated"]["one_ms"] *= 1.01
    page.write_text(json.dumps(figures), encoding="utf-8")
    ended = ran(tmp_path, "--check", page.stem)
    assert ended.returncode != 0
    _, line = ended.stdout.strip().splitlines()  # the command, and what differs
    assert line.startswith("pyschedcl_simulated.several_queues[0].how.simulated.one_ms: ")
    assert "1 figures of pages are not what they are now" in ended.stderr


@pytest.mark.parametrize(
    ("words", "said"), [(["nothing"], "there is no page nothing"), (["--check", "models"], "was measured")]
)
def test_wrong_words(words: list[str], said: str) -> None:
    ended = ran(ROOT, *words)
    assert ended.returncode != 0
    assert said in ended.stderr
