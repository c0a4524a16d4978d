"""Programs of native devices: kernels become work-group functions (``analysis/work_group``), these shared objects."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, field

from manycl import flags
from manycl.analysis import service
from manycl.analysis.facts import ArgumentFacts, ProgramFacts
from manycl.analysis.reading.options import remaining_options
from manycl.analysis.work_group.group_function import ENTRY, MOST_OWN, WorkGroupFunction
from manycl.drivers.driver import BuildError, DriverError, Source
from manycl.drivers.native.blocks import tiles_of
from manycl.drivers.native.compiler import clang
from manycl.drivers.native.compiler.compiled import NativeEntry, NativeKernel, Parameter
from manycl.drivers.native.compiler.compiling import compile_kernels
from manycl.drivers.native.compiler.library import load_object
from manycl.drivers.native.elsewhere import NotNativeError
from manycl.errors import SourceError, anew
from manycl.machine import Device

MOST_ITEMS = 4096
"""Work-items of a work-group: what each keeps between barriers lies on the stack of the thread that runs it."""
_CHOSEN = 64
"""Work-items of a group where the launch leaves that to the driver."""


def build(source: Source, device: Device) -> CompiledProgram:
    """Read a program; its kernels are compiled when they are first launched. Raises BuildError."""
    try:
        facts = service.parse_program(source.text, path=source.path, options=source.options)
    except SourceError as error:
        raise BuildError(str(error)) from None
    return CompiledProgram(facts, device.compute_units)


class CompiledProgram:
    """The kernels of a source."""

    def __init__(self, facts: ProgramFacts, threads: int) -> None:
        self.facts = facts
        self.threads = threads
        self.lanes = lanes()
        self._kernels: dict[str, CompiledKernel] = {}

    def kernel(self, name: str) -> NativeKernel:
        """Return a kernel, which all kernel objects of its name share. Raises DriverError if there is none. One that
        cannot be compiled is refused when it is launched."""
        if name not in self.facts.kernels:
            raise DriverError(f"the program has no kernel {name}")
        found = self._kernels.get(name)
        if found is None:
            facts = self.facts.kernels[name]
            parameters = tuple(_parameter(parameter) for parameter in facts.arguments)
            found = CompiledKernel(self, name, parameters, facts.required_work_group)
            found.prepare(facts.dimensions)
            found = self._kernels.setdefault(name, found)
        return found

    def function(self, kernel: str, local_size: tuple[int, int, int], wide: bool) -> WorkGroupFunction:
        """Raises NotNativeError if a kernel cannot be a work-group function."""
        try:
            found = service.work_group_function(self.facts, kernel, local_size, self.lanes, wide, flags.checks_bounds())
        except SourceError as error:
            raise NotNativeError(str(error)) from None
        if found.reason:
            raise NotNativeError(f"kernel {kernel} is not compiled natively: {found.reason}")
        return found


@dataclass
class CompiledKernel:
    """A kernel, compiled for each size of work-groups that it is launched with; where these are nothing to it, once."""

    program: CompiledProgram
    name: str
    parameters: tuple[Parameter, ...]
    required: tuple[int, int, int] | None
    most_items: int = MOST_ITEMS
    entries: dict[tuple[object, ...], tuple[NativeEntry, ctypes.CDLL]] = field(default_factory=dict)
    """By the size of work-groups, or whether there is more than one dimension, where that is all that counts."""
    refused: NotNativeError | None = None
    counted: tuple[int, ...] = ()
    _is_together: bool = False  # work-items wait for each other: it may take all of them for one group
    _compiling: threading.Lock = field(default_factory=threading.Lock)

    def prepare(self, dims: int) -> None:
        """Compile what does not depend on work-groups' size, or one not known; else see whether it could be."""
        with self._compiling:
            size = self.required or (_CHOSEN, 1, 1)
            try:
                function = self.program.function(self.name, size, False)
                self.counted = function.counted
                facts = self.program.facts.kernels[self.name]
                is_seen = bool(facts.sees_groups or facts.sees_groups_shared)
                self._is_together = function.sized and facts.uses_barrier and is_seen
                if function.sized and self.required is None:
                    return
                self._compile(size, dims, False)
            except NotNativeError as error:
                self.refused = anew(error)

    def entry(self, local_size: tuple[int, int, int], dims: int, wide: bool = False) -> NativeEntry:
        """Return the entry, as of NativeKernel. Raises NotNativeError, always again, for a kernel that cannot be
        compiled."""
        with self._compiling:
            for key in (("any", dims > 1, wide), (local_size, wide)):
                found = self.entries.get(key)
                if found is not None:
                    return found[0]
            if self.refused is not None:
                raise anew(self.refused)
            try:
                return self._compile(local_size, dims, wide)
            except NotNativeError as error:
                self.refused = anew(error)
                raise

    def _compile(self, local_size: tuple[int, int, int], dims: int, wide: bool) -> NativeEntry:
        key: tuple[object, ...] = local_size, wide
        function = self.program.function(self.name, local_size, wide)
        if not function.sized:
            key = "any", dims > 1, wide
            function = self.program.function(self.name, (_CHOSEN, 2 if dims > 1 else 1, 1), wide)
        options = remaining_options(self.program.facts.options, "")
        try:
            library = load_object(compile_kernels(function.source, options, defined=function.defined), ctypes.CDLL)
        except (SourceError, BuildError, OSError) as error:
            raise NotNativeError(f"kernel {self.name} is not compiled natively: {error}") from None
        address = ctypes.cast(library[ENTRY], ctypes.c_void_p).value
        assert address is not None
        entry = NativeEntry(address, MOST_OWN if function.counted else 0, tiles_of(library, self.program.threads))
        self.entries[key] = entry, library
        return entry

    def choose_local(self, global_size: tuple[int, ...]) -> tuple[int, ...]:
        """Return the driver's choice of a local size, as of NativeKernel."""
        if self.required is not None:
            return self.required[: len(global_size)]
        left = self.most_items if self._is_together else _CHOSEN
        found = []
        for size in global_size:
            each = next(d for d in range(min(size, left), 0, -1) if size % d == 0)
            left //= each
            found.append(each)
        return tuple(found)


def _parameter(given: ArgumentFacts) -> Parameter:
    if given.kind == "local":
        return Parameter("local", 0, given.name)
    return Parameter("value", given.size, given.name) if given.kind == "scalar" else Parameter("memory", 0, given.name)


def lanes() -> int:
    """4-byte values in a vector of this processor."""
    features = clang.find().features
    if "+avx512f" in features:
        return 16
    return 8 if "+avx" in features else 4
