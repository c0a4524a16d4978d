"""Stage one: OpenCL C source to :class:`~manycl.analysis.facts.KernelFacts`. Importing it loads no compiler.

May import device_syntax, machine_file and the stages before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manycl.analysis.facts import ArgumentFacts, KernelFacts, ProgramFacts

if TYPE_CHECKING:
    from manycl.analysis.service import parse_program

__all__ = ["ArgumentFacts", "KernelFacts", "ProgramFacts", "parse_program"]


def __getattr__(name: str) -> Any:
    if name == "parse_program":
        from manycl.analysis.service import parse_program

        return parse_program
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
