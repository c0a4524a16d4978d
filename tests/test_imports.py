"""What is imported before anything runs: only what the names themselves need, so that programs start soon."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

RUNS = {"pyopencl", "pytools", "sqlite3", "islpy", "clang", "pcpp", "ortools", "platformdirs"}
"""What planning, compiling and running need."""
SHOWS = {"matplotlib", "rich", "PIL"}
TESTS = {"pytest", "hypothesis", "jsonschema"}
ENGINE = {
    "manycl.run.engine",
    "manycl.run.session",
    "manycl.run.lower",
    "manycl.model.history",
    "manycl.analysis.interpret",
}
HELP = """
from manycl import cli
try:
    cli.main(["--help"])
except SystemExit:
    pass
"""


def loaded(code: str) -> set[str]:
    """The modules that a fresh process has after running ``code``, and the packages they are in."""
    tell = "\nimport json, sys; sys.stderr.write(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code + tell], capture_output=True, text=True, check=True)
    names = json.loads(run.stderr)
    return {".".join(words[: n + 1]) for words in (name.split(".") for name in names) for n in range(len(words))}


@pytest.mark.parametrize(
    ("code", "never"),
    [
        ("import manycl", RUNS | SHOWS | TESTS | ENGINE | {"numpy", "manycl.front", "manycl.cli"}),
        ("from manycl import *", RUNS | SHOWS | TESTS | ENGINE | {"manycl.cli", "manycl.bench", "manycl.report"}),
        (HELP, RUNS | SHOWS | TESTS | ENGINE | {"numpy", "manycl.front", "manycl.plan"}),
    ],
    ids=["the package", "all its names", "manycl --help"],
)
def test_only_what_is_needed_is_imported(code: str, never: set[str]) -> None:
    found = loaded(code)
    assert "manycl" in found
    assert not found & never


def test_the_names_are_there() -> None:
    assert {"manycl.front.queue", "manycl.front.program", "manycl.plan.policy"} <= loaded("from manycl import *")
