"""Reads manycl's own application files (docs/specification.md, specification.schema.json)."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from manycl.analysis.facts import ArgumentFacts, KernelFacts
from manycl.api.kernel_files import KernelFiles
from manycl.applications import assemble
from manycl.applications.application import Application, Contents, Output
from manycl.applications.formats import contents, kernel_fields
from manycl.applications.formats.schema import check
from manycl.applications.formats.symbols import (
    Scope,
    integer,
    integers,
    limit,
    number,
    read_parameters,
    repetitions,
    text,
)
from manycl.applications.formats.version_fields import VersionReader
from manycl.applications.iterations import read_iterate
from manycl.applications.python_files import confined
from manycl.expressions import suggest
from manycl.graph.graph import BufferArg, BufferKey
from manycl.utilities.json_lines import Location

_EDGE = re.compile(r"\s*(\S+)\.(\w+)\s*->\s*(\S+)\.(\w+)\s*\Z")


def read_specification(
    document: Any, place: Location, parameters: Mapping[str, str], trust: bool = False
) -> Application:
    """The application that a parsed JSON document describes; ``parameters`` are those of the command line. ``trust``:
    it may run Python files and write results anywhere."""
    check(document, place)
    return _SpecificationReader(document, place, parameters, trust).read()


class _SpecificationReader:
    def __init__(self, document: dict[str, Any], place: Location, parameters: Mapping[str, str], trust: bool) -> None:
        self.document = document
        self.trust = trust
        self.place = place
        self.folder = Path(place.path).parent
        self.programs = KernelFiles([self.folder])
        self.versions = VersionReader(self.programs, self.folder, trust)
        self.scope = read_parameters(document.get("parameters", {}), place.at("parameters"), parameters)
        self.draft = assemble.Draft(place, document.get("name") or Path(place.path).stem)
        self.buffers: dict[str, BufferKey] = {}
        self.ids: dict[str, int] = {}

    def read(self) -> Application:
        for key, node in self.document.get("buffers", {}).items():
            self.read_buffers(key, node, self.place.at("buffers", key))
        whole = kernel_fields.inherit(
            self.document, self.place, kernel_fields.Fields(self.scope, self.place), ("source",)
        )
        for fields in kernel_fields.kernels(self.document, self.place, whole):
            self.read_kernel(fields)
        if not self.draft.kernels:
            raise self.place.at("kernels").error("there are no kernels (every repetition is empty)")
        self.read_edges()
        self.read_components()
        assembled = assemble.assemble(self.draft)
        reference, tolerance = self.read_check()
        outputs = self.read_outputs(assembled)
        known = {name: assembled.keys.get(index) for name, index in self.buffers.items()}
        return Application(
            name=self.draft.name,
            graph=assembled.graph,
            contents=assembled.contents,
            outputs=outputs,
            queues=self.read_queues(),
            reference=reference,
            tolerance=tolerance,
            parameters=self.scope,
            iterate=read_iterate(self.document, self.place, self.scope, known, assembled.contents, outputs, self.trust),
        )

    # Buffers

    def read_buffers(self, key: str, node: dict[str, Any], place: Location) -> None:
        for scope in repetitions(node, self.scope, place):
            for part in key.split(","):
                name = text(part.strip(), scope, place)
                if not name:
                    raise place.error("a buffer needs a name")
                if name in self.buffers:
                    raise place.error(f"there are two buffers called {name!r}")
                self.buffers[name] = self.add_buffer(name, node, scope, place, "")
                limit(len(self.draft.buffers), place)

    def add_buffer(
        self, name: str, node: dict[str, Any], scope: Scope, place: Location, default_type: str
    ) -> BufferKey:
        made = self.read_contents(name, node, scope, place, default_type)
        self.draft.buffers.append(assemble.DraftBuffer(name, made, place, "init" in node))
        return BufferKey(len(self.draft.buffers) - 1)

    def read_contents(
        self, name: str, node: dict[str, Any], scope: Scope, place: Location, default_type: str
    ) -> Contents:
        init = node.get("init", "zeros")
        init = {"kind": init} if isinstance(init, str) else init
        kind, here = init["kind"], place.at("init")
        contents.check_fields(init, here)
        type_name = text(node.get("type", default_type), scope, place.at("type"))
        shape = integers(node["shape"], scope, place.at("shape")) if "shape" in node else None
        if kind == "file":
            path = self.folder / text(init["path"], scope, here.at("path"))
            return contents.from_file(path, type_name, shape, place)
        if not type_name:
            raise place.error("the field 'type' is missing")
        if shape is None:
            raise place.error("the field 'shape' is missing")
        dtype, full_shape = contents.array_type(type_name, shape, place)
        numbers = {k: number(v, scope, here.at(k)) for k, v in init.items() if k not in ("kind", "path")}
        if kind == "random":
            seed = integer(numbers.pop("seed", 0), scope, here.at("seed"), 0)
            # Buffers of one seed still differ from each other: the name is part of it.
            return contents.random(dtype, full_shape, (seed << 32) + zlib.crc32(name.encode()), numbers, here)
        if kind == "constant":
            return contents.constant(dtype, full_shape, numbers["value"], here.at("value"))
        return Contents(kind, dtype, full_shape)

    # Kernels

    def read_kernel(self, fields: kernel_fields.Fields) -> None:
        scope, place = fields.scope, fields.place
        index = len(self.draft.kernels)
        limit(index + 1, place)
        identifier, id_place = fields.get("id")
        key = str(index) if identifier is None else text(str(identifier), scope, id_place)
        if key in self.ids:
            raise id_place.error(f"there are two kernels with the id {key!r}")
        self.ids[key] = index
        program, kernel = kernel_fields.read_program(self.programs, fields)
        rank, rank_place = fields.get("rank")
        component, component_place = fields.get("component")
        global_size, local_size = kernel_fields.read_ndrange(kernel, fields)
        device, tenths = self.read_device(fields)
        self.draft.kernels.append(
            assemble.DraftKernel(
                id=key,
                name=kernel.name if identifier is None else key,
                place=place,
                program=program,
                kernel=kernel,
                global_size=global_size,
                local_size=local_size,
                args=self.read_args(kernel, key, fields),
                offset=kernel_fields.read_offset(fields, len(global_size)),
                device=device,
                partition=tenths,
                rank=None if rank is None else float(number(rank, scope, rank_place)),
                component="" if component is None else text(component, scope, component_place),
                annotations=kernel_fields.read_annotations(kernel, scope, *fields.get("annotations")),
                versions=tuple(self.versions.read(program, kernel, fields)),
            )
        )

    def read_device(self, fields: kernel_fields.Fields) -> tuple[str, int | None]:
        """The device that a kernel prefers, and the tenths that it is divided in between two kinds."""
        value, place = fields.get("device")
        tenths, tenths_place = fields.get("partition")
        if tenths is not None:
            if value is not None:
                raise tenths_place.error("a kernel has a device or a partition, not both")
            count = integer(tenths, fields.scope, tenths_place, 0)
            if count > 10:
                raise tenths_place.error(f"must be tenths for the GPUs, from 0 to 10, not {count}")
            return assemble.partitioned(count)
        if isinstance(value, dict):
            key = "then" if number(value["if"], fields.scope, place.at("if")) else "else"
            value, place = value.get(key, ""), place.at(key)
        return text(value or "", fields.scope, place), None

    def read_args(self, kernel: KernelFacts, key: str, fields: kernel_fields.Fields) -> list[assemble.DraftArgument]:
        given = kernel_fields.given_arguments(kernel, fields)
        return [self.read_argument(facts, key, value, fields.scope, here) for facts, value, here in given]

    def read_argument(
        self, facts: ArgumentFacts, key: str, value: Any, scope: Scope, place: Location
    ) -> assemble.DraftArgument:
        if facts.kind == "buffer":
            return self.read_buffer_argument(facts, key, value, scope, place)
        return kernel_fields.read_value(facts, value, scope, place, self.buffers)

    def read_buffer_argument(
        self, facts: ArgumentFacts, key: str, value: Any, scope: Scope, place: Location
    ) -> BufferArg | None:
        label = kernel_fields.label_of(facts)
        if value is None:
            return None
        if isinstance(value, dict):
            if "values" in value or "types" in value:
                raise place.error(f"{label} is a buffer, not a struct")
            name = f"{key}.{facts.name or facts.index}"
            if name in self.buffers:
                raise place.error(f"there are two buffers called {name!r}")
            self.buffers[name] = self.add_buffer(name, value, scope, place, facts.element)
            return BufferArg(self.buffers[name])
        if not isinstance(value, str):
            raise place.error(f"{label} is a buffer: give a buffer's name, not {kernel_fields.show_value(value)}")
        name = text(value, scope, place)
        if name not in self.buffers:
            raise place.error(f"{label} is a buffer, and there is none called {name!r}{suggest(name, self.buffers)}")
        return BufferArg(self.buffers[name])

    # Edges, components, and what is about the whole

    def read_edges(self) -> None:
        for index, entry in enumerate(self.document.get("edges", ())):
            place = self.place.at("edges", index)
            if isinstance(entry, str):
                self.read_edge(entry, self.scope, place)
                continue
            for scope in repetitions(entry, self.scope, place):
                for i, edge in enumerate(entry["edges"]):
                    self.read_edge(edge, scope, place.at("edges", i))

    def read_edge(self, value: str, scope: Scope, place: Location) -> None:
        match = _EDGE.match(text(value, scope, place))
        if match is None:
            raise place.error(f"{value!r:.80} is not an edge", hint="an edge looks like '0.2 -> 2.0' or 'q.C -> a.A'")
        ends = []
        for identifier, argument in ((match[1], match[2]), (match[3], match[4])):
            kernel = self.kernel_index(identifier, place)
            facts = self.draft.kernels[kernel].kernel
            names = {a.name: a.index for a in facts.arguments}
            position = int(argument) if argument.isascii() and argument.isdigit() else names.get(argument, -1)
            if not 0 <= position < len(facts.arguments):
                problem = f"kernel {identifier} ({facts.name}) has no argument {argument}"
                raise place.error(problem + suggest(argument, names))
            ends.append((kernel, position))
        self.draft.edges.append(assemble.DraftEdge(ends[0], ends[1], place))

    def kernel_index(self, identifier: str, place: Location) -> int:
        if identifier not in self.ids:
            raise place.error(f"there is no kernel with the id {identifier!r:.60}{suggest(identifier, self.ids)}")
        return self.ids[identifier]

    def read_components(self) -> None:
        for index, entry in enumerate(self.document.get("components", ())):
            place = self.place.at("components", index)
            ids = entry if isinstance(entry, list) else entry["kernels"]
            place_of_ids = place if isinstance(entry, list) else place.at("kernels")
            node = {} if isinstance(entry, list) else entry
            for count, scope in enumerate(repetitions(node, self.scope, place)):
                for i, identifier in enumerate(ids):
                    here = place_of_ids.at(i)
                    kernel = self.draft.kernels[self.kernel_index(text(str(identifier), scope, here), here)]
                    if kernel.component:
                        raise here.error(f"kernel {kernel.id} is in a component already")
                    kernel.component = f"components[{index}].{count}"

    def read_outputs(self, assembled: assemble.Assembled) -> tuple[Output, ...]:
        entries = self.document.get("outputs")
        if entries is None:
            return assembled.results
        outputs: dict[str, Output] = {}
        for index, entry in enumerate(entries):
            place = self.place.at("outputs", index)
            node = {"buffer": entry} if isinstance(entry, str) else entry
            for scope in repetitions(node, self.scope, place):
                buffer = text(node["buffer"], scope, place)
                key = assembled.keys.get(self.buffers.get(buffer, -1))
                if key is None:
                    known = buffer in self.buffers
                    what = "is used by no kernel" if known else f"does not exist{suggest(buffer, self.buffers)}"
                    raise place.error(f"the buffer {buffer!r} {what}")
                name = text(node.get("name", buffer), scope, place)
                if name in outputs:
                    raise place.error(f"there are two outputs called {name!r}")
                path = self.target(text(node.get("save", ""), scope, place), place.at("save"))
                outputs[name] = assemble.output(assembled.graph, assembled.contents, key, name, path)
        return tuple(outputs.values())

    def target(self, path: str, place: Location) -> str:
        """The file that an output is saved to (none: empty); beneath the working folder or this file's."""
        if not path:
            return ""
        path = path if path.endswith(".npy") else f"{path}.npy"  # as NumPy calls it
        return str(confined(Path(path), [Path(), self.folder], "a result would be written", place, self.trust))

    def read_queues(self) -> dict[str, int]:
        place = self.place.at("queues")
        nodes = self.document.get("queues", {})
        return {device: integer(value, self.scope, place.at(device), 1) for device, value in nodes.items()}

    def read_check(self) -> tuple[tuple[str, str] | None, float]:
        node = self.document.get("check")
        if node is None:
            return None, 1e-4
        place = self.place.at("check", "file")
        path = self.folder / text(node["file"], self.scope, place)
        if not path.is_file():
            raise place.error(f"there is no file {str(path)!r}")
        confined(path, [self.folder], "a Python file", place, self.trust)
        return (str(path), node.get("function", "reference")), float(node.get("tolerance", 1e-4))
