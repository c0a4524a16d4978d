"""Promises about the package as a whole: what is imported when, and what is shipped."""

from __future__ import annotations

import ast
import fnmatch
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import grimp
import pyopencl
import pytest

from tests import ROOT

PACKAGE = ROOT / "manycl"
PACKAGES = (PACKAGE, ROOT / "manycl_bench", ROOT / "manycl_c")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACT = SETTINGS["tool"]["importlinter"]["contracts"][0]["layers"]
HEAVY = {"numpy", "pyopencl", "clang", "matplotlib", "jsonschema", "rich"}


def stage(module: str) -> str:
    """``manycl.run.engine.engine`` belongs to ``manycl.run``; the experiments are one."""
    package, *inner = module.split(".")
    return package if package != "manycl" or not inner else f"{package}.{inner[0]}"


def modules() -> list[Path]:
    """All but the examples, which are nobody's modules: they are copied, and import manycl like any program."""
    return sorted(p for package in PACKAGES for p in package.rglob("*.py") if PACKAGE / "examples" not in p.parents)


KINDS = (ast.Attribute, ast.Call, ast.ClassDef, ast.Import, ast.ImportFrom)


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Of a module's tree what the tests look at: to walk through all of it takes longer than to parse it."""
    return tuple(n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, KINDS))


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_every_module_has_a_layer():
    layers = {name.strip() for line in CONTRACT for name in line.split("|")}
    homeless = {stage(name_of(p)) for p in modules()} - layers - {"manycl", "manycl.__main__"}
    assert not homeless, "scripts/check says nothing about the imports of these: add them to pyproject.toml"


@pytest.mark.parametrize("module", ["manycl", "manycl.cli"])
def test_start_up_imports_nothing_heavy(module):
    code = f"import sys, {module}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == []


def test_only_flags_and_the_drivers_read_the_environment():
    # the last are what other processes are given, and what is there where there is no manycl
    allowed = {"manycl.flags", "manycl.drivers.opencl.icd"}
    allowed |= {"manycl.stand_in.environment", "manycl_c.environment", "manycl_c.building"}
    allowed |= {"manycl.stand_in.site.sitecustomize"}
    readers = set()
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}:
                readers.add(name_of(path))
    assert readers <= allowed


def test_no_two_classes_have_one_name() -> None:
    """Whoever looks for a class by its name finds the one that is meant; private ones, and those in functions, too.
    What stands in for a class of PyOpenCL's is called like that."""
    theirs = set(vars(pyopencl._cl))
    homes: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and not ("stand_in" in path.parts and node.name in theirs):
                homes.setdefault(node.name, set()).add(f"{path.relative_to(ROOT).as_posix()}:{node.lineno}")
    assert {name: sorted(places) for name, places in homes.items() if len(places) > 1} == {}


def imported() -> dict[str, set[str]]:
    """By module, the modules that it imports anywhere: at once, late inside of functions, by a name that is written
    there, and for types alone."""
    known = {name_of(path): path for path in modules()}
    found: dict[str, set[str]] = {}
    for name, path in known.items():
        names = {alias.name for node in nodes(path) if isinstance(node, ast.Import) for alias in node.names}
        calls = [node for node in nodes(path) if isinstance(node, ast.Call) and len(node.args) == 1]
        calls = [call for call in calls if ast.unparse(call.func).endswith("import_module")]
        names |= {str(call.args[0].value) for call in calls if isinstance(call.args[0], ast.Constant)}
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                names |= {full if full in known else node.module for full in inner.values()}
        found[name] = names & known.keys() - {name}
    return found


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The sets of modules of which each imports each other one, if only by others (Tarjan's algorithm)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        numbers[name] = lowest[name] = len(numbers)
        stack.append(name)
        for other in graph[name]:
            if other not in numbers:
                visit(other)
            if other in stack:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == numbers[name]:
            start = stack.index(name)
            found.append(set(stack[start:]))
            del stack[start:]

    for name in graph:
        if name not in numbers:
            visit(name)
    return found


def test_circles_of_imports_are_small() -> None:
    """Modules that import each other can only be understood together: at most three."""
    assert [sorted(circle) for circle in circles(imported()) if len(circle) > 3] == []


@cache
def folder_imports() -> dict[str, set[str]]:
    """By folder of modules, the other folders that its modules import from."""
    of = {name_of(path): name_of(path.with_name("__init__.py")) for path in modules()}
    found: dict[str, set[str]] = {}
    for name, others in imported().items():
        found.setdefault(of[name], set()).update(of[other] for other in others)
    return {folder: others - {folder} for folder, others in found.items()}


def may_import(folder: str) -> str | None:
    """What the docstring of a folder says about imports: of a stage by the order of stages, of a folder in a stage by
    what is imported of the stage; of others nothing."""
    own = stage(folder)
    if folder == own:
        places = [i for i, line in enumerate(CONTRACT) if own in line.split(" | ")]
        below = [name.removeprefix("manycl.") for place in places for name in CONTRACT[place + 1].split(" | ")]
        return f"May import {', '.join(below)} and the stages before." if places else None
    names = [other.removeprefix(f"{own}.") for other in sorted(folder_imports()[folder]) if stage(other) == own]
    names = ["its modules" if name == own else name for name in names]
    return f"May import, of {own.removeprefix('manycl.')}: {', '.join(names) or 'nothing'}."


def test_folders_say_what_they_may_import() -> None:
    """A folder that imports from one more says so, and one that does not any more says so, too."""
    wrong = {}
    for init in modules():
        if init.name == "__init__.py" and (said := may_import(name_of(init))) is not None:
            last = (ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or "").rpartition("\n\n")[2]
            if " ".join(last.split()) != said:
                wrong[name_of(init)] = said
    assert wrong == {}


def test_what_decides_reads_no_clock() -> None:
    """Verdicts and plans must not depend on how busy the machine is: limits are counted in work."""
    told = {
        "manycl/analysis/worker.py",  # ends its own process
        "manycl/model/history/store.py",  # dates of measurements, and waiting for a file
    }
    reads = set()
    for stage_ in ("analysis", "graph", "model", "plan"):
        for path in (PACKAGE / stage_).rglob("*.py"):
            names = {a.name for n in nodes(path) if isinstance(n, ast.Import) for a in n.names}
            names |= {str(n.module) for n in nodes(path) if isinstance(n, ast.ImportFrom)}
            if names & {"time", "datetime"}:
                reads.add(path.relative_to(ROOT).as_posix())
    assert reads == told


def test_what_is_called_pure_is_pure_by_import() -> None:
    """Whatever a module that says so imports, and what that imports: no process, device, file or clock."""
    effects = {"islpy", "pyopencl", "socket", "sqlite3", "subprocess", "tempfile", "time", "manycl.analysis.service"}
    graph = grimp.build_graph("manycl", include_external_packages=True)
    texts = {m: text for m in modules() if "Pure" in (text := m.read_text(encoding="utf-8"))}
    called = [m for m, text in texts.items() if re.search(r"\bPure\b", ast.get_docstring(ast.parse(text)) or "")]
    assert len(called) > 15
    for path in called:
        found = effects & graph.find_upstream_modules(name_of(path))
        chains = [graph.find_shortest_chain(name_of(path), effect) for effect in sorted(found)]
        assert not chains


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_every_data_file_is_shipped(package: Path) -> None:
    patterns = [p.removeprefix("**/") for p in SETTINGS["tool"]["setuptools"]["package-data"][package.name]]
    data = [p for p in package.rglob("*") if p.is_file() and p.suffix not in {".py", ".pyc"}]
    assert package / "py.typed" in data
    assert not [p for p in data if not any(fnmatch.fnmatch(p.name, pattern) for pattern in patterns)]


BEGIN = {
    "manycl.run.engine.engine: backend.begin",
    "manycl.run.executor.command_buffer: executor.start",
    "manycl.run.executor.executor: self.underway",
    "manycl.run.streams.eager_stream: executor.underway",
    "manycl.run.streams.eager_result: executor.underway",
}
"""Where runs begin: played command graphs, recorded calls, eager streams, and what is left of one that has failed."""


def test_runs_begin_in_few_places() -> None:
    """The table in docs/design.md has as many ways as there are."""
    found = set()
    for path in modules():
        for node in nodes(path):
            is_one = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            called = ast.unparse(node.func) if is_one and node.func.attr in {"underway", "start", "begin"} else ""
            if called.endswith((".underway", "executor.start", "backend.begin")):
                found.add(f"{name_of(path)}: {called.removeprefix('self._')}")
    assert found == BEGIN
    table = (
        (ROOT / "docs" / "design.md").read_text(encoding="utf-8").partition("## Ways to run")[2].partition("\n## ")[0]
    )
    assert sum(line.startswith("| ") for line in table.splitlines()) - 1 == 6


GIVE = {
    "manycl.api.dispatch.copy_cache": "a copy like one before, by the function that the executor has made for it",
    "manycl.run.data.red_zones": "what lies around buffers, between commands",
    "manycl.run.executor.command_buffer": "recorded calls",
    "manycl.run.executor.executor": "kernels",
    "manycl.run.executor.lanes": "a probe whether a device works",
    "manycl.run.executor.sequences": "kernels of a sequence",
    "manycl.run.executor.transfers": "transfers, copies and fills",
    "manycl.run.recovery.rollback": "copies of contents between runs, and back",
    "manycl.run.recovery.undo_log": "copies of what a kernel overwrites",
    "manycl.run.session.measure": "what is measured, between runs",
    "manycl.run.streams.host_access": "the host's reads and writes within an eager stream",
    "manycl.run.streams.stream_state": "transfers of an eager stream",
}
"""The modules that give devices commands, and which; compiled code does for launches like one before."""


def test_few_modules_give_commands_to_devices() -> None:
    names = {"copy", "download", "fill", "launch", "launch_in_parts", "play", "read", "write", "_enqueue"}
    found = set()
    for path in modules():
        if not name_of(path).startswith(("manycl.run.", "manycl.api.dispatch.")):
            continue
        for node in nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
                whose = ast.unparse(node.func.value)
                if whose.endswith(("driver", "lanes", "shortening", "recorder")) or node.func.attr == "_enqueue":
                    found.add(name_of(path))
    assert found == GIVE.keys()
