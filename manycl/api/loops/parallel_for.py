"""``parallel_for``: a loop whose iterations are independent, given as the text of its body, on all devices. The
programming model of Device-Hopping (P. Metzger, V. Seeker, C. Fensch and M. Cole, TACO 2021, Section 5): one body for
all kinds of devices, an iteration space, arrays by name. There the user says how arrays are accessed; here the analysis
derives that, and checks what the user says (:mod:`manycl.api.loops.access_patterns`)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from manycl.api.arrays.array_queue import ArrayQueue
from manycl.api.arrays.arrays import Array, ArrayView
from manycl.api.loops import parallel_text as text
from manycl.api.loops.access_patterns import AccessPattern, Derived, bounds_of, check, derive, races
from manycl.api.loops.parallel_run import (
    GivenArrays,
    blocks,
    constant,
    default_queue,
    dtype_of,
    element_of,
    folded,
    identity_of,
    initial,
    ndrange,
    structure,
    sum_type,
)
from manycl.api.loops.parallel_text import BodyForm, Reduced
from manycl.api.program import Kernel, Program
from manycl.api.queue import Queue
from manycl.errors import LaunchError, SourceError
from manycl.graph.graph import Placement
from manycl.units import LARGEST
from manycl.utilities.checked import checked
from manycl.utilities.kept import MANY, Kept


@checked("called")
class ParallelFor:
    """A loop to call again and again: ``loop(space, a=a, n=n)``. It is compiled once for each combination of argument
    types; ``mc.parallel_for`` keeps one for each body.

    ``body``: statements of OpenCL C, run for each point of the iteration space, whose indices are ``i``, ``j`` and
    ``k`` (``indices``: other names; of type long). ``functions``: OpenCL C that the body may call. ``constants``:
    numbers (or text) known when it is compiled. ``reduction``: variables of the body by name and the operator by which
    points put something into them (``+ * min max & | ^``). ``access``: patterns by array, and ``batch``, points of the
    first index that patterns and ``get_batch_iteration()`` count by, as of :mod:`manycl.api.loops.access_patterns`;
    they are checked. ``name``: the kernel's in traces.
    """

    def __init__(
        self,
        body: str,
        *,
        functions: str = "",
        constants: Mapping[str, Any] | None = None,
        reduction: Mapping[str, str] | None = None,
        access: Mapping[str, AccessPattern] | None = None,
        batch: int = 1,
        indices: Sequence[str] = ("i", "j", "k"),
        name: str = "parallel_for",
    ) -> None:
        for variable, operator in (reduction or {}).items():
            if operator not in text.OPERATORS:
                known = " ".join(text.OPERATORS)
                raise LaunchError(f"parallel_for: {variable} cannot be reduced by {operator!r}", hint=f"by: {known}")
        if batch < 1:
            raise LaunchError(f"parallel_for: a batch has at least one point, not {batch}")
        self.body, self.functions, self.name = body, functions, name
        self.constants = tuple((key, constant(key, value)) for key, value in (constants or {}).items())
        self.reduction = dict(reduction or {})
        self.access, self.batch, self.indices = dict(access or {}), batch, tuple(indices)
        self._ready: Kept[Any, _Ready] = Kept(MANY)
        self._checked: Kept[Any, Kernel] = Kept(MANY)
        self._told: set[BodyForm] = set()

    def __repr__(self) -> str:
        first = self.body.strip().split("\n")[0]
        return f"<manycl.ParallelFor {self.name}: {first[:60]}>"

    def __call__(
        self,
        space: Space,
        *,
        queue: Queue | None = None,
        device: str | Placement = "",
        local: Sequence[int] | None = None,
        arguments: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> Any:
        """Run the body for all points of ``space``: a number, a ``range``, or one to three of these.

        What the body uses is given by name (``arguments``: for names that are options here): NumPy's arrays, arrays of
        a queue, scalars. Arrays are pointers to their first element. With arrays of a queue the loop is enqueued, and
        an Event returned; with NumPy's alone it has run when this returns (None), and those that the body writes have
        their new contents. Of a reduction the results are returned instead, one alone or several by name, as arrays of
        shape ``()`` or as NumPy's scalars; what is given by a reduced variable's name is put into it once. ``local``:
        points of a work-group along each index, which lets the body have barriers and local memory. Raises LaunchError
        and SourceError, with lines of the body; warns of points that certainly meet.
        """
        return self.called(space, queue, device, local, {**named, **(arguments or {})})

    def called(
        self,
        space: Space,
        queue: ArrayQueue | None,
        device: str | Placement,
        local: Sequence[int] | None,
        given: Mapping[str, Any],
    ) -> Any:
        """Enqueue a launch as ``__call__`` does, of arguments that have been checked."""
        key = self._key(space, local, given)
        ready = self._ready.get(key) if key else None
        if ready is not None:
            return ready(queue, given, device)
        call = self._call(space, given, local)
        own = [a for a in call.arrays.values() if isinstance(a, Array)]
        lazy = bool(own) or (queue is not None and not call.arrays)
        if queue is None:  # (a queue on which nothing is enqueued is false)
            queue = own[0].queue if own else default_queue()
        if 0 in call.counts:
            return self._results(call, None, queue, lazy, device) if call.form.reduced else None
        kernel = _compiled(call.form)
        written = {f.name for f in kernel.facts.arguments if f.writes}
        moved = GivenArrays(queue, call.arrays, written, lazy)
        if self.access:
            kernel = self._promised(call, kernel, local and tuple(local))
        size, group = ndrange(call.counts, local, bool(call.form.reduced))
        partial = [queue.empty(blocks(size), dtype_of(r.element)) for r in call.form.reduced]
        args = [*(moved.on_queue[name] for name, _ in call.form.arrays), *call.scalars, *partial]
        event = kernel(queue, size, group, *args, device=device)
        if call.form not in self._told:
            self._told.add(call.form)
            if text.may_meet(call.form, written):  # the analysis takes long, and the loop runs meanwhile
                for index, race in races(kernel, call.counts, self._arguments(call, local), local):
                    words = f"parallel_for: its points do not run apart along {index}: {race}"
                    warnings.warn(f"{words}; what they leave there may differ from run to run", stacklevel=4)
        result = self._results(call, partial, queue, lazy, device) if partial else event if lazy else None
        if key and not (partial or self.access):
            self._ready.keep(key, _Ready(kernel, size, group, call))
        moved.bring_back()
        return result

    def _key(self, space: Space, local: Sequence[int] | None, given: Mapping[str, Any]) -> Any:
        """Return the key of calls that do the same with other arrays of a queue, and other numbers; None where NumPy
        arrays have to be moved, or an argument is unusual."""
        kinds: list[Any] = [space, local]
        is_own = False
        for name, value in given.items():
            kind = type(value)
            if kind is Array or kind is ArrayView:
                is_own = True
                kinds.append((name, value.dtype))
            elif (kind is int and -2 * LARGEST <= value < 2 * LARGEST) or kind is float or kind in _NUMBERS:
                kinds.append((name, kind))
            else:
                return None
        try:
            key = tuple(kinds)
            hash(key)
        except TypeError:
            return None
        return key if is_own else None

    def source(
        self,
        space: Space,
        *,
        local: Sequence[int] | None = None,
        arguments: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> str:
        """Return the OpenCL C that is generated for such a call of the loop."""
        return text.source(self._call(space, {**named, **(arguments or {})}, local).form)

    def derive(
        self,
        space: Space,
        *,
        local: Sequence[int] | None = None,
        arguments: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> Derived:
        """Return the analysis' findings about such a call of the loop: how each array is accessed batch by batch,
        whether the loop may run twice, and along which indices its points may run apart. Nothing runs."""
        call = self._call(space, {**named, **(arguments or {})}, local)
        return derive(_compiled(call.form), call.counts, self._arguments(call, local), self.batch, local)

    def _call(self, space: Space, given: Mapping[str, Any], local: Sequence[int] | None = None) -> _Call:
        counts, bounds = space_of(space, self.indices)
        arrays = {name: value for name, value in given.items() if isinstance(value, Array | np.ndarray)}
        types = [value.dtype for value in arrays.values() if value.dtype.names is None]
        double = any(t in (np.float64, np.complex128) for t in types)
        scalars = {n: initial(n, v, double) for n, v in given.items() if n not in arrays and n not in self.reduction}
        begins = {n: initial(n, v, double) for n, v in given.items() if n in self.reduction and n not in arrays}
        grouped = local is not None and text.asks_for_groups(self.functions + "\n" + self.body)
        if grouped and len(local or ()) == len(counts) and any(n % g for n, g in zip(counts, local or (), strict=True)):
            raise LaunchError(
                f"parallel_for: work-groups of {tuple(local or ())} do not divide the space {counts}, and the body asks"
                " for them",
                hint="a barrier is for all points of a work-group",
            )
        structs: dict[Any, str] = {}
        typed, lines = [], []
        for name, value in arrays.items():
            if value.dtype.names is None:
                typed.append((name, element_of(name, value.dtype)))
                continue
            typed.append((name, f"{name}_t"))
            known = structs.get(value.dtype) or structure(name, value.dtype)[0]
            structs[value.dtype] = f"{name}_t"
            lines.append(f"typedef {known} {name}_t;")
        form = BodyForm(
            self.name,
            self.body,
            self.functions,
            self.indices[: len(counts)],
            tuple(typed),
            tuple((name, element_of(name, value.dtype)) for name, value in scalars.items()),
            self.constants,
            self._reduced(arrays, begins, types),
            bounds is None,
            self.batch if text.asks_for_batches(self.body) else 0,
            grouped,
            tuple(lines),
        )
        return _Call(form, counts, bounds, arrays, tuple(scalars.values()), begins)

    def _reduced(self, arrays: Mapping[str, Any], begins: Mapping[str, Any], types: list[Any]) -> tuple[Reduced, ...]:
        found = []
        for name, operator in self.reduction.items():
            if name in arrays:
                raise LaunchError(f"parallel_for: {name} is reduced: give a number that it begins with, no array")
            dtype = begins[name].dtype if name in begins else sum_type(name, types)
            if dtype.kind == "f" and operator in "&|^":
                raise LaunchError(f"parallel_for: {name} is {dtype}, which has no {operator}")
            found.append(Reduced(name, operator, element_of(name, dtype)))
        return tuple(found)

    def _arguments(self, call: _Call, local: Sequence[int] | None) -> list[Any]:
        """Return the kernel's arguments, with an object of its type and size for each array."""
        size, _ = ndrange(call.counts, local, bool(call.form.reduced))
        partial = [np.empty(blocks(size), dtype_of(r.element)) for r in call.form.reduced]
        return [*(call.arrays[name] for name, _ in call.form.arrays), *call.scalars, *partial]

    def _promised(self, call: _Call, kernel: Kernel, local: Sequence[int] | None) -> Kernel:
        """Return the kernel with the user's patterns as annotations where the analysis cannot see the accesses; they
        are compared with what it does see, once for each launch that differs. Raises LaunchError for a pattern that is
        certainly wrong."""
        sizes = tuple(array.nbytes for array in call.arrays.values())
        bounds = bounds_of(self.access, -(-call.counts[0] // self.batch))
        key = call.form, call.counts, local, sizes, tuple(number.tobytes() for number in call.scalars), bounds
        found = self._checked.get(key)
        if found is None:
            promises = check(
                kernel, call.counts, self._arguments(call, local), self.batch, {**self.access, **dict(bounds)}, local
            )
            found = kernel
            if promises:
                found = Kernel(kernel.program, kernel.facts)
                for name, elements in promises.items():
                    found.annotate(name, within=elements)
            self._checked.keep(key, found)
        return found

    def _results(
        self, call: _Call, partial: Sequence[Array] | None, queue: ArrayQueue, lazy: bool, device: str | Placement
    ) -> Any:
        """Return the results of a reduction from those of its blocks (None: there are no points)."""
        found: dict[str, Any] = {}
        for index, r in enumerate(call.form.reduced):
            dtype = dtype_of(r.element)
            first = call.begins.get(r.name, identity_of(r.operator, dtype))
            if partial is None:
                found[r.name] = queue.array(np.array(first, dtype))
            else:
                found[r.name] = folded(r, partial[index], first, queue, device)
        if not lazy:
            found = {name: array.get()[()] for name, array in found.items()}
        return next(iter(found.values())) if len(found) == 1 else found


class _Ready:
    """A loop that was called before, on arrays of a queue: a call like that one skips the checks."""

    def __init__(self, kernel: Kernel, size: tuple[int, ...], group: tuple[int, ...], call: _Call) -> None:
        self.kernel, self.size, self.group = kernel, size, group
        self.arrays = [name for name, _ in call.form.arrays]
        self.names = [*self.arrays, *(name for name, _ in call.form.scalars)]
        self.tail = call.scalars[len(call.values) :]

    def __call__(self, queue: ArrayQueue | None, given: Mapping[str, Any], device: str | Placement) -> Any:
        args = [given[name] for name in self.names]
        chosen = args[0].queue if queue is None else queue
        return self.kernel(chosen, self.size, self.group, *args, *self.tail, device=device)


class _Call(NamedTuple):
    """The arguments of a call. ``scalars``: all numbers that the kernel is given, those of the space included;
    ``begins``: the first values of reduced variables."""

    form: BodyForm
    counts: tuple[int, ...]
    bounds: Bounds | None
    arrays: Mapping[str, Any]
    values: tuple[Any, ...]
    begins: Mapping[str, Any]

    @property
    def scalars(self) -> tuple[Any, ...]:
        numbers = list(self.values)
        for at, count in enumerate(self.counts):
            numbers += map(np.int64, (count, *(self.bounds[at] if self.bounds else ())))
        return tuple(numbers)


@lru_cache(maxsize=1024)
def _compiled(form: BodyForm) -> Kernel:
    """Return the kernel. Errors are about the user's own text."""
    try:
        return Program(text.source(form), path=text.PATH).kernel(form.name)
    except SourceError as error:
        own = []
        for d in error.diagnostics:
            before = len(text.HIDDEN) * d.source[: max(d.column - 1, 0)].count(text.HIDDEN)
            own.append(replace(d, column=d.column - before, source=d.source.replace(text.HIDDEN, "")))
        raise SourceError(f"parallel_for: the body of {form.name} does not compile", tuple(own)) from None


def parallel_for(  # noqa: PLR0913 (all that can be said of a loop)
    space: Space,
    body: str,
    *,
    functions: str = "",
    constants: Mapping[str, Any] | None = None,
    reduction: Mapping[str, str] | None = None,
    access: Mapping[str, AccessPattern] | None = None,
    batch: int = 1,
    indices: Sequence[str] = ("i", "j", "k"),
    queue: Queue | None = None,
    device: str | Placement = "",
    local: Sequence[int] | None = None,
    name: str = "parallel_for",
    arguments: Mapping[str, Any] | None = None,
    **named: Any,
) -> Any:
    """Run a loop whose iterations are independent on all devices::

        mc.parallel_for(n, "c[i] = a[i] + b[i];", a=a, b=b, c=c)
        s = mc.parallel_for((n, m), "s += a[i * m + j];", a=a, m=m, reduction={"s": "+"})

    The options are those of :class:`ParallelFor` and of calling it, which say what is returned and raised."""
    said = tuple((key, type(value), value) for key, value in (constants or {}).items())
    options = tuple((reduction or {}).items()), tuple((access or {}).items()), batch, tuple(indices), name
    key = body, functions, said, options
    try:
        loop = _loops.get(key)
    except TypeError:  # a constant that is not hashable, which is refused
        loop = None
    if loop is None:
        loop = ParallelFor(
            body,
            functions=functions,
            constants=constants,
            reduction=reduction,
            access=access,
            batch=batch,
            indices=indices,
            name=name,
        )
        _loops.keep(key, loop)
    return loop.called(space, queue, device, local, {**named, **(arguments or {})})


_loops: Kept[Any, ParallelFor] = Kept(MANY)
_NUMBERS = frozenset({np.float32, np.float64, np.int32, np.int64, np.uint32, np.uint64})


# Iteration spaces of ``parallel_for``: one to three indices, each from 0 on, or along a range.


Space = int | range | Sequence[int | range]
"""An iteration space: for each index its count from 0 on, or the range of numbers that it goes through."""
Bounds = tuple[tuple[int, int], ...]
"""The start and step of each index."""


def space_of(space: Any, indices: Sequence[str]) -> tuple[tuple[int, ...], Bounds | None]:
    """Return the points along each index, and its start and step (None: all from 0 on by 1). Raises LaunchError for an
    object that is no space, or one with more dimensions than there are names of indices."""
    given = [space] if isinstance(space, range) or hasattr(space, "__index__") else space
    parts = [part if isinstance(part, range) else range(part.__index__()) for part in given]
    if not 1 <= len(parts) <= min(3, len(indices)):
        names = ", ".join(indices)
        raise LaunchError(f"an iteration space has one to three dimensions, not {len(parts)} (indices: {names})")
    negative = [part for part in given if not isinstance(part, range) and part.__index__() < 0]
    if negative:
        raise LaunchError(f"an iteration space cannot count to {negative[0]}")
    counts = tuple(len(part) for part in parts)
    ends = [abs(end) for part in parts for end in (part.start, part.stop, part.step)]
    if math.prod(counts) >= LARGEST or max(ends) >= LARGEST:
        raise LaunchError(f"{space!r:.80} has more points than a kernel can have")
    if all(part.start == 0 and part.step == 1 for part in parts):
        return counts, None
    return counts, tuple((part.start, part.step) for part in parts)
