"""Table 4 anew: lines of code of the benchmarks as loops, and written by hand with migration.

Lines are counted as the paper counts them: without comments, imports and defines, and blank lines; docstrings are
comments. A program by hand has its own lines, its kernels', and those of ``migration.py``, which are only about
migrating (in the paper's brackets); a loop has its function and the text that it calls.
"""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
from typing import Any, NamedTuple

from manycl_bench.hopping import loops
from manycl_bench.hopping.hand import migration, programs
from manycl_bench.hopping.model import TABLE_3

PAPER = {
    "B+Tree Find K": (731, 371, 55),
    "B+Tree Find Range": (824, 382, 74),
    "Nearest Neighbor": (634, 402, 29),
    "MD5Hash": (598, 459, 74),
    "FFT": (559, 392, 30),
    "GEMM": (633, 371, 67),
    "Inverse FFT": (559, 387, 30),
    "Reduction": (589, 382, 6),
    "SPMV": (820, 481, 45),
}
"""Table 4: lines by hand, those of them that are about migration, and as a ``parallel_for``."""


class Lines(NamedTuple):
    """Lines of one benchmark: by hand, those of them that are only about migration, and as a loop."""

    name: str
    by_hand: int
    migration: int
    loop: int

    @property
    def fewer_percent(self) -> float:
        """By how much the loop is shorter."""
        return 100.0 * (1.0 - self.loop / self.by_hand)


def python_lines(text: str) -> int:
    """Lines of Python that hold code; of a string that is no docstring, those that hold C that counts."""
    tree = ast.parse(text)
    ignored: set[int] = set()
    strings: dict[int, tuple[int, str]] = {}  # of those of several lines: by their first line, their last, and contents
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr) and _is_text(body[0].value):
            ignored.update(range(body[0].lineno, (body[0].end_lineno or 0) + 1))
        if isinstance(node, ast.Expr) and _is_text(node.value):  # what describes a constant
            ignored.update(range(node.lineno, (node.end_lineno or 0) + 1))
        if isinstance(node, ast.Import | ast.ImportFrom):
            ignored.update(range(node.lineno, (node.end_lineno or 0) + 1))
        if _is_text(node) and node.end_lineno != node.lineno:  # type: ignore[attr-defined]
            strings[node.lineno] = node.end_lineno, node.value  # type: ignore[attr-defined]
    counted: set[int] = set()
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        first, last = token.start[0], token.end[0]
        if token.type in skipped or first in ignored:
            continue
        counted.update({first, last} if first in strings and last != first else range(first, last + 1))
    inside = 0
    for first, (last, contents) in strings.items():
        if first not in ignored:
            rows = contents.split("\n")
            # its first and last line are lines of Python, counted above where they hold code
            inside += sum(1 for row in rows[1:-1] if row.strip() and not _is_directive(row))
            if not rows[-1].strip() and _ends_alone(text, last):
                counted.discard(last)
    return len(counted) + inside


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _ends_alone(text: str, line: int) -> bool:
    """Whether a line holds nothing but the end of a string."""
    return text.split("\n")[line - 1].strip() == '"""'


def _is_directive(row: str) -> bool:
    return row.lstrip().startswith(("#", "//"))


def c_lines(text: str) -> int:
    """Lines of C that hold code."""
    from manycl.api.loops.parallel_text import without_comments

    return sum(1 for row in without_comments(text).split("\n") if row.strip() and not _is_directive(row))


def _function(function: Any) -> int:
    return python_lines(inspect.getsource(function))


def _constant(module: Any, name: str) -> int:
    """Lines of what a module assigns to a name."""
    text = inspect.getsource(module)
    found = next(
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
    )
    return python_lines(ast.get_source_segment(text, found) or "")


def lines(name: str) -> Lines:
    """Those of one benchmark."""
    loop = _function(loops.LOOPS[name])
    for used in loops.TEXTS.get(name, ()):
        value = getattr(loops, used)
        loop += _function(value) if callable(value) else _constant(loops, used)
    program = programs.PROGRAMS[name]
    own = _function(program) + c_lines(programs.source(*programs.KERNELS.get(name, (program.__name__,))))
    if program in (programs.fft, programs.inverse_fft):
        own += _function(programs.transform)
    common = python_lines(inspect.getsource(migration))
    return Lines(name, own + common + _function(programs.source) + _function(programs.each), common, loop)


def table() -> list[Lines]:
    """All of them, in the order of Table 3."""
    return [lines(name) for name in TABLE_3]
