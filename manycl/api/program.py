"""Programs and kernels, called the way PyOpenCL calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manycl.analysis import parse_program
from manycl.analysis.annotations import Annotation, annotation, from_environment, merge
from manycl.analysis.facts import ArgumentFacts, KernelFacts, ProgramFacts
from manycl.api.arrays.arrays import Array, ArrayView
from manycl.api.events import Event
from manycl.api.kernel_files import read_source
from manycl.api.versions.versions import (
    AnyVersion,
    NDRangeFunction,
    SequenceVersion,
    SourceVersion,
    check_kinds,
    function_version,
)
from manycl.errors import LaunchError
from manycl.graph.graph import Argument, BufferKey, Launch, LocalArg, Placement, Version
from manycl.graph.launch import check_element_type, check_ndrange, find_kernel, integers, scalar_bytes
from manycl.graph.versions.feasible import beyond
from manycl.graph.versions.versions import all_versions, check_same_arguments
from manycl.graph.work_groups import ungathered
from manycl.utilities.checked import checked
from manycl.utilities.kept import MANY
from manycl.utilities.shown import html

if TYPE_CHECKING:
    from manycl.api.arrays.array_queue import ArrayQueue as Queue

Sizes = tuple[int, ...]
NDRange = tuple[Sizes, Sizes | None]
Bounds = tuple[str | int, str | int]

_ANYWHERE = ""  # the default of a call's device (Python has one empty string)


class LocalMemory:
    """A kernel argument in local memory of ``size`` bytes (PyOpenCL's class of that name is accepted as well)."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size

    def __repr__(self) -> str:
        return f"LocalMemory({self.size!r})"


@checked()
class Program:
    """OpenCL C source, parsed and analysed at once; built for a device when that device first runs a kernel of it.
    ``options`` are build options (a string or a list). Kernels are attributes: ``program.gemm(queue, …)``. Raises
    SourceError with the compiler's words, file, line and column."""

    def __init__(self, source: str, options: str | Sequence[str] = (), *, path: str = "<source>") -> None:
        words = options.split() if isinstance(options, str) else list(options)
        self.facts: ProgramFacts = parse_program(source, path=path, options=words)
        self._kernels: dict[str, Kernel] = {}

    @classmethod
    def from_file(cls, path: str | Path, options: str | Sequence[str] = ()) -> Program:
        """Return the program in a file; includes are found beside it."""
        return cls(read_source(path), options, path=str(path))

    def build(self, options: str | Sequence[str] = ()) -> Program:
        """Build the program now for the devices of the queue that was opened last, as PyOpenCL's programs are; without
        this it is built when it first runs. With ``options``: another program, with these as well. Returns the program.
        An error of building for a device is raised when the program is to run there."""
        if options:
            words = options.split() if isinstance(options, str) else list(options)
            return Program(self.facts.source, [*self.facts.options, *words], path=self.facts.path).build()
        from manycl.run.executor.building import build_now  # run/ is imported with the first queue

        build_now(self.facts)
        return self

    def __repr__(self) -> str:
        return f"<manycl.Program {self.facts.path}: {', '.join(self.facts.kernels) or 'no kernels'}>"

    def _repr_html_(self) -> str:
        return html(self.facts)

    def kernel(self, name: str) -> Kernel:
        """Return the kernel of a name. Raises LaunchError, which names those that there are."""
        kernel = self._kernels.get(name)
        if kernel is None:
            kernel = self._kernels[name] = kernel_of(self.facts, name)
        return kernel

    def annotate(
        self,
        kernel: str,
        argument: str | int,
        *,
        values: Bounds | None = None,
        distinct: bool = False,
        within: Bounds | Mapping[str, Bounds] | None = None,
        apart: bool = False,
    ) -> None:
        """Annotate the kernel of a name, as :meth:`Kernel.annotate`."""
        self.kernel(kernel).annotate(argument, values=values, distinct=distinct, within=within, apart=apart)

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("_") or "facts" not in self.__dict__:
            raise AttributeError(name)
        try:
            kernel = self.kernel(name)
        except LaunchError as error:
            raise AttributeError(str(error)) from None
        self.__dict__[name] = kernel
        return kernel

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.facts.kernels]


@checked("__init__", "__call__")
class Kernel:
    """A kernel: call it with a queue, the NDRange and the arguments."""

    __slots__ = ("__dict__", "__weakref__", "_key")

    def __init__(self, program: ProgramFacts, facts: KernelFacts) -> None:
        self.program = program
        self.facts = facts
        self._arguments = facts.arguments
        self._key = object()  # in the keys of cached launches: a new one invalidates them
        self.annotations: tuple[Annotation, ...] = from_environment(facts)
        self._versions: list[AnyVersion] = []
        self._ndranges: dict[Any, NDRange] = {}
        self._scalars: dict[tuple[int, type, Any], bytes] = {}
        self._fits: set[tuple[int, Any]] = set()

    @property
    def name(self) -> str:
        return self.facts.name

    def __repr__(self) -> str:
        words = (" ".join(filter(None, (a.element, a.name, a.direction or a.kind))) for a in self._arguments)
        return f"<manycl.Kernel {self.name}({', '.join(words)})>"

    def _repr_html_(self) -> str:
        from manycl.report.notebook import kernel  # only notebooks need it

        return kernel(self.program, self.facts)

    def add_version(
        self,
        other: Kernel | Callable[..., Any],
        kinds: str | Sequence[str] = (),
        *,
        ndrange: NDRangeFunction | None = None,
        divide: int | None = None,
    ) -> None:
        """Declare that ``other`` does the same as this kernel, so that either may run when this one is called.

        ``kinds``: the kinds of device it is for (``cpu``, ``gpu``, ``accelerator``), which then run it rather than this
        kernel; without any, it only runs where this kernel cannot be built. ``ndrange`` turns the global and local size
        of a call into its own: ``lambda size, local: (size, (16, 16))``. It runs with the same arguments; raises
        LaunchError unless the two have the same arguments and directions.

        With ``"host"`` for a kind, ``other`` is a function of Python, for processors (native devices): called as
        ``other(*arguments)``, with NumPy arrays in place of the launch's, of their shapes and types, which can be
        written to where this kernel writes, numbers of the declared types, and None for local memory. It does to these
        what the kernel does. ``divide=d``: called as ``other(items, *arguments)``, it does what the work-items do whose
        global ids in dimension d are in the slice ``items`` (which may end behind the arrays, as the NDRange may), so
        the launch can be divided along d. It may be called by any thread, and for several parts at the same time.
        """
        wanted = (kinds,) if isinstance(kinds, str) else tuple(kinds)
        if not isinstance(other, Kernel):
            if ndrange is not None:
                raise LaunchError(f"kernel {self.name}: a function of Python has the NDRange of the call")
            self._versions.append(function_version(self, other, wanted, divide))
        else:
            if divide is not None:
                raise LaunchError(f"kernel {self.name}: how kernels are divided is found out: divide is for functions")
            check_kinds(self, wanted)
            check_same_arguments(self.program, self.facts, other.program, other.facts)
            self._versions.append(SourceVersion(other, wanted, ndrange))
        self._key = object()

    def add_sequence(self, function: Callable[..., Any], kinds: str | Sequence[str] = ()) -> None:
        """Declare that several kernels, one after another, do the same as this one: those that
        ``function(queue, global_size, local_size, *arguments)`` enqueues when this kernel is called, with these
        arguments and temporary arrays (``queue.empty``) that it makes. Nothing of that runs unless a device chooses
        this version: then it is given all of them, and the temporary arrays are its own. ``kinds`` as of
        ``add_version``. Calls raise LaunchError where they touch what the kernel does not."""
        wanted = (kinds,) if isinstance(kinds, str) else tuple(kinds)
        check_kinds(self, wanted)
        self._versions.append(SequenceVersion(function, wanted))
        self._key = object()

    def annotate(
        self,
        argument: str | int,
        *,
        values: Bounds | None = None,
        distinct: bool = False,
        within: Bounds | Mapping[str, Bounds] | None = None,
        apart: bool = False,
    ) -> None:
        """Promise what the analysis cannot prove of a buffer argument, for all later calls. It is trusted, not
        checked (but ``apart``).

        ``values=("0", "n")``: every element read from this index array lies in [0, n). ``distinct=True``: no two of its
        elements are equal. ``within=("gid0 * n", "gid0 * n + n")``: a work-item touches only these elements of the
        argument; ``{"reads": …, "writes": …}`` to say it of one direction. ``apart=True``: no two work-groups write
        different values to one of its elements, and none reads an element that another one writes. The bounds' symbols
        are those of :mod:`manycl.analysis.annotations`. Saying something again replaces it. Raises AnnotationError.
        """
        new = annotation(self.facts, argument, values=values, distinct=distinct, within=within, apart=apart)
        self.annotations = merge(self.annotations, [new])
        self._key = object()

    def __call__(
        self,
        queue: Queue,
        global_size: Sequence[int],
        local_size: Sequence[int] | None,
        *args: Any,
        global_offset: Sequence[int] | None = None,
        wait_for: Sequence[Event] | None = None,
        g_times_l: bool = False,
        device: str | Placement = _ANYWHERE,
        rank: float | None = None,
    ) -> Event:
        """Enqueue a launch; nothing runs until a result is asked for or the queue is finished. ``args`` are arrays of
        the queue, numbers (converted to the declared type), LocalMemory. ``device`` is a preference (``cpu``, ``gpu``,
        a device's name) or a restriction (``mc.Placement(never="gpu")``), ``rank`` the place on the frontier (higher
        first). Raises LaunchError for what cannot be right."""
        # (by identity: other values may be of any type, and are checked first)
        is_usual = global_offset is None and wait_for is None and g_times_l is False and rank is None
        is_usual = is_usual and device is _ANYWHERE
        if not is_usual or not hasattr(queue, "launches"):
            _check_call(queue, wait_for, g_times_l, device, rank)
        queue.settle()
        try:
            sizes = self._ndranges.get((global_size, local_size))
        except TypeError:
            sizes = None
        if sizes is None or g_times_l:
            sizes = self._check_sizes(global_size, local_size, g_times_l)
        facts = self._arguments
        if len(args) != len(facts):
            names = ", ".join(a.name or f"#{a.index}" for a in facts)
            raise LaunchError(f"kernel {self.name} takes {len(facts)} arguments ({names}), got {len(args)}")
        bound: list[Argument] = []
        reads: list[BufferKey] = []
        writes: list[BufferKey] = []
        arrays: list[Array] = []
        views = False
        for fact, value in zip(facts, args, strict=True):
            kind = type(value)
            if kind is Array or kind is ArrayView:
                key = self._array(fact, value, queue)
                bound.append(value.argument)
                if kind is Array:
                    arrays.append(value)
                else:
                    arrays.append(value.base)
                    views = True
                if fact.reads and key not in reads:
                    reads.append(key)
                if fact.writes and key not in writes:
                    writes.append(key)
            elif isinstance(value, Array):  # another queue has deferred it, or it has gaps
                value.use(queue)
                again: dict[str, Any] = {"global_offset": global_offset, "wait_for": wait_for, "device": device}
                return self(queue, *sizes, *[value.ready if a is value else a for a in args], rank=rank, **again)
            else:
                bound.append(self._value(fact.index, value))
        if views and (stuck := self._stuck(queue, tuple(bound))):
            options = {"global_offset": global_offset, "wait_for": wait_for, "device": device, "rank": rank}
            return self._by_copies(queue, sizes, args, stuck, options)
        offset = self._check_offset(global_offset, sizes[0]) if global_offset is not None else None
        launch = Launch(
            self.facts.name,
            self.program,
            self.facts,
            sizes[0],
            sizes[1],
            tuple(bound),
            tuple(reads),
            tuple(writes),
            offset,
            device,
            rank,
            self.annotations,
            self._all_versions(queue, sizes, offset, args, bound) if self._versions else (),
        )
        if self.facts.sees_groups_shared and all(d.kind == "cpu" for d in queue.session.machine.devices):
            is_usual = is_usual and local_size is not None  # other launches of these sizes may get one buffer twice
            launch = ungathered(launch)
        if (self._key, launch.local_size) not in queue.roomy:
            self._check_room(launch, queue)
            is_usual = is_usual and not launch.device
        event = queue.add(launch, wait_for, arrays)
        stream = queue.enqueued.stream
        # (launches that are collected to be prepared, or are planned, have not been checked yet)
        is_usual = is_usual and type(global_size) is tuple and (local_size is None or type(local_size) is tuple)
        if is_usual and not self._versions and stream is not None and stream.was_given(launch):
            queue.remember(queue, stream, (self._key, global_size, local_size), launch, args, self._value)
        return event

    def _check_room(self, launch: Launch, queue: Queue) -> None:
        """Raise LaunchError where no device has what a launch needs; keep it from those that do not have it."""
        devices = queue.session.machine.devices
        excess = [beyond(launch, device) for device in devices]
        if devices and all(excess):
            hint = "choose a smaller work-group, less local memory, or another device"
            raise LaunchError(f"kernel {self.name} cannot have {'; '.join(excess)}", hint=hint)
        if any(excess):
            if not isinstance(launch.device, Placement):
                able = [device.name for device, lack in zip(devices, excess, strict=True) if not lack]
                launch.device = Placement(only=able, prefer=launch.device)
            return
        if LocalArg not in map(type, launch.args) and len(queue.roomy) < MANY:
            queue.roomy.add((self._key, launch.local_size))

    def _check_sizes(self, global_size: Sequence[int], local_size: Sequence[int] | None, g_times_l: bool) -> NDRange:
        size: Any = global_size
        if g_times_l and local_size is not None:
            count, local_size = self._numbers(global_size), self._numbers(local_size)
            if len(count) != len(local_size):
                raise LaunchError(
                    f"kernel {self.name}: {len(count)} numbers of work-groups {count} and {len(local_size)} local sizes"
                    f" {local_size}: with g_times_l, both have the same dimensions"
                )
            size = tuple(g * w for g, w in zip(count, local_size, strict=True))
        sizes = check_ndrange(self.facts, size, local_size)
        if type(global_size) is tuple and not g_times_l and (local_size is None or type(local_size) is tuple):
            if len(self._ndranges) >= MANY:  # a plain dictionary: every call reads it
                self._ndranges.clear()
            self._ndranges[global_size, local_size] = sizes
        return sizes

    def _numbers(self, sizes: Any) -> Sizes:
        try:
            return integers(sizes)
        except TypeError:
            raise LaunchError(f"kernel {self.name}: {sizes!r:.80} is no NDRange") from None

    def _all_versions(
        self, queue: Queue, sizes: NDRange, offset: Sizes | None, args: Sequence[Any], bound: Sequence[Argument]
    ) -> tuple[Version, ...]:
        """Return all versions of a launch, its own first. Raises LaunchError where one does not fit it."""
        own = Version(self.program, self.facts, *sizes, annotations=self.annotations)
        return all_versions(own, [version.of(queue, self, sizes, args, bound) for version in self._versions], offset)

    def _check_offset(self, offset: Sequence[int], size: Sizes) -> Sizes:
        try:
            found = integers(offset) if hasattr(offset, "__iter__") else ()
        except TypeError:
            found = ()
        if len(found) != len(size) or min(found) < 0 or max(found) >= 1 << 62:
            raise LaunchError(f"kernel {self.name}: global offset {offset!r:.80} does not fit the global size {size}")
        return found

    def _array(self, fact: ArgumentFacts, array: Array, queue: Queue) -> BufferKey:
        if array.queue is not queue or array.buffer.key in queue.mapped:
            try:
                array.use(queue)
            except LaunchError as error:
                raise LaunchError(f"{self._where(fact)}: {error.message}") from None
        if (fact.index, array.dtype) not in self._fits:
            if fact.kind != "buffer":
                raise LaunchError(f"{self._where(fact)} is no buffer, but an array was given")
            try:
                check_element_type(fact, array.dtype)
            except LaunchError as error:
                raise LaunchError(
                    f"kernel {self.name}: {error.message}", hint="make the array with the type the kernel declares"
                ) from None
            self._fits.add((fact.index, array.dtype))
        if type(array) is not Array and array.offset:
            self._check_begin(fact, array)
        return array.buffer.key

    def _check_begin(self, fact: ArgumentFacts, array: Array) -> None:
        """Raise LaunchError where a view begins at a byte where no element may: vectors begin at multiples of their
        size (OpenCL C, 6.3.5)."""
        aligned = fact.size & -fact.size
        if aligned and array.offset % aligned:
            raise LaunchError(
                f"{self._where(fact)} points to {fact.element}, which begins at multiples of {aligned} bytes; the view"
                f" begins at byte {array.offset}",
                hint="copy it to an array of its own (Queue.copy)",
            )

    def _stuck(self, queue: Queue, args: tuple[Argument, ...]) -> set[int]:
        """Return the arguments that are views which some device of the queue can take neither as sub-buffers nor by a
        shifted pointer in the kernel."""
        from manycl.run.executor.sub_buffers import shifted, unaligned

        moved = set(unaligned(args, max((d.alignment for d in queue.session.machine.devices), default=1)))
        stuck: set[int] = set()
        others = [v.kernel for v in self._versions if isinstance(v, SourceVersion)]
        for kernel in (self, *others) if moved else ():
            stuck |= moved - set(shifted(kernel.program, kernel.name).movable)
        return stuck

    def _by_copies(
        self, queue: Queue, sizes: NDRange, args: Sequence[Any], stuck: set[int], options: Mapping[str, Any]
    ) -> Event:
        """Enqueue the launch on copies of some arguments, made before it; those that it may write are copied back."""
        facts, copies = self._arguments, {args[i].argument: args[i] for i in stuck}
        for i in stuck:
            for j, other in enumerate(args):
                written = facts[i].writes or facts[j].writes
                if not written or not isinstance(other, Array) or other.argument == args[i].argument:
                    continue
                if args[i].meets(other):
                    raise LaunchError(
                        f"{self._where(facts[i])} and argument {j} ({facts[j].name}) overlap, the kernel writes one of"
                        f" them, and cannot be given byte {args[i].offset} of a buffer",
                        hint="copy one of them to an array of its own (Queue.copy)",
                    )
        own = {}
        for argument, view in copies.items():
            own[argument] = queue.empty(view.shape, view.dtype, name=f"a copy of a part of {view.name or 'an array'}")
            queue.copy(own[argument], view, wait_for=options["wait_for"])
        given = [own[a.argument] if i in stuck else a for i, a in enumerate(args)]
        event = self(queue, *sizes, *given, **options)
        for argument in dict.fromkeys(args[i].argument for i in stuck if facts[i].writes):
            event = queue.copy(copies[argument], own[argument])
        return event

    def _value(self, index: int, value: Any) -> Argument:
        """Return what an argument that is no array is set to."""
        fact = self._arguments[index]
        if type(value) is bytes and fact.kind == "scalar" and len(value) == fact.size:
            return value  # already the bytes that the kernel receives
        try:
            found = self._scalars.get((fact.index, type(value), value))
        except TypeError:  # not hashable: an array or a list
            found = None
        if found is not None:
            return found
        if fact.kind == "buffer":
            raise LaunchError(
                f"{self._where(fact)} needs an array, not {type(value).__name__}", hint="queue.array(…) makes one"
            )
        if fact.kind == "local":
            size = value if isinstance(value, np.integer) else getattr(value, "size", value)
            if not isinstance(size, int | np.integer) or size <= 0 or isinstance(value, (bytes, bool, np.ndarray)):
                shown = f"LocalMemory({size!r:.40})" if size is not value else f"{value!r:.60}"
                raise LaunchError(f"{self._where(fact)} needs LocalMemory(nbytes), not {shown}")
            return LocalArg(int(size))
        try:
            data = scalar_bytes(fact, value)
        except LaunchError as error:
            raise LaunchError(f"kernel {self.name}: {error.message}", hint=error.hint) from None
        # 0.0 and -0.0 are equal but not the same bytes: zeros are not remembered
        if isinstance(value, (int, float, np.number)) and value != 0 and len(self._scalars) < MANY:
            self._scalars[fact.index, type(value), value] = data
        return data

    def _where(self, fact: ArgumentFacts) -> str:
        return f"kernel {self.name}, argument {fact.index} ({fact.name})"


def kernel_of(program: ProgramFacts, name: str) -> Kernel:
    """Return the kernel of a name. Raises LaunchError where there is none."""
    facts = find_kernel(program, name)
    if all(argument.kind != "image" for argument in facts.arguments):
        return Kernel(program, facts)
    from manycl.api.versions.images import ImageKernel  # few programs have images

    return ImageKernel(program, facts)


@checked()
def _check_call(
    queue: Queue, wait_for: Sequence[Event] | None, g_times_l: bool, device: str | Placement, rank: float | None
) -> None:
    """Check what a kernel is called with besides its arguments and sizes, where no launch like it is known."""
