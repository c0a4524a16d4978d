"""Programs built for devices, and their kernel objects."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from manycl.analysis.facts import ProgramFacts
from manycl.analysis.reading.options import included
from manycl.drivers.driver import BuildError, DeviceKernel, Driver, DriverError, Program, Source
from manycl.errors import Diagnostic, SourceError, anew
from manycl.graph.graph import Launch, LocalArg, Version
from manycl.graph.versions.host_version import HostProgram
from manycl.graph.versions.sequence import SequenceProgram
from manycl.graph.versions.versions import preferred
from manycl.machine import DeviceIndex, Machine
from manycl.run.executor.sub_buffers import placed
from manycl.utilities.kept import MANY, Kept
from manycl.utilities.logs import logger

log = logger(__name__)

PROGRAMS_KEPT = 1024
"""Programs that are cached for each device, which take up to a megabyte; graphs with more are built in each run; our
own choice."""


def _source(program: ProgramFacts) -> Source:
    """Return what decides the binary."""
    return Source(program.source, tuple(program.options), program.path)


def _key(program: ProgramFacts) -> tuple[Source, object]:
    """Return the cache key of a program. Programs with the same key have the same binary: files that a text includes
    may have changed since another program read them."""
    source = _source(program)
    read = included(source.text, source.options, [source.folder])
    return source, id(program) if read is None else read


class KernelObject:
    """A kernel of one device, and the values of its arguments. One object serves all launches: only one thread sets
    arguments, and a launch takes them as they are when it is enqueued. ``held[i]`` is the value of argument i, or None;
    a value that is set already is not set again. ``launched``: the kinds of launches so far, as drivers compile for
    each kind."""

    __slots__ = ("held", "kernel", "launched", "set")

    def __init__(self, kernel: DeviceKernel, arguments: int) -> None:
        self.kernel = kernel
        self.set = kernel.set
        self.held: list[Any] = [None] * arguments
        self.launched: set[tuple[Any, ...]] = set()

    def put(self, index: int, value: Any) -> None:
        """Set an argument, and remember its value; an interrupt in between leaves None."""
        held = self.held
        held[index] = None
        self.set(index, value)
        held[index] = value

    def put_all(self, values: Iterable[Any]) -> None:
        """Set all arguments that have other values."""
        for index, value in enumerate(values):
            if not same(self.held[index], value):
                self.put(index, value)

    def forget(self) -> None:
        """Have all arguments set anew by the next launch: others than ``put`` set some."""
        self.held[:] = [None] * len(self.held)


def same(value: Any, held: Any) -> bool:
    """Return whether an argument has this value already."""
    return value == held if isinstance(value, (bytes, LocalArg)) else value is held


def _at_once(jobs: Sequence[Callable[[], object]]) -> None:
    """Run all jobs, several at the same time. Raises the error of the first job that fails."""
    if len(jobs) < 2:
        for job in jobs:
            job()
        return
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda job: job(), jobs))


class _KeptKernel(NamedTuple):
    program: ProgramFacts
    kernel: KernelObject


class _Built(NamedTuple):
    program: ProgramFacts
    """Kept here, so that no other program gets its id."""
    built: Program


class _Chosen(NamedTuple):
    """The version (index) of a launch that a device runs, or the reason why none can run."""

    programs: tuple[ProgramFacts, ...]
    version: int | SourceError


class Programs:
    """Programs and kernels, built once per text, options and device, and cached in bounded number."""

    def __init__(self, machine: Machine, drivers: Sequence[Driver]) -> None:
        self._machine = machine
        self._drivers = drivers
        self._built: list[Kept[tuple[Source, object], _Built]] = [Kept(PROGRAMS_KEPT) for _ in drivers]
        # each with its program, so that no other program gets the id in its key
        self._kernels: list[Kept[tuple[int, str], _KeptKernel]] = [Kept(MANY) for _ in drivers]
        self._chosen: list[Kept[tuple[Any, ...], _Chosen]] = [Kept(MANY) for _ in drivers]
        self.prefer: Callable[[Launch, DeviceIndex], int | None] = lambda launch, device: None
        """The version (index) of a launch that a device shall run if it can, as a function (-1: the device's)."""

    def rearrange(self, machine: Machine, drivers: Sequence[Driver], before: Sequence[int | None]) -> None:
        """Change to other devices; ``before``: the former index of each. Only when no run is under way."""
        self._machine, self._drivers = machine, drivers
        self._built = [Kept(PROGRAMS_KEPT) if i is None else self._built[i] for i in before]
        self._kernels = [Kept(MANY) if i is None else self._kernels[i] for i in before]
        self._chosen = [Kept(MANY) for _ in drivers]

    @property
    def devices(self) -> Sequence[DeviceIndex]:
        return self._machine.indices

    def prepare(self, wanted: Iterable[tuple[Launch, DeviceIndex]]) -> None:
        """Make the kernels of launches for devices; several missing ones are built at once (building releases the GIL).
        Raises SourceError."""
        kernels: dict[tuple[int, str, DeviceIndex], ProgramFacts] = {}
        for launch, d in wanted:
            name = launch.kernel.name
            program, _ = placed(launch.program, name, launch.args, self._machine.devices[d])
            if self._kernels[d].get((id(program), name)) is None:
                kernels[id(program), name, d] = program
        built = ((d, program) for (_, _, d), program in kernels.items() if not isinstance(program, HostProgram))
        sources = {(_key(program), d): (program, d) for d, program in built}
        todo = [job for (key, d), job in sources.items() if self._built[d].get(key) is None]
        _at_once([partial(self.build, *job) for job in todo])
        places: dict[tuple[int, str], tuple[ProgramFacts, list[DeviceIndex]]] = {}
        for (number, name, d), program in kernels.items():
            places.setdefault((number, name), (program, []))[1].append(d)
        _at_once([partial(self._on_each, program, name, ds) for (_, name), (program, ds) in places.items()])

    def build_everywhere(self, program: ProgramFacts) -> None:
        """Build all kernels of a program for all devices, several at once; leave out what cannot be built."""
        able = []
        for device in self.devices:
            with suppress(SourceError):
                self.build(program, device)
                able.append(device)

        def build(name: str) -> None:
            with suppress(SourceError):
                self._on_each(program, name, able)

        _at_once([partial(build, name) for name in program.kernels])

    def _on_each(self, program: ProgramFacts, name: str, devices: Iterable[DeviceIndex]) -> None:
        """Make a kernel for devices, one after the other: the code compiled for one may be what the next one needs."""
        for device in devices:
            self.kernel(program, name, device)

    def kernel(self, program: ProgramFacts, name: str, device: DeviceIndex) -> KernelObject:
        """Return the kernel object; its program is built first if need be."""
        key = (id(program), name)
        found = self._kernels[device].get(key)
        if found is None:
            try:
                kernel = self.new_kernel(program, name, device)
            except DriverError as error:
                words = f"{program.path}: kernel {name} cannot be used on {self._machine.devices[device].name}"
                raise SourceError(f"{words}: {error.message}", hint=error.hint) from None
            made = _KeptKernel(program, KernelObject(kernel, len(program.kernels[name].arguments)))
            found = self._kernels[device].keep(key, made)
        return found.kernel

    def new_kernel(self, program: ProgramFacts, name: str, device: DeviceIndex) -> DeviceKernel:
        """Return a kernel object of the caller's own. Raises DriverError, and SourceError where it does not build."""
        driver = self._drivers[device]
        if isinstance(program, HostProgram):
            return driver.function(program.call, len(program.forms))
        return driver.kernel(self.build(program, device), name)

    def version(self, launch: Launch, device: DeviceIndex) -> Version:
        """Return the version of a launch that a device runs: the one that ``prefer`` names, else the first one in order
        of preference that it can run. Versions before it, which do not build there or whose work-groups are too large,
        are warned about, once. Raises SourceError where no version can run."""
        versions, first = launch.versions, self.prefer(launch, device)
        key = (first, *((id(v.program), v.kernel.name, v.kinds, v.local_size) for v in versions))
        found = self._chosen[device].get(key)
        if found is None:
            chosen: int | SourceError
            try:
                chosen = self._choose(launch, device, first)
            except SourceError as error:
                chosen = anew(error)
            found = self._chosen[device].keep(key, _Chosen(tuple(v.program for v in versions), chosen))
        if isinstance(found.version, SourceError):
            raise anew(found.version)
        return versions[found.version]

    def _choose(self, launch: Launch, device: DeviceIndex, first: int | None) -> int:
        name, kind = self._machine.devices[device].name, self._machine.devices[device].kind
        faults: list[str] = []
        diagnostics: list[Diagnostic] = []
        order = preferred(launch.versions, kind)
        for index in sorted(order, key=lambda i: i != first):
            version = launch.versions[index]
            words = f"kernel {version.kernel.name} ({version.program.path}:{version.kernel.line})"
            fault = self.fault(version, device, diagnostics)
            if not fault:
                for fault in faults:
                    log.warning("%s", fault)
                    warnings.warn(fault, RuntimeWarning, stacklevel=2)
                return index
            faults.append(f"a version of {launch.name} is left out on {name}: {words}: {fault}")
        raise SourceError("\n".join([f"no version of {launch.name} can run on {name}", *faults]), tuple(diagnostics))

    def fault(self, version: Version | Launch, device: DeviceIndex, diagnostics: list[Diagnostic] | None = None) -> str:
        """Build a version or launch for a device; return why it cannot run there, or nothing. The compiler's messages
        are added to ``diagnostics``."""
        try:
            return self._too_large(version, device)
        except SourceError as error:
            if diagnostics is not None:
                diagnostics += error.diagnostics
            return error.message.partition("\n")[0]

    def _too_large(self, version: Version | Launch, device: DeviceIndex) -> str:
        """Build a version; return what is wrong with its work-groups on the device, or nothing."""
        if isinstance(version.program, SequenceProgram):
            found = (self._too_large(step, device) for step in version.program.steps)
            return next((fault for fault in found if fault), "")
        most = self.kernel(version.program, version.kernel.name, device).kernel.most_items
        if version.local_size is None or math.prod(version.local_size) <= most:
            return ""
        return f"its work-groups {version.local_size} have more than {most} work-items"

    def build(self, program: ProgramFacts, device: DeviceIndex) -> Program:
        """Return the program, built for a device."""
        key, built, driver = _key(program), self._built[device], self._drivers[device]  # others may come meanwhile
        found = built.get(key)
        if found is not None:
            return found.built
        began = perf_counter()
        try:
            made = _Built(program, driver.build(key[0]))
        except BuildError as error:
            others = [d.name for i, d in self._machine.numbered() if i != device]
            raise SourceError(
                f"{program.path} does not build on {self._machine.devices[device].name}",
                (Diagnostic(program.path, 0, 0, "build log", error.message),),
                hint=f"leave the device out: --devices {','.join(others)}" if others else "",
            ) from None
        where = self._machine.devices[device].name
        log.debug("built %s for %s in %.1f ms", program.path, where, (perf_counter() - began) * 1e3)
        return built.keep(key, made).built
