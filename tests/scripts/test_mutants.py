"""The faults that scripts/mutate puts into the package: each changes one thing, and leaves what can be read. And the
tests that judge them: those that execute what is changed."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests import ROOT

SOURCE = '''"""Text with 1 and <."""
LIMIT = 3


def first(values: list[int], low: int = 0) -> int | None:
    """Not changed: a < b."""
    assert low < 9
    for value in values:
        if value > low and not value % 2:
            return value
    if not values:
        return False
    values.clear()
    raise ValueError(f"none above {low + 1}")


def validate(x: int) -> None:
    if x < 0:
        raise ValueError
'''


def script(name: str, file: str) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "scripts" / file))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    return script("mutants", "mutants.py")


@pytest.fixture(scope="module")
def mutate(mutants: ModuleType) -> ModuleType:
    script("environment", "environment.py")
    script("covered", "covered.py")
    return script("mutate", "mutate")


def test_lines_of_a_statement_are_executed_together(mutate: ModuleType) -> None:
    source = """def f(a):
    if (
        a
        > 1
    ):
        b = [
            a,
            2,
        ]
        return b
    return None
"""
    head, made = {2, 3, 4, 5}, {6, 7, 8, 9}
    expected = {2: head, 3: head, 4: head, 5: head, 6: made, 8: made, 10: {10}, 11: {11}}
    assert {line: mutate.lines(source, line) for line in expected} == expected


def test_a_mutant_is_judged_by_what_executes_it_quickest_first(mutate: ModuleType) -> None:
    module = "manycl/run/lowering/partition.py"
    found = {
        "a.py::slow": (30.0, {module: [1, 2, 3]}),
        "a.py::quick": (0.1, {module: [2]}),
        "b.py::quick": (0.11, {module: [3], "manycl/run/tiling/tiling.py": [9]}),
        "b.py::elsewhere": (0.1, {"manycl/run/tiling/tiling.py": [2]}),
        "a.py::none": (0.1, {}),
    }
    judges = mutate.judges(found, module, {2, 3})
    assert list(judges) == ["a.py::quick", "b.py::quick", "a.py::slow"]
    assert all(limit > found[test][0] for test, limit in judges.items())
    assert not mutate.judges(found, module, {4})


def test_what_runs_at_import_or_in_another_process_is_judged_by_tests_that_are_named(mutate: ModuleType) -> None:
    builtins = "tests/drivers/native/builtins/test_builtins_integer.py"
    found = {
        f"{builtins}::slow": (30.0, {}),
        f"{builtins}::quick": (0.1, {"manycl/drivers/native/builtins/elementwise.py": [7]}),
        "tests/drivers/native/test_clang.py::other": (0.1, {}),
    }
    both = [f"{builtins}::quick", f"{builtins}::slow"]
    assert list(mutate.judges(found, "manycl/drivers/native/builtins/mathematical.py", {7})) == both
    assert list(mutate.judges(found, "manycl/drivers/native/builtins/elementwise.py", {7})) == both[:1]
    assert not mutate.judges(found, "manycl/run/lowering/partition.py", {7}), "what nobody executes survives"
    for module, files in mutate.ELSEWHERE.items():
        assert [*ROOT.glob(module)]
        assert all([*ROOT.glob(file)] for file in files)


def test_modules_of_all_folders_are_drawn_from(mutate: ModuleType) -> None:
    found = {str(path.relative_to(ROOT)) for pattern in mutate.WHERE for path in ROOT.glob(pattern)}
    kept = {entry["file"] for entry in json.loads((ROOT / "scripts" / "mutants_kept.json").read_text(encoding="utf-8"))}
    assert {name for name in kept if name.count("/") > 1} <= found


def test_what_judges_is_there(mutate: ModuleType) -> None:
    assert all(list(ROOT.glob(pattern)) for pattern in mutate.TESTS)
    assert all(list(ROOT.glob(f"tests/**/{name}")) for name in mutate.LEFT_OUT)


def test_executed_lines_are_told_apart_test_by_test(mutate: ModuleType, tmp_path: Path) -> None:
    """In a process of its own: where tests are run with coverage, two would be one too many."""
    pytest.importorskip("coverage")
    for name in ("__init__", "run/__init__", "analysis/__init__", "analysis/worker", "analysis/service"):
        path = tmp_path / "manycl" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("_answer = None\n")
    (tmp_path / "manycl" / "run" / "it.py").write_text("def f(a):\n    if a:\n        return 1\n    return 2\n")
    tests = "from manycl.run.it import f\n"
    tests += "def test_one(): assert f(1) == 1\ndef test_two(): assert f(0) == 2\ndef test_no(): assert f(0) == 1\n"
    (tmp_path / "tests" / "run").mkdir(parents=True)
    (tmp_path / "tests" / "run" / "test_it.py").write_text(tests)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mutate, "CACHE", tmp_path / "cache")
        found = mutate.executed(tmp_path)
        source = (tmp_path / "manycl" / "run" / "it.py").read_text()
        one, two = (f"tests/run/test_it.py::test_{name}" for name in ("one", "two"))
        lines = {test: modules["manycl/run/it.py"] for test, (_, modules) in found.items()}
        assert lines == {one: [2, 3], two: [2, 4]}, "what fails judges nothing"
        patch.setattr(mutate, "pytest", None)
        assert mutate.executed(tmp_path) == found, "found out once"
    limits = mutate.judges(found, "manycl/run/it.py", {4})
    assert list(limits) == [two]
    assert not mutate.noticed(tmp_path, limits), "nothing is changed"
    (tmp_path / "manycl" / "run" / "it.py").write_text(source.replace("return 2", "while True: pass"))
    assert mutate.noticed(tmp_path, {two: 0.5})
    assert not mutate.noticed(tmp_path, {})


def test_what_is_not_counted_is_still_a_mutant(mutants: ModuleType) -> None:
    for kept in json.loads((ROOT / "scripts" / "mutants_kept.json").read_text(encoding="utf-8")):
        source = (ROOT / kept["file"]).read_text(encoding="utf-8")
        found = {m.diff(source) for m in mutants.mutants(source)}
        assert f"{kept['before']}\n{kept['after']}" in found
        assert kept["why"]


def test_every_operator_at_its_place(mutants: ModuleType) -> None:
    found = {(m.line, m.after) for m in mutants.mutants(SOURCE)}
    assert found == {
        (9, "not (value > low and (not value % 2))"),
        (9, "(value > low or not value % 2)"),
        (9, "(not value % 2)"),
        (9, "(value > low)"),
        (9, "value >= low"),
        (9, "(value % 2)"),
        (9, "(value // 2)"),
        (9, "3"),
        (10, "return None"),
        (11, "not (not values)"),
        (11, "(values)"),
        (12, "True"),
        (13, "pass"),
        (14, "pass"),
    }


def test_a_mutant_differs_in_one_place_only(mutants: ModuleType) -> None:
    for mutant in mutants.mutants(SOURCE):
        lines = mutant.diff(SOURCE).splitlines()
        assert [line[0] for line in lines] == ["-", "+"]
        assert lines[0] == "-" + SOURCE.splitlines()[mutant.line - 1]


@pytest.mark.parametrize(
    "path", ["manycl/run/data/coherence.py", "manycl/analysis/regions/regions.py", "manycl/graph/launch.py"]
)
def test_mutants_of_the_package_can_be_read(mutants: ModuleType, path: str) -> None:
    source = (ROOT / path).read_text(encoding="utf-8")
    found = list(mutants.mutants(source))
    assert len(found) > 50
    assert len({m.source for m in found}) > 0.95 * len(found)
    plain = ast.dump(ast.parse(source))
    for mutant in found[::17]:
        assert ast.dump(ast.parse(mutant.source)) != plain
