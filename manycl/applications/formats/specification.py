"""Reads manycl's own application files (docs/specification.md), whose fields are in :mod:`.fields`."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from manycl.analysis.facts import ArgumentFacts
from manycl.api.kernel_files import KernelFiles
from manycl.api.prepared import MOST_TIMES
from manycl.applications import assemble
from manycl.applications.application import Application, Contents, Iterate, Output
from manycl.applications.formats import version_fields
from manycl.applications.formats.fields import ARGUMENT, DOCUMENT
from manycl.applications.formats.kinds import Fields, Given, Scope, check, limit, read_parameters, text
from manycl.applications.python_files import confined, python_file
from manycl.errors import LaunchError
from manycl.expressions import suggest
from manycl.graph.graph import BufferArg, BufferKey
from manycl.graph.versions.images import Image, image_of, with_arrays
from manycl.graph.versions.images import sizes as image_sizes
from manycl.utilities.json_lines import Location


def read_specification(
    document: Any, place: Location, parameters: Mapping[str, str], trust: bool = False
) -> Application:
    """The application that a parsed JSON document describes; ``parameters`` are those of the command line. ``trust``:
    it may run Python files and write results anywhere."""
    check(document, DOCUMENT, place)
    scope = read_parameters(document.get("parameters", {}), place.at("parameters"), parameters)
    return _SpecificationReader(DOCUMENT.fields_of(document, scope, place), trust).read()


class _SpecificationReader:
    def __init__(self, document: Fields, trust: bool) -> None:
        self.document = document
        self.trust = trust
        self.folder = Path(document.place.path).parent
        self.programs = KernelFiles([self.folder])
        self.versions = version_fields.VersionReader(self.programs, self.folder, trust)
        self.draft = assemble.Draft(document.place, document["name"] or Path(document.place.path).stem)
        self.buffers: dict[str, BufferKey] = {}

    def read(self) -> Application:
        document = self.document
        for key, fields in document["buffers"].items():
            self.read_buffers(key, fields)
        whole = Fields(document.table, document.scope, document.place, {}).inside(document, ("source",))
        for fields in version_fields.kernels(document, whole):
            self.read_kernel(fields)
        if not self.draft.kernels:
            raise document.where("kernels").error("there are no kernels (every repetition is empty)")
        self.read_edges()
        self.read_components()
        assembled = assemble.assemble(self.draft)
        outputs = self.read_outputs(assembled)
        checked, iterate = document["check"], document["iterate"]
        return Application(
            name=self.draft.name,
            graph=assembled.graph,
            contents=assembled.contents,
            outputs=outputs,
            queues=document["queues"],
            goals={key: document[key] for key in ("objective", "deadline") if document[key]},
            reference=self.function(checked) if checked else None,
            tolerance=float(checked["tolerance"]) if checked else 1e-4,
            parameters=document.scope,
            iterate=self.read_iterate(iterate, assembled, outputs) if iterate else None,
        )

    # Buffers

    def read_buffers(self, key: str, node: Fields) -> None:
        for fields in node.repeated():
            for part in key.split(","):
                name = text(part.strip(), fields.scope, node.place)
                if not name:
                    raise node.place.error("a buffer needs a name")
                self.add_buffer(name, fields, "")
                limit(len(self.draft.buffers), node.place)

    def add_buffer(self, name: str, fields: Fields, default_type: str) -> BufferKey:
        if name in self.buffers:
            raise fields.place.error(f"there are two buffers called {name!r}")
        made = self.read_contents(name, fields, default_type)
        key = self.buffers[name] = BufferKey(len(self.draft.buffers))
        self.draft.buffers.append(assemble.DraftBuffer(name, made, fields.place, "init" in fields))
        return key

    def read_contents(self, name: str, fields: Fields, default_type: str) -> Contents:
        init, place = fields["init"], fields.place
        kind = "zeros" if init is None else init["kind"]
        if init is not None:
            version_fields.check_fields(init)
        type_name, shape = fields["type"] or default_type, fields["shape"]
        if kind == "file":
            return version_fields.from_file(self.folder / init["path"], type_name, shape, place)
        if not type_name or shape is None:
            raise place.error(f"the field {'shape' if type_name else 'type'!r} is missing")
        dtype, full_shape = version_fields.array_type(type_name, shape, place)
        if kind == "random":
            # Buffers of one seed still differ from each other: the name is part of it.
            return version_fields.random(dtype, full_shape, (init["seed"] << 32) + zlib.crc32(name.encode()), init)
        if kind == "constant":
            return version_fields.constant(dtype, full_shape, init["value"], init.where("value"))
        return Contents(kind, dtype, full_shape)

    # Kernels

    def read_kernel(self, fields: Fields) -> None:
        index = len(self.draft.kernels)
        limit(index + 1, fields.place)
        identifier = fields["id"]
        key = str(index) if identifier is None else identifier
        self.draft.add_id(key, fields.where("id"))
        program, kernel = version_fields.read_program(self.programs, fields)
        rank = fields["rank"]
        global_size, local_size = version_fields.read_ndrange(kernel, fields)
        given, sizes = version_fields.given_arguments(kernel, fields), list[bytes]()
        if any(facts.kind == "image" for facts, *_ in given):
            images = [self.image(*argument) for argument in given]
            try:
                program = with_arrays(program, kernel.name, images)
            except LaunchError as error:
                raise fields.place.error(error.message) from None
            kernel = program.kernels[kernel.name]
            given = [(own, *rest) for own, (_, *rest) in zip(kernel.arguments, given, strict=False)]
            sizes = [struct.pack("=i", size) for size in image_sizes(images)]
        if "partition" in fields and "device" in fields:
            raise fields.where("partition").error("a kernel has a device or a partition, not both")
        device, tenths = assemble.partitioned(fields["partition"])
        self.draft.kernels.append(
            assemble.DraftKernel(
                id=key,
                name=kernel.name if identifier is None else key,
                place=fields.place,
                program=program,
                kernel=kernel,
                global_size=global_size,
                local_size=local_size,
                args=[*(self.read_argument(key, *argument) for argument in given), *sizes],
                offset=version_fields.read_offset(fields, len(global_size)),
                device=device or fields["device"],
                partition=tenths,
                rank=None if rank is None else float(rank),
                component=fields["component"],
                annotations=version_fields.read_annotations(kernel, fields),
                versions=tuple(self.versions.read(program, kernel, fields)),
            )
        )

    def image(self, facts: ArgumentFacts, value: Any, scope: Scope, place: Location) -> Image | None:
        """Return the image that an argument is which is given the name of a buffer; None where it is no image."""
        if facts.kind != "image":
            return None
        key = self.buffers.get(text(value, scope, place)) if isinstance(value, str) else None
        label = version_fields.label_of(facts)
        if key is None:
            raise place.error(f"{label} is an image: give the name of one of the specification's buffers")
        made = self.draft.buffers[key].contents
        try:
            return image_of(made.shape, np.dtype(made.dtype))
        except LaunchError as error:
            raise place.error(f"{label} {error.message}") from None

    def read_argument(
        self, key: str, facts: ArgumentFacts, value: Any, scope: Scope, place: Location
    ) -> assemble.DraftArgument:
        if facts.kind != "buffer":
            return version_fields.read_value(facts, value, scope, place, self.buffers)
        if value is None:
            return None
        if isinstance(value, dict):
            fields = ARGUMENT.fields_of(value, scope, place)
            if "values" in fields or "types" in fields:
                raise place.error(f"{version_fields.label_of(facts)} is a buffer, not a struct")
            return BufferArg(self.add_buffer(f"{key}.{facts.name or facts.index}", fields, facts.element))
        return BufferArg(BufferKey(version_fields.named_buffer(facts, value, scope, place, self.buffers, "a buffer")))

    # Edges, components, and what is about the whole

    def read_edges(self) -> None:
        for entry in self.document["edges"]:
            groups = [(entry,)] if isinstance(entry, assemble.EdgeText) else (f["edges"] for f in entry.repeated())
            for edge in itertools.chain.from_iterable(groups):
                self.draft.add_edge(edge)

    def read_components(self) -> None:
        for index, entry in enumerate(self.document["components"]):
            for count, fields in enumerate(entry.repeated()):
                for given in fields["kernels"]:
                    kernel = self.draft.kernels[self.draft.index(*given)]
                    if kernel.component:
                        raise given.place.error(f"kernel {kernel.id} is in a component already")
                    kernel.component = f"components[{index}].{count}"

    def read_outputs(self, assembled: assemble.Assembled) -> tuple[Output, ...]:
        if "outputs" not in self.document:
            return assembled.results
        outputs: dict[str, Output] = {}
        for entry in self.document["outputs"]:
            for fields in entry.repeated():
                key = self.used_buffer(fields["buffer"], fields.place, assembled)
                name = fields["name"] or fields["buffer"]
                if name in outputs:
                    raise fields.place.error(f"there are two outputs called {name!r}")
                path = self.target(fields["save"], fields.where("save"))
                outputs[name] = assemble.output(assembled.graph, assembled.contents, key, name, path)
        return tuple(outputs.values())

    def used_buffer(self, name: str, place: Location, assembled: assemble.Assembled) -> BufferKey:
        """A buffer that some kernel uses, by its name."""
        key = assembled.keys.get(self.buffers.get(name, -1))
        if key is None:
            known = name in self.buffers
            what = "is used by no kernel" if known else f"does not exist{suggest(name, self.buffers)}"
            raise place.error(f"the buffer {name!r} {what}")
        return key

    def function(self, fields: Fields) -> tuple[str, str]:
        """A Python file, and the function in it."""
        return str(python_file(fields, self.folder, self.trust)), fields["function"]

    def read_iterate(self, fields: Fields, assembled: assemble.Assembled, outputs: tuple[Output, ...]) -> Iterate:
        def key(given: Given) -> BufferKey:
            return self.used_buffer(given.value, given.place, assembled)

        contents = assembled.contents
        pairs: list[tuple[BufferKey, BufferKey]] = []
        for index, (one, other) in enumerate(fields["swap"]):
            where = fields.where("swap").at(index)
            a, b = key(one), key(other)
            if any(k in pair for k in (a, b) for pair in pairs) or a == b:
                raise where.error("a buffer is exchanged with one other buffer at most, and not with itself")
            if contents[a].nbytes != contents[b].nbytes:
                sizes = f"{contents[a].nbytes} and {contents[b].nbytes}"
                raise where.error(f"buffers that exchange their contents have the same size, not {sizes} bytes")
            pairs.append((a, b))
        times, until = fields["times"], fields["until"]
        limit(times, fields.where("times"), MOST_TIMES)
        if until is None:
            return Iterate(times, tuple(pairs))
        function, names = self.function(until), until["buffers"]
        asked = tuple([o.buffer for o in outputs] if names is None else map(key, names))
        return Iterate(times, tuple(pairs), function, asked, until["every"])

    def target(self, path: str, place: Location) -> str:
        """The file that an output is saved to (none: empty); beneath the working folder or this file's."""
        if not path:
            return ""
        path = path if path.endswith(".npy") else f"{path}.npy"  # as NumPy calls it
        return str(confined(Path(path), [Path(), self.folder], "a result would be written", place, self.trust))
