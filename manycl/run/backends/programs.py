"""Programs built for devices, and their kernel objects."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pyopencl as cl

from manycl.analysis.facts import ProgramFacts
from manycl.errors import Diagnostic, SourceError
from manycl.graph.graph import Launch, LocalArg, Version
from manycl.graph.versions import preferred
from manycl.kept import Kept
from manycl.machine import Machine
from manycl.run.backends.quiet import new_kernel, quiet

PROGRAMS_KEPT, KERNELS_KEPT = 1024, 4096
"""Of each device; a graph with more is built again whenever it runs."""

_Key = tuple[str, tuple[str, ...], str]


def _mixes_up(version: str) -> bool:
    """Whether several devices of a platform need programs of their own. PoCL 5.0 aborts (pocl_release_dlhandle_cache)
    when two of them run one kernel at once, one with a global offset and one without; 3.0 and 3.1 do not."""
    found = re.search(r"PoCL (\d+)", version, re.IGNORECASE)
    return found is not None and int(found[1]) >= 4


def _key(program: ProgramFacts) -> _Key:
    """What decides the binary: text, options, and the folder that its includes are found in."""
    return program.source, program.options, str(Path(program.path).parent)


class KernelObject:
    """A kernel of one device, and what its arguments are set to.

    One object serves all launches: only one thread sets arguments, and OpenCL copies them when the kernel is enqueued.
    ``held[i]`` is the value of argument i, or None: what is set already is not set again. ``launched``: the kinds of
    launches so far, as drivers compile for them.
    """

    __slots__ = ("cl", "held", "launched", "set_bytes")

    def __init__(self, kernel: cl.Kernel, arguments: int) -> None:
        self.cl = kernel
        self.held: list[Any] = [None] * arguments
        self.launched: set[tuple[Any, ...]] = set()
        # set_arg tries every kind of object before it takes bytes for bytes, which costs 6 us (PyOpenCL 2026)
        self.set_bytes: Callable[[int, bytes], None] = getattr(kernel, "_set_arg_buf", kernel.set_arg)

    def set(self, index: int, value: Any) -> None:
        """Set an argument: a cl.Buffer, LocalArg, or the bytes of a scalar."""
        if type(value) is bytes:
            self.set_bytes(index, value)
        else:
            self.cl.set_arg(index, cl.LocalMemory(value.nbytes) if type(value) is LocalArg else value)
        self.held[index] = value


class _KeptKernel(NamedTuple):
    program: ProgramFacts
    kernel: KernelObject


class _Chosen(NamedTuple):
    """Which of a launch's versions (index) a device runs, or why none."""

    programs: tuple[ProgramFacts, ...]
    version: int | SourceError


class Programs:
    """Built once per text, options and device, as long as not too many others have come since."""

    def __init__(self, machine: Machine, contexts: Sequence[cl.Context], devices: Sequence[cl.Device]) -> None:
        self._machine = machine
        self._contexts = contexts
        self._devices = devices
        self._marked = [_mixes_up(d.platform.version) for d in devices]
        self._built: list[Kept[_Key, cl.Program]] = [Kept(PROGRAMS_KEPT) for _ in devices]
        # with the programs whose identities are their keys, which nothing else has while these are kept
        self._kernels: list[Kept[tuple[int, str], _KeptKernel]] = [Kept(KERNELS_KEPT) for _ in devices]
        self._chosen: list[Kept[tuple[Any, ...], _Chosen]] = [Kept(KERNELS_KEPT) for _ in devices]
        self.prefer: Callable[[Launch, int], int] = lambda launch, device: -1
        """Which version (index) of a launch a device shall run if it can (-1: what it prefers itself)."""

    def rearrange(
        self,
        machine: Machine,
        contexts: Sequence[cl.Context],
        devices: Sequence[cl.Device],
        before: Sequence[int | None],
    ) -> None:
        """Other devices are there now; ``before``: the index that each had. Only when no run is under way."""
        self._machine, self._contexts, self._devices = machine, contexts, devices
        # where the number of a device is built in, programs are built anew
        kept = [
            i if not _mixes_up(d.platform.version) or i == n else None
            for n, (i, d) in enumerate(zip(before, devices, strict=True))
        ]
        self._marked = [_mixes_up(d.platform.version) for d in devices]
        self._built = [Kept(PROGRAMS_KEPT) if i is None else self._built[i] for i in kept]
        self._kernels = [Kept(KERNELS_KEPT) if i is None else self._kernels[i] for i in kept]
        self._chosen = [Kept(KERNELS_KEPT) for _ in devices]

    def build(self, programs: Iterable[ProgramFacts], devices: Iterable[int]) -> None:
        """Build what is not built yet, several at once (building releases the GIL)."""
        wanted = {_key(p): p for p in programs}
        todo = [(p, d) for d in devices for k, p in wanted.items() if self._built[d].get(k) is None]
        if not todo:
            return
        with quiet:
            if len(todo) == 1:
                self._build(*todo[0])
                return
            with ThreadPoolExecutor(min(8, len(todo))) as pool:
                list(pool.map(lambda job: self._build(*job), todo))

    def kernel(self, program: ProgramFacts, name: str, device: int) -> KernelObject:
        """The kernel object (building its program first where that was not done)."""
        key = (id(program), name)
        found = self._kernels[device].get(key)
        if found is None:
            self.build([program], [device])
            built = self._built[device].get(_key(program)) or self._build(program, device)
            try:
                kernel = new_kernel(built, name)
            except cl.Error as error:
                raise SourceError(
                    f"{program.path}: kernel {name} cannot be used on {self._machine.devices[device].name}: {error}",
                    hint="PoCL refuses kernels that are called like a built-in function (step, mix, …): rename it",
                ) from None
            made = _KeptKernel(program, KernelObject(kernel, len(program.kernels[name].arguments)))
            found = self._kernels[device].keep(key, made)
        return found.kernel

    def version(self, launch: Launch, device: int) -> Version:
        """Which of a launch's versions a device runs: the one that ``prefer`` names, else, of those that it can, the
        first in order of preference.

        The ones before it, which do not build there or whose work-groups are too large, are warned about, once. Raises
        SourceError where none is left.
        """
        versions, first = launch.versions, self.prefer(launch, device)
        key = (first, *((id(v.program), v.kernel.name, v.kinds, v.local_size) for v in versions))
        found = self._chosen[device].get(key)
        if found is None:
            chosen: int | SourceError
            try:
                chosen = self._choose(launch, device, first)
            except SourceError as error:
                chosen = error
            found = self._chosen[device].keep(key, _Chosen(tuple(v.program for v in versions), chosen))
        if isinstance(found.version, SourceError):
            raise found.version
        return versions[found.version]

    def _choose(self, launch: Launch, device: int, first: int) -> int:
        name, kind = self._machine.devices[device].name, self._machine.devices[device].kind
        faults: list[str] = []
        diagnostics: list[Diagnostic] = []
        order = preferred(launch.versions, kind)
        for index in sorted(order, key=lambda i: i != first):
            version = launch.versions[index]
            words = f"kernel {version.kernel.name} ({version.program.path}:{version.kernel.line})"
            try:
                fault = self._too_large(version, device)
            except SourceError as error:
                fault = error.message.partition("\n")[0]
                diagnostics += error.diagnostics
            if not fault:
                for fault in faults:
                    warnings.warn(fault, RuntimeWarning, stacklevel=2)
                return index
            faults.append(f"a version of {launch.name} is left out on {name}: {words}: {fault}")
        raise SourceError("\n".join([f"no version of {launch.name} can run on {name}", *faults]), tuple(diagnostics))

    def _too_large(self, version: Version, device: int) -> str:
        """Build a version; what is wrong with its work-groups on the device, or nothing."""
        kernel = self.kernel(version.program, version.kernel.name, device).cl
        most = kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, self._devices[device])
        if version.local_size is None or math.prod(version.local_size) <= most:
            return ""
        return f"its work-groups {version.local_size} have more than {most} work-items"

    def unbind(self) -> None:
        """Let go of the buffers that arguments are set to."""
        for kernels in self._kernels:
            for kept in kernels.values():
                kept.kernel.held = [None] * len(kept.kernel.held)

    def _build(self, program: ProgramFacts, device: int) -> cl.Program:
        options = list(program.options)
        folder = Path(program.path).parent
        if program.path and folder.is_dir():
            options.append(f"-I{folder}")
        if self._marked[device]:
            options.append(f"-DMANYCL_DEVICE={device}")
        built = cl.Program(self._contexts[device], program.source)
        try:
            built.build(options, devices=[self._devices[device]])
        except cl.Error as error:
            name = self._machine.devices[device].name
            log = _log(built, self._devices[device]) or str(error)
            others = [d.name for i, d in enumerate(self._machine.devices) if i != device]
            raise SourceError(
                f"{program.path} does not build on {name}",
                (Diagnostic(program.path, 0, 0, "build log", log.strip()),),
                hint=f"leave the device out: --devices {','.join(others)}" if others else "",
            ) from None
        return self._built[device].keep(_key(program), built)


def _log(program: cl.Program, device: cl.Device) -> str:
    try:
        return str(program.get_build_info(device, cl.program_build_info.LOG))
    except cl.Error:
        return ""
