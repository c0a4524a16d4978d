"""Merge kernels: what a range of work-groups wrote is copied, element by element, from another copy of the buffers.

MKMD (section 2.2, figure 2c): the kernel with its computation removed. Its control flow and its subscripts stay, and
each store to an argument becomes ``dst[e] = src[e]``, ``src`` being the buffer of the device that ran the range. So
exactly the elements that the range writes are copied, whatever pattern they make. What only feeds stored values goes:
:mod:`manycl.analysis.texts.merge_expressions` keeps an expression for its value where something kept depends on it, and
else only for its effects. That can be done if what steers the stores can be found out again: not from buffers that
the kernel writes, and not with atomic operations whose results depend on an order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from manycl.analysis.reading.options import read_options, remaining_options
from manycl.analysis.reading.tree import Function, Unit
from manycl.analysis.texts import rewrite
from manycl.analysis.texts.merge_points import Inclusions, RefusedError
from manycl.analysis.texts.merge_statements import MergeStatements
from manycl.errors import SourceError


@dataclass(frozen=True, slots=True)
class Hidden:
    """A parameter of a merge kernel behind the kernel's own. ``copy``: the buffer from which is copied what goes to the
    buffer of ``argument``. ``bytes``: the size of the latter, an ulong (where one store may go to several arguments,
    this tells which)."""

    kind: str
    argument: int


@dataclass(frozen=True, slots=True)
class MergeKernel:
    """How to copy what ranges of work-groups of ``kernel`` wrote.

    Build ``source`` with ``options`` and set the kernel's own arguments as for the launch to merge, with the buffers
    to copy to. Behind them come one argument for each of ``hidden`` and then those of ``ranges`` (a sub-kernel of
    ``source``: :meth:`SubKernel.arguments` gives the launch of a range, and its values). The buffers copied to and
    from must not overlap.

    ``written`` are the arguments that are copied to. ``reads`` are the arguments whose contents decide what is
    copied: they must be as they were in the launch, so none may share memory with one that is written. The contents
    of all other arguments do not matter. ``reason`` says why there is no merge kernel (``source`` is then empty).
    """

    kernel: str
    source: str = ""
    options: tuple[str, ...] = ()
    hidden: tuple[Hidden, ...] = ()
    written: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()
    ranges: rewrite.SubKernel = field(default_factory=lambda: rewrite.SubKernel("", "", ()))
    reason: str = ""


def merge_kernel(unit: Unit, kernel: str, options: Sequence[str]) -> MergeKernel:
    """The merge kernel of a kernel of ``unit``, which was read with build ``options``. Never raises for a program that
    was read; KeyError for a kernel that it does not have."""
    root = unit.kernel(kernel)
    try:
        return _Merging(unit, root).merge_kernel(remaining_options(options, unit.version))
    except RefusedError as refused:
        return MergeKernel(kernel, reason=str(refused))


class _Merging:
    """One merge kernel being made."""

    def __init__(self, unit: Unit, root: Function) -> None:
        self.unit, self.root = unit, root
        self.prefix = rewrite.unused_prefix(unit.text)
        self.slice = MergeStatements(Inclusions(unit, root), self.prefix)
        self.bodies = self.slice.bodies()
        self.written = tuple(self.slice.written)
        self.sized = self.slice.sized()

    def merge_kernel(self, options: tuple[str, ...]) -> MergeKernel:
        from manycl.analysis.reading import frontend

        text = self.text()
        try:
            merged = frontend.load(text, "<merge kernel>", None, read_options(options))
        except SourceError as error:  # what the edits did not foresee
            problem = error.diagnostics[0].text if error.diagnostics else error.message
            return MergeKernel(self.root.name, reason=f"the kernel's text cannot be edited: {problem}")
        ranges = rewrite.sub_kernel(merged, self.root.name, text, options)
        if ranges.reason:
            return MergeKernel(self.root.name, reason=ranges.reason)
        hidden = tuple(
            Hidden(kind, argument)
            for argument in self.written
            for kind in (("copy", "bytes") if argument in self.sized else ("copy",))
        )
        reads = tuple(sorted(self.slice.arguments))
        return MergeKernel(self.root.name, ranges.source, ranges.options, hidden, self.written, reads, ranges)

    def text(self) -> str:
        """The program with the bodies that are left, and hidden parameters."""
        edits: list[tuple[int, int, str]] = []
        for ref, function in self.unit.functions.items():
            extent = function.body.start, function.body.end
            if ref not in self.bodies:  # not called any more, and perhaps calling what has other parameters now
                edits.append((*extent, "{ }" if function.is_kernel else ";"))
                continue
            body = self.bodies[ref]
            copies = self.slice.copies
            if ref == self.root.ref:
                body = "{\n" + self.beginnings() + body.removeprefix("{")
                names = [d for d in copies.declared(self.written, self.sized) if f" *{self.prefix}to_" not in d]
            else:
                names = copies.declared(self.slice.written_by(function), self.sized)
            edits.append((*extent, body))
            if names:
                edits += self.parameters(function, ", ".join(names))
        text = rewrite.apply_edits(self.unit.text, edits).decode("utf-8", "replace")
        return self.slice.copies.definitions(self.sized) + text

    def parameters(self, function: Function, declared: str) -> list[tuple[int, int, str]]:
        edits = []
        for start, end in rewrite.signatures(self.unit, function):
            place = rewrite.parameters_of(self.unit, function, start, end)
            if place is None:
                raise RefusedError(f"the parameters of {function.name} cannot be extended")
            edits.append(rewrite.appended(self.unit, *place, declared))
        return edits

    def beginnings(self) -> str:
        """Where the buffers of the arguments begin, which may change themselves."""
        lines = []
        for argument in self.written:
            to = self.slice.copies.names(argument, self.sized)[0]
            name = self.root.parameters[argument].name
            lines.append(f"__global const uchar *{to} = (__global const uchar *){name};\n")
        return "".join(lines)
