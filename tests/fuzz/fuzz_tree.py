"""A random kernel as a tree of lines: what it is made into, and what is taken from it where it is made smaller."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.analysis.corpus_case import Case, Launch

PROLOGUE = """#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
#define AT(x, n) ((x) & ((n) - 1))
#define DIVISOR(x, type, most) (((x) & (type)(most)) | (type)(2))
#define ODD(x, type) ((x) | (type)(get_work_dim() > 0))
#define NUMBER(x, type) ((x) == (x) ? (x) : (type)(0))
#define FINITE(x, type) (isfinite(x) ? (x) : (type)(0))
#define CLAMP(x, a, b) clamp(x, min(a, b), max(a, b))
"""
# (what keeps a kernel defined are macros, which are left alone where it is made smaller)


@dataclass
class Block:
    """``head``, then the body, then ``tail``. ``whole``: goes or stays as one piece."""

    head: list[str]
    body: list[Node] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)
    whole: bool = False

    def lines(self) -> Iterator[str]:
        yield from self.head
        for line in lines(self.body):
            yield f"  {line}"
        yield from self.tail


Node = str | Block


def lines(nodes: list[Node]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, str):
            yield node
        else:
            yield from node.lines()


@dataclass
class Kernel:
    """A kernel and its launch. ``before``: types and helper functions; ``called``: built-in functions."""

    name: str
    parameters: list[str]
    before: list[Node]
    body: list[Node]
    launch: Launch
    called: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        head = f"kernel void {self.name}({', '.join(self.parameters)}) {{"
        return "\n".join([*lines(self.before), head, *(f"  {line}" for line in lines(self.body)), "}", ""])

    def case(self, text: str = "") -> Case:
        """In a program of several kernels, or of its own."""
        return Case(self.name, "", (self.launch,), (), text=text or PROLOGUE + self.text)
