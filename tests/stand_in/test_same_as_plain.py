"""Programs find on manycl what they find with plain PyOpenCL: every case of `cases`, value by value and error by
error. Each is run twice, by one process with PoCL alone and by one that ``manycl exec`` has started, on two parts."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).parent / "cases"
PLAIN = [sys.executable, str(CASES / "run_cases.py")]
EXEC = [sys.executable, "-m", "manycl", "exec", "--devices", "cpu/2", "--"]


def cases(pattern: str) -> list[str]:
    """All cases of some files, by the names that they have in what ``run_cases.py`` prints."""
    return [
        f"{path.stem}.{node.name}"
        for path in sorted(CASES.glob(pattern))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")
    ]


@cache
def found(*command: str, **settings: str) -> dict[str, Any]:
    """What all cases find, which takes seconds: once for all workers of a run of tests."""
    name = sha256(repr((command, settings)).encode()).hexdigest()
    kept = Path(os.environ["POCL_CACHE_DIR"]).with_name(f"{name}.json")
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            environment = os.environ | settings
            ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)
            assert ended.returncode == 0, ended.stderr[-2000:]
            kept.write_text(ended.stdout, encoding="utf-8")
    return dict(json.loads(kept.read_text(encoding="utf-8")))


@pytest.mark.parametrize("case", cases("cases_*.py"))
def test_as_plain_pyopencl(case: str) -> None:
    assert found(*EXEC, *PLAIN)[case] == found(*PLAIN, "--plain")[case]


def test_as_plain_pyopencl_divided_and_moved() -> None:
    """The same where each kernel that can be is divided, over devices with memories of their own."""
    divided = found(*EXEC[:-1], "--policy", "tenths", "--", *PLAIN, MANYCL_ZERO_COPY="0")
    plain = found(*PLAIN, "--plain")
    assert {case: (divided[case], plain[case]) for case in plain if divided[case] != plain[case]}.keys() == {"platform"}


def test_the_program_sees_one_platform() -> None:
    assert found(*EXEC, *PLAIN)["platform"] == "manycl"
    assert found(*PLAIN, "--plain")["platform"] != "manycl"


@pytest.mark.parametrize("case", cases("expected_*.py"))
def test_as_numpy(case: str) -> None:
    seen, expected = found(*EXEC, *PLAIN)[case]
    assert seen == expected
