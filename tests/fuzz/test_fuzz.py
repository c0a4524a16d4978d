"""Random programs of OpenCL C leave the same with every implementation that is here (``scripts/fuzz``; see there)."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def fuzz(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "fuzz"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_fresh_programs_are_alike(tmp_path: Path) -> None:
    """Which they are is printed first."""
    first = random.SystemRandom().randrange(10**6, 10**9)
    done = fuzz("--first", str(first), "--count", "20", "--jobs", "1", "--keep", str(tmp_path))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
