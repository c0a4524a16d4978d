"""Launches that certainly leave their buffers are refused before they run: most drivers end the process, or write over
what lies beside. What cannot be proved runs."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod

from manycl import flags
from manycl.analysis import service
from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.analysis.known_launch import LARGEST, KnownLaunch
from manycl.analysis.regions.bounds import Outside, suspicious
from manycl.analysis.regions.enclosure import Enclosure, launch_values
from manycl.errors import LaunchError
from manycl.graph.graph import Buffer, BufferArg, BufferKey, Graph, Launch, LocalArg, Version
from manycl.graph.integers import Integers
from manycl.graph.known import known_launch
from manycl.graph.work_groups import with_work_groups
from manycl.utilities.disk_cache import DiskRecords

MOST_LOOKED = 64
"""Kinds of launches of one kernel that are all looked at, of those that intervals do not tell of
(:mod:`manycl.analysis.regions.enclosure`); of more, those that make a power of two of them: looking takes a millisecond
or two, and programs that launch in loops with other scalars should not pay it each time."""
MOST_ASKED = 16
"""Kinds of launches of one kernel for which isl is asked, which takes tens of milliseconds; of more, as MOST_LOOKED
says. As many of those that intervals tell of are kept on disk for other processes."""
_KEPT = 4096  # kinds of launches
_inside = DiskRecords("inside", 16 << 20, service.CODE)  # launches known not to leave their buffers, by program
_INSIST = "MANYCL_BOUNDS=off runs it all the same"


_Kernel = tuple[bytes, str]
_Words = tuple[str, str]
"""What is wrong, and what to do; empty where nothing is."""
_FINE = "", ""


class _Checked:
    """The findings about kinds of launches, and how many of each kernel were looked at."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.words: OrderedDict[tuple[object, ...], _Words] = OrderedDict()
        self.private: dict[_Kernel, _Words] = {}
        self.enclosed: dict[_Kernel, tuple[Enclosure, frozenset[str]] | None] = {}
        self.keeping: dict[tuple[object, ...], bool] = {}
        self.enclosing: Counter[_Kernel] = Counter()
        self.looked: Counter[_Kernel] = Counter()
        self.asked: Counter[_Kernel] = Counter()

    def enclosure(self, own: Version) -> tuple[Enclosure, frozenset[str]] | None:
        """Return what a kernel accesses in any launch, and the names that decide it; None: nobody can tell."""
        key = own.program.tree, own.kernel.name
        if key not in self.enclosed:
            self.enclosed[key] = None
            with suppress(Exception):  # each launch is looked at for itself
                if (found := service.enclosed(own.program, own.kernel.name)) is not None:
                    self.enclosed[key] = found, found.variables()
        return self.enclosed[key]

    def keep(self, key: tuple[object, ...], words: _Words) -> None:
        with self.lock:
            self.words[key] = words
            if len(self.words) > _KEPT:
                self.words.popitem(last=False)
            if max(len(self.private), len(self.keeping)) > _KEPT:
                for counts in (self.private, self.enclosed, self.keeping, self.enclosing, self.looked, self.asked):
                    counts.clear()


_checked = _Checked()


def check(graph: Graph) -> None:
    """Raise LaunchError for the first launch of a graph that certainly reads or writes outside of its buffers, or needs
    more private memory than any device has. Takes two microseconds for a launch that is like one before, and
    none for one that is the same as one of the graph."""
    if not flags.bounds():
        return
    sizes = {key: buffer.nbytes for key, buffer in graph.buffers.items()}
    alike: dict[object, Integers | None] = {}  # of launches that differ in integers alone, from the second one on
    for index, first in enumerate(graph.same):
        task = graph.nodes[index]
        if first != index or not isinstance(task, Launch):
            continue
        nbytes = [a.size(sizes) if isinstance(a, BufferArg) else None for a in task.args]
        others = [a for a in task.args if isinstance(a, LocalArg)]
        ndrange = task.global_size, task.local_size, task.global_offset
        kind = (id(task.kernel), bool(task.versions), *ndrange, *nbytes, *others)
        known = alike.get(kind)
        if known is None or not known.cover(task.args):
            check_launch(task, graph.buffers)
            alike[kind] = known or (Integers(task, nbytes, keep_between) if kind in alike else None)


def check_launch(task: Launch, buffers: Mapping[BufferKey, Buffer]) -> None:
    """Check one launch as :func:`check` does a graph, with its buffers by key."""
    problem, hint = _known(task, buffers, None)
    for version in task.versions[1:] if not problem else ():  # (functions of Python have no tree)
        problem, hint = _known(task, buffers, version) if not problem else (problem, hint)
    if problem and flags.bounds():
        raise LaunchError(problem, hint=hint)


def recall(program: ProgramFacts) -> None:
    """Read what processes before have found out about launches of a program, so that its first launch need not."""
    if program.tree and flags.bounds():
        _inside.of(program.tree)


def decides(program: ProgramFacts, kernel: KernelFacts) -> frozenset[int] | None:
    """The scalar arguments (indices) on which it may depend what a kernel accesses; None: any."""
    return service.deciding(program, kernel.name)


def _known(task: Launch, buffers: Mapping[BufferKey, Buffer], version: Version | None) -> _Words:
    own = version or Version(task.program, task.kernel, task.global_size, task.local_size)
    if not own.program.tree:  # facts that were made by hand
        return _FINE
    seen: dict[int, int] = {}
    sizes_of = {a.key: buffers[a.key].nbytes for a in task.args if isinstance(a, BufferArg)}
    arguments = tuple([
        (a.size(sizes_of), a.offset, seen.setdefault(a.key, i)) if isinstance(a, BufferArg)
        else a if isinstance(a, LocalArg) or (isinstance(a, bytes) and facts.decides)
        else None
        for i, (facts, a) in enumerate(zip(own.kernel.arguments, task.args, strict=True))
    ])  # fmt: skip
    sizes = own.global_size, own.local_size, task.global_offset
    promised = task.annotations if version is None else version.annotations
    kernel = own.program.tree, own.kernel.name
    key = (*kernel, *sizes, arguments, promised)
    found = _checked.words.get(key)
    if found is not None:
        return found
    if not flags.bounds():  # (read here: it takes a microsecond)
        return _FINE
    try:
        alike: tuple[object, ...] = key
        inside = _inside.of(own.program.tree)
        if kernel not in _checked.private and any(launch[0] == own.kernel.name for launch in inside):
            _checked.private[kernel] = _FINE
        first = kernel not in _checked.private
        if key[1:] in inside:
            found = _FINE
        elif not first and not promised and _keeps(own, task.global_offset, arguments):
            found = _checked.private[kernel]
            if not found[0] and _worth(_checked.enclosing, kernel, MOST_ASKED):
                _inside.add(own.program.tree, key[1:], None, later=True)
        elif _checked.looked[kernel]:  # another launch of it, maybe one that differs in what decides nothing
            known = decides(own.program, own.kernel)
            if known is not None:
                given = tuple(None if isinstance(a, bytes) and i not in known else a for i, a in enumerate(arguments))
                alike = (*kernel, *sizes, given, promised, "alike")
            found = _checked.words.get(alike)
        if found is None:
            found, is_proved = _look(task, own, buffers, arguments if first and not promised else ())
            if is_proved:
                _inside.add(own.program.tree, key[1:], None)
        _checked.keep(alike, found)
    except Exception:  # what the analysis cannot do is no reason to stop a launch
        found = _FINE
    _checked.keep(key, found)
    return found


def _keeps(own: Version, offset: tuple[int, ...] | None, arguments: Sequence[object]) -> bool:
    """Return whether intervals tell that a launch does not leave its buffers, or that nobody can tell. Takes some ten
    microseconds, two if only scalars that decide nothing differ from one before; shared memory is looked at closer."""
    with suppress(Exception):  # it is looked at closer
        found = _checked.enclosure(own)
        if found is None:
            return False
        (enclosure, names), sizes = found, (own.global_size, own.local_size, offset)
        given = [None if isinstance(a, bytes) and f"[{i}]" not in names else a for i, a in enumerate(arguments)]
        kind = own.program.tree, own.kernel.name, *sizes, *given
        if (keeps := _checked.keeping.get(kind)) is not None:
            return keeps
        nbytes = {i: a[0] for i, a in enumerate(arguments) if isinstance(a, tuple) and a[2] == i}
        alone = len(nbytes) == sum([isinstance(a, tuple) for a in arguments])
        if alone and prod(own.global_size) + sum(offset or ()) <= LARGEST:
            nbytes |= {i: a.nbytes for i, a in enumerate(arguments) if isinstance(a, LocalArg)}
            keeps = enclosure.keeps(launch_values(own.kernel, sizes, arguments), nbytes)
            _checked.keeping[kind] = keeps
            return keeps
    return False


def keep_between(task: Launch, nbytes: Mapping[int, int], spans: Mapping[int, tuple[int, int]]) -> bool:
    """Return whether all launches like one that was checked keep to their buffers whatever these contain: with buffers
    of so many bytes, by argument, that share no memory, and integers between two, by argument. False where nobody
    knows. What is found is kept for other processes: loops in these need not load what a kernel accesses."""
    with suppress(Exception):
        own = Version(task.program, task.kernel, task.global_size, task.local_size)
        sizes = own.global_size, own.local_size, task.global_offset
        is_usual = not task.annotations and not task.versions
        if not is_usual or prod(own.global_size) + sum(task.global_offset or ()) > LARGEST:
            return False
        kernel = own.program.tree, own.kernel.name
        if _checked.private.get(kernel) != _FINE:
            return False
        nbytes = {**nbytes, **{i: a.nbytes for i, a in enumerate(task.args) if isinstance(a, LocalArg)}}
        question = own.kernel.name, *sizes, tuple(nbytes.items()), tuple(spans.items()), "between"
        if question in _inside.of(own.program.tree):
            return True
        if (found := _checked.enclosure(own)) is None:
            return False
        given = [a if isinstance(a, bytes) and i in spans else None for i, a in enumerate(task.args)]
        values = dict(launch_values(own.kernel, sizes, given))
        for i, (low, high) in spans.items():
            values[f"[{own.kernel.arguments[i].index}]"] = low, high, False
        keeps = found[0].keeps(values, nbytes, certainly=True)
        if keeps and _worth(_checked.enclosing, kernel, MOST_ASKED):
            _inside.add(own.program.tree, question, None, later=True)
        return keeps
    return False


def _look(
    task: Launch, own: Version, buffers: Mapping[BufferKey, Buffer], arguments: Sequence[object]
) -> tuple[_Words, bool]:
    """Return the words about a launch that leaves its buffers, and whether it is known that it does not. ``arguments``:
    what intervals are asked with; empty where that was done."""
    program, name = own.program, own.kernel.name
    kernel = program.tree, name
    if kernel not in _checked.private:
        _checked.private[kernel] = _too_large(program, name)
    if _checked.private[kernel][0]:
        return _checked.private[kernel], False
    if arguments and _keeps(own, task.global_offset, arguments):
        return _FINE, True
    launch = _as_known(task, own, buffers)
    if launch is None or not _worth(_checked.looked, kernel, MOST_LOOKED):
        return _FINE, False
    if suspicious(service.interpreted(program, name, launch), launch):
        facts = service.launched(program, name, launch)
        if facts.may_leave:
            if not _worth(_checked.asked, kernel, MOST_ASKED):
                return _FINE, False
            if facts.outside:
                return _words(task, own, buffers, facts.outside), False
    return _FINE, True


def _as_known(task: Launch, own: Version, buffers: Mapping[BufferKey, Buffer]) -> KnownLaunch | None:
    """Return what the analysis is asked about; None where the driver's choice of a local size matters."""
    if own.local_size is None:
        open_ = replace(task, kernel=own.kernel, global_size=own.global_size, local_size=None)
        local = with_work_groups(open_).local_size
        if local is None:
            return None
        own = Version(own.program, own.kernel, own.global_size, local, annotations=own.annotations)
    return known_launch(task, {k: b.nbytes for k, b in buffers.items()}, own)


def _too_large(program: ProgramFacts, name: str) -> _Words:
    found = service.oversized(program, name)
    if found is None:
        return _FINE
    variable, nbytes, path, line = found
    problem = f"kernel {name}: {path}:{line}: {variable} needs {nbytes} bytes of private memory for each work-item"
    return problem, f"no device has that; use a buffer. {_INSIST}"


def _worth(counts: Counter[_Kernel], kernel: _Kernel, few: int) -> bool:
    counts[kernel] += 1
    count = counts[kernel]
    return count <= few or not count & (count - 1)


def _words(task: Launch, own: Version, buffers: Mapping[BufferKey, Buffer], found: Sequence[Outside]) -> _Words:
    """Return what is said of accesses that leave their memory: of all to the argument of the first."""
    first = found[0]
    found = [o for o in found if o.argument == first.argument]
    low, high = min(o.low for o in found), max(o.high for o in found)
    argument = task.args[first.argument] if first.argument < len(task.args) else None
    size = first.element
    elements = f"{first.nbytes // size} elements, {first.nbytes} bytes"
    buffer = buffers[argument.key].name if isinstance(argument, BufferArg) else ""
    if buffer and isinstance(argument, BufferArg) and argument.nbytes is not None:
        buffer += f", from byte {argument.offset} on"
    held = f" (buffer {buffer})" if buffer not in ("", first.name) else ""
    whose = "the kernel's own array" if argument is None else f"argument {first.argument} ({first.name})"
    begin, end = low // size, -(-high // size) - 1
    where = f"{first.name}[{begin}]" + (f" to {first.name}[{end}]" if begin != end else "")
    where += f" (bytes {low} to {high - 1})"
    outside = "a buffer" if isinstance(argument, BufferArg) else "its memory"
    problem = (
        f"kernel {task.name} would {first.kind} outside of {outside} in"
        f" {first.path or own.program.path}, line {first.line}: {where} of {whose}{held}, which has {elements};"
        f" the global size is {own.global_size}"
    )
    if low < 0:
        return problem, f"no size of {first.name} would do: it is used before its first element. {_INSIST}"
    needed = -(-high // size)
    return problem, f"{needed} elements ({needed * size} bytes) would do, or fewer work-items. {_INSIST}"
