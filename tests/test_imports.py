"""What is imported before anything runs: only what the names themselves need, so that programs start soon."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

RUNS = {"pyopencl", "pytools", "sqlite3", "islpy", "clang", "ortools", "platformdirs"}
"""What planning, compiling and running need."""
SHOWS = {"matplotlib", "rich", "PIL"}
TESTS = {"pytest", "hypothesis", "jsonschema"}
ENGINE = {
    "manycl.run.engine.engine",
    "manycl.run.session.session",
    "manycl.run.lowering.lower",
    "manycl.model.history.history",
    "manycl.analysis.interpreter.interpret",
}
READS = {
    "manycl.analysis.interpreter.interpret",
    "manycl.analysis.texts.merge",
    "manycl.analysis.texts.rewrite",
    "manycl.analysis.reading.frontend",
}
"""What finds out about kernels that nobody has seen before."""
HELP = """
from manycl import cli
try:
    cli.main(["--help"])
except SystemExit:
    pass
"""
EXEC = "from manycl import cli; cli.main(['exec', '--devices', 'cpu', '--env'])"


def loaded(code: str) -> set[str]:
    """The modules that a fresh process has after running ``code``, and the packages they are in."""
    tell = "\nimport json, sys; sys.stderr.write(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code + tell], capture_output=True, text=True, check=True)
    names = json.loads(run.stderr)
    return {".".join(words[: n + 1]) for words in (name.split(".") for name in names) for n in range(len(words))}


@pytest.mark.parametrize(
    ("code", "never"),
    [
        ("import manycl", RUNS | SHOWS | TESTS | ENGINE | {"numpy", "manycl.api.queue", "manycl.cli"}),
        ("from manycl import *", RUNS | SHOWS | TESTS | ENGINE | {"manycl.cli", "manycl_bench", "manycl.report"}),
        (HELP, RUNS | SHOWS | TESTS | ENGINE | {"numpy", "manycl.api.queue", "manycl.plan"}),
        (EXEC, (RUNS | SHOWS | TESTS | ENGINE | {"numpy", "manycl.api.queue", "manycl.plan"}) - {"platformdirs"}),
        (
            "import manycl; manycl.Queue('cpu').close()",
            SHOWS | TESTS | READS | {"islpy", "clang", "ortools", "manycl.plan.policies.classical.portfolio"},
        ),
    ],
    ids=["the package", "all its names", "manycl --help", "manycl exec", "a queue"],
)
def test_only_what_is_needed_is_imported(code: str, never: set[str]) -> None:
    found = loaded(code)
    assert "manycl" in found
    assert not found & never


def test_the_names_are_there() -> None:
    assert {"manycl.api.queue", "manycl.api.program", "manycl.plan.policy"} <= loaded("from manycl import *")


WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, *others):
        if name.partition(".")[0] == "manycl_bench":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from manycl import cli
"""


def test_the_command_line_works_without_the_experiments() -> None:
    """And says what is missing."""
    words = [["--help"], ["bench", "mkmd"], ["bench"], ["simulate", "--machines"]]
    runs = [
        subprocess.run([sys.executable, "-c", f"{WITHOUT}sys.exit(cli.main({w}))"], capture_output=True, text=True)
        for w in words
    ]
    assert [r.returncode for r in runs] == [0, 2, 2, 0]
    assert "manycl_bench is missing" in " ".join(runs[0].stdout.split())
    assert all("bench needs the package manycl_bench" in " ".join(r.stderr.split()) for r in runs[1:3])
    assert "Traceback" not in "".join(r.stderr for r in runs)
