"""Numbers that were chosen: how many there are in what plans, predicts and runs, and that each says what it is, and
where it comes from."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tests import ROOT

FOLDERS = ("run", "api", "applications", "plan", "model")
MOST = 280
"""As few as there were when this was last changed: who adds one finds another that says nothing."""
OF_NUMBERS = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.Name, ast.Attribute)


class Constant(NamedTuple):
    """A number with a name. ``said``: what the docstring below it, or a comment beside or above it, says of it."""

    line: int
    name: str
    said: str


def is_number(value: ast.expr) -> bool:
    """Whether an expression is a number, several, or computed from numbers and names, with at least one number."""
    nodes = [n for n in ast.walk(value) if isinstance(n, ast.expr)]
    numbers = [n.value for n in nodes if isinstance(n, ast.Constant)]
    plain = all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers)
    return bool(numbers) and plain and all(isinstance(n, OF_NUMBERS) for n in nodes)


def numbers_of(statement: ast.stmt) -> list[str]:
    """The names that a statement gives to numbers."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return []
    found = []
    for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
        several = isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple)
        pairs = zip(target.elts, statement.value.elts, strict=True) if several else [(target, statement.value)]
        found += [name.id for name, value in pairs if isinstance(name, ast.Name) and is_number(value)]
    return found


def constants_of(text: str) -> Iterator[Constant]:
    """The numbers that a module names: its own, and the defaults of tables (classes named ``...Tuning``)."""
    lines = text.splitlines()
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}
    module = ast.parse(text)
    tables = [s.body for s in module.body if isinstance(s, ast.ClassDef) and s.name.endswith("Tuning")]
    for body in (module.body, *tables):
        for at, statement in enumerate(body):
            names = numbers_of(statement)
            if not names:
                continue
            first, last = statement.lineno, statement.end_lineno or statement.lineno
            said = [comments.get(line, "") for line in range(first, last + 1)]
            if first > 1 and lines[first - 2].lstrip().startswith("#"):
                said.append(comments[first - 1])
            for below in body[at + 1 : at + 2]:
                if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                    said.append(str(below.value.value))
            yield from (Constant(first, name, " ".join(said).strip("# ")) for name in names)


@cache
def constants() -> dict[str, Constant]:
    """All of them, by where they are."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / "manycl" / folder).rglob("*.py"))]
    found = [(path, constant) for path in paths for constant in constants_of(path.read_text(encoding="utf-8"))]
    return {f"{path.relative_to(ROOT)}:{c.line} {c.name}": c for path, c in found}


def test_numbers_are_few() -> None:
    assert len(constants()) <= MOST


def test_numbers_say_what_they_are() -> None:
    assert not [where for where, constant in constants().items() if not constant.said]


SOURCE = re.compile(
    r"choice|measured|simulated|benchmarks/|docs/|manycl bench|Section|Guide|clEnqueue|\d (?:us|ms|s|GB|%)\b"
)
"""Words of a source: somebody's choice, a measurement, a benchmark, a page, a paper or a manual."""
NOT_CHOSEN = re.compile(
    r"[Tt]he mark of|[Vv]ersion of|index of|number of the thread|stands? for|references to|finite|by the text"
)
"""Words of numbers that any other one could stand for, or that follow from something else."""


def test_numbers_say_where_they_come_from() -> None:
    """Or their table says so for all of them: in ``plan/tuning.py``, where each stage names what measures it."""
    tables = ast.get_docstring(ast.parse((ROOT / "manycl/plan/tuning.py").read_text(encoding="utf-8"))) or ""
    assert "our own, where no paper is named" in " ".join(tables.split())
    told = {where: f"{constant.said} " for where, constant in constants().items() if "plan/tuning.py:" not in where}
    assert [where for where, said in told.items() if not SOURCE.search(said) and not NOT_CHOSEN.search(said)] == []


def test_numbers_are_found_however_they_are_written() -> None:
    text = """
A, B = 1, 2 * K  # two of them
C: float = -1e-6
'''Seconds.'''
D = A
E = f(3)
F = True
G = 'text'
# three of them
H = (1, 2, 3)
I = 4
J, L = {}, 5
class SomeTuning(NamedTuple):
    x: float = 0.5
    '''A part.'''
class Other(NamedTuple):
    y: int = 3
"""
    said = {c.name: c.said for c in constants_of(text)}
    words = "two of them"
    assert said == {"A": words, "B": words, "C": "Seconds.", "H": "three of them", "I": "", "L": "", "x": "A part."}
