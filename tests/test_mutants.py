"""The faults that scripts/mutate puts into the package: each changes one thing, and leaves what can be read."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
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
    return script("mutate", "mutate")


def test_the_nearest_tests_are_there(mutate: ModuleType) -> None:
    for folder in mutate.JUDGES:
        modules = sorted((ROOT / "manycl" / folder).glob("*.py"))
        assert modules
        for module in modules:
            found = mutate.nearest(module)
            assert all((ROOT / name).is_file() for name in found)
    assert mutate.nearest(ROOT / "manycl" / "run" / "coherence.py")[0] == "tests/run/test_coherence.py"


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


@pytest.mark.parametrize("path", ["manycl/run/coherence.py", "manycl/analysis/regions.py", "manycl/graph/launch.py"])
def test_mutants_of_the_package_can_be_read(mutants: ModuleType, path: str) -> None:
    source = (ROOT / path).read_text(encoding="utf-8")
    found = list(mutants.mutants(source))
    assert len(found) > 50
    assert len({m.source for m in found}) > 0.95 * len(found)
    plain = ast.dump(ast.parse(source))
    for mutant in found[::17]:
        assert ast.dump(ast.parse(mutant.source)) != plain
