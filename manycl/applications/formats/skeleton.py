"""Writes the specification of a kernel file: everything that the source tells, the rest as parameters to set. What the
source does not tell are the guidance parameters: sizes of buffers, NDRange, scalars."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from manycl.analysis.facts import ArgumentFacts, KernelFacts, ProgramFacts
from manycl.errors import SpecificationError
from manycl.graph.launch import TYPES

_RUNNABLE = ("buffer", "local", "scalar")


def skeleton(program: ProgramFacts, source: str, name: str, options: Sequence[str] = ()) -> dict[str, Any]:
    """A specification (docs/specification.md) of all kernels of a program, each launched once. ``source`` is the kernel
    file's path as the specification is to name it. Parameters without a value are null and must be given when the
    specification is loaded. Kernels with images or other arguments that manycl does not run are left out. Raises
    SpecificationError when no kernel remains."""
    kernels = [k for k in program.kernels.values() if all(a.kind in _RUNNABLE for a in k.arguments)]
    if not kernels:
        what = "only kernels with images, samplers or pipes" if program.kernels else "no kernels"
        raise SpecificationError(f"there are {what} in this file", path=program.path)
    writer = _SpecificationWriter(kernels)
    nodes = [writer.kernel(kernel) for kernel in kernels]
    document: dict[str, Any] = {"manycl": 1, "name": name, "source": source}
    if options:
        document["options"] = list(options)
    document["parameters"] = dict.fromkeys(writer.parameters)
    document["buffers"] = writer.buffers
    document["kernels"] = nodes
    return document


def left_out(program: ProgramFacts) -> list[str]:
    """The kernels that :func:`skeleton` cannot describe."""
    return [k.name for k in program.kernels.values() if any(a.kind not in _RUNNABLE for a in k.arguments)]


def format_specification(document: dict[str, Any]) -> str:
    """JSON with a line per parameter, buffer and kernel."""
    lines = []
    for key, value in document.items():
        if key in ("parameters", "buffers") and value:
            inner = ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            lines.append(f"  {json.dumps(key)}: {{\n{inner}\n  }}")
        elif key == "kernels":
            inner = ",\n".join(f"    {_kernel_lines(node)}" for node in value)
            lines.append(f"  {json.dumps(key)}: [\n{inner}\n  ]")
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _kernel_lines(node: dict[str, Any]) -> str:
    head = {key: value for key, value in node.items() if key != "args"}
    return f'{json.dumps(head)[:-1]},\n      "args": {json.dumps(node["args"])}}}'


class _SpecificationWriter:
    """Collects parameters and buffers; names carry the kernel's where two kernels would share them."""

    def __init__(self, kernels: Sequence[KernelFacts]) -> None:
        self.parameters: dict[str, None] = {}
        self.buffers: dict[str, Any] = {}
        counts = Counter(_name(a) for k in kernels for a in k.arguments if a.kind == "buffer")
        self.shared = {name for name, count in counts.items() if count > 1}

    def parameter(self, *words: str) -> str:
        name = "_".join(words)
        while name in self.parameters:
            name += "_"
        self.parameters[name] = None
        return name

    def kernel(self, facts: KernelFacts) -> dict[str, Any]:
        required = facts.required_work_group
        dimensions = max(facts.dimensions, 1)
        if required is not None:
            dimensions = max(dimensions, *(d + 1 for d in range(3) if required[d] > 1 or d == 0))
        node: dict[str, Any] = {"name": facts.name}
        node["global"] = [self.parameter(facts.name, "global", str(d)) for d in range(dimensions)]
        if required is not None:
            node["local"] = list(required[:dimensions])
        values = [self.argument(facts, a) for a in facts.arguments]
        names = [a.name for a in facts.arguments]
        node["args"] = dict(zip(names, values, strict=True)) if all(names) else values
        return node

    def argument(self, kernel: KernelFacts, facts: ArgumentFacts) -> Any:
        if facts.kind == "buffer":
            return self.buffer(kernel, facts)
        if facts.kind == "local":
            return self.parameter(kernel.name, _name(facts), "elements")
        if facts.base in TYPES and facts.lanes == 1:
            return self.parameter(kernel.name, _name(facts))
        if facts.base in TYPES:
            return [self.parameter(kernel.name, _name(facts), str(i)) for i in range(facts.lanes)]
        # A struct: what its members are called is not known here, but its words can be given.
        word, count = ("uint", facts.size // 4) if facts.size % 4 == 0 else ("uchar", facts.size)
        values = [self.parameter(kernel.name, _name(facts), f"{word}{i}") for i in range(count)]
        return {"types": [word] * count, "values": values}

    def buffer(self, kernel: KernelFacts, facts: ArgumentFacts) -> str:
        name = _name(facts)
        if name in self.shared or name in self.buffers:
            name = f"{kernel.name}_{name}"
        while name in self.buffers:
            name += "_"
        direction = facts.direction + (f" ({facts.reason})" if facts.reason else "")
        node: dict[str, Any] = {"description": f"{direction} by {kernel.name}"}
        elements = self.parameter(kernel.name, _name(facts), "elements")
        if facts.base in TYPES and facts.size == TYPES[facts.base].size * (4 if facts.lanes == 3 else facts.lanes):
            node["type"] = facts.element
            node["shape"] = elements
        else:
            node["description"] += f", elements of {facts.element}"
            node["type"] = "uchar"
            node["shape"] = f"{facts.size} * {elements}" if facts.size > 1 else elements
        if facts.reads:
            node["init"] = "random"
        self.buffers[name] = node
        return name


def _name(facts: ArgumentFacts) -> str:
    return facts.name or f"arg{facts.index}"
