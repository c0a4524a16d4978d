"""The faults that scripts/mutate puts into the package: each changes one thing, and leaves what can be read."""

from __future__ import annotations

import ast
import importlib.util
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
    values.clear()
    raise ValueError(f"none above {low + 1}")


def validate(x: int) -> None:
    if x < 0:
        raise ValueError
'''


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "scripts" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


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
        (11, "pass"),
        (12, "pass"),
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
