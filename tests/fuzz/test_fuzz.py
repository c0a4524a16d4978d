"""Random programs of OpenCL C leave the same with every implementation that is here (``scripts/fuzz``; see there)."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from tests import ROOT, environment


def fuzz(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "fuzz"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_fresh_programs_are_alike(tmp_path: Path) -> None:
    """Which they are is printed first."""
    first = random.SystemRandom().randrange(10**6, 10**9)
    done = fuzz("--first", str(first), "--count", "12", "--jobs", "1", "--keep", str(tmp_path))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


SHRINKS = """
from tests.fuzz.fuzz_kernel import kernel
from tests.fuzz.fuzz_shrink import shrunk

made, tried = kernel(61003080), []
small = shrunk(made, lambda k: tried.append(k) or "remainder(" in k.text, {work})
print(len(tried), len(small.text) / len(made.text), "remainder(" in small.text)
"""


def test_kernels_are_made_smaller_in_so_many_trials() -> None:
    before = 1.0
    for work in (10, 100):
        command = [sys.executable, "-c", SHRINKS.replace("{work}", str(work))]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
        trials, size, differs = done.stdout.split()
        assert int(trials) <= work
        assert float(size) < before
        assert differs == "True"
        before = float(size)
