"""Data larger than a device's memory: launches are cut into ranges that each need only *windows* of the buffers. Pure.

A window is a device allocation of some bytes of a buffer, [low, low + nbytes). Whatever a range of work-groups touches
of a buffer lies in an interval that the analysis knows; where that is much less than the buffer, the range gets a
window for it, and the kernel's pointer is moved (:mod:`manycl.analysis.windows`). So a launch whose buffers do not fit
runs in as many ranges as make them fit, three at a time: one is computed, the next arrives, the one before leaves. More
at a time, and smaller ones, where several launches use the same data.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from manycl.errors import PolicyError, RunError
from manycl.graph import pieces
from manycl.graph.graph import BufferArg, Graph, Launch, Node
from manycl.graph.pieces import Bytes
from manycl.machine import HOST, Device
from manycl.plan.plan import MERGE, ON_HOST, WHOLE, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.divide import Divided, divide, identity

ALIGNED = 4096  # bytes; windows begin at multiples, so pointers are aligned as those of whole buffers are
ELEMENT = 128  # bytes; who touches a part of a vector, or of a struct, may load all of it: none is aligned to more
SMALL = 1 << 16  # bytes; smaller buffers are kept whole
AT_ONCE, MOST_AT_ONCE = 3, 16
"""Ranges that a device's memory is to hold; more where several launches use the same data."""
STEP = 2e-4  # seconds that the engine takes for a range, and the driver for what it is given
WORTH = 2 << 20  # bytes; ranges that need less than this are not worth more ranges
_NEARLY_ALL = 0.9  # of a buffer; no window is worth that
_ALIKE = 0.75  # windows that have so much in common are made one, so that the contents of one need no copy in the other
_STEPS = 16  # sizes of windows between two powers of two: those of few sizes can take one another's place


class Window(NamedTuple):
    """An allocation on a device for bytes ``low`` … of buffer ``whole``."""

    key: int
    whole: int
    low: int
    nbytes: int
    device: int


class Spill(NamedTuple):
    """What a device (index) is predicted to move because its ``limit`` is less than the ``needed`` bytes of buffers:
    bytes that come again, and that leave to make room or when the run ends; seconds of both."""

    device: int
    limit: int
    needed: int
    up: int
    down: int
    seconds: float


@dataclass(frozen=True)
class Room:
    """What a run that does not fit has to do with. ``limits``: bytes that the stores (windows and whole buffers) of a
    device may have, for the devices that do not hold all of the run. ``windows`` by key. ``using[step]``: the windows
    that a step works on instead of buffers, by buffer. ``sizes``: bytes of all stores by key. ``spills``: what that is
    predicted to cost (nothing, where it is decided while the run goes on)."""

    limits: Mapping[int, int]
    windows: Mapping[int, Window]
    using: Sequence[Mapping[int, int]]
    sizes: Mapping[int, int]
    spills: tuple[Spill, ...] = ()


def limited(problem: Problem, plan: Plan | None) -> dict[int, int]:
    """The devices that do not hold all buffers that a plan uses there (any that a graph uses, without one), and how
    much they hold. Nobody, nearly always."""
    if problem.roomy:
        return {}
    nodes, buffers = problem.graph.nodes, problem.graph.buffers
    found: dict[int, int] = {}
    for index, device in enumerate(problem.machine.devices):
        if device.memory == HOST:
            continue
        mine = range(len(nodes)) if plan is None else (a.node for a in plan.assignments if a.device == index)
        keys = {key for n in mine if isinstance(task := nodes[n], Launch) for key in stores(task)}
        sizes = [buffers[key].nbytes for key in keys]
        if sum(sizes) > device.global_memory or max(sizes, default=0) > device.max_allocation:
            found[index] = device.global_memory
    return found


def fitted(problem: Problem, plan: Plan, limits: Mapping[int, int]) -> Plan:
    """The plan, in whose place launches run in ranges on the devices that do not hold all that they need there. Raises
    RunError for a launch that does not fit even so."""
    cutter = _Cutter(problem, plan, limits)
    wanted = {i: cutter.look(a) for i, a in enumerate(plan.assignments) if a.device in limits and a.dimension != MERGE}
    # one number for all of a device: launches that hand data to one another are then cut at the same places
    most = {d: max((n for i, (_, n) in wanted.items() if plan.assignments[i].device == d), default=1) for d in limits}
    out: list[Assignment] = []
    for i, a in enumerate(plan.assignments):
        dimension, number = wanted.get(i, (a.dimension, 0))
        if number < 1 or dimension == WHOLE:
            out.append(a)
        else:
            out += cutter.cut(a, dimension, most[a.device])
    return (
        plan
        if out == list(plan.assignments)
        else Plan(tuple(out), plan.policy, plan.devices, plan.makespan, details=plan.details)
    )


def _at_once(problem: Problem, plan: Plan, device: int, limit: int) -> int:
    """How many ranges a device's memory is to hold. Where it holds n, the ranges of n - 2 launches that use the same
    data may run one after another while these are there (:mod:`manycl.run.locality`), so the data cross the link once
    for all of them; but there are n times as many ranges as would fill the memory, each of which takes the engine its
    time. The number for which the slower of both, the link and the engine, is done first."""
    count: dict[int, int] = {}  # launches by buffer
    for node in {a.node for a in plan.assignments if a.device == device}:
        task = problem.graph.nodes[node]
        for key in stores(task) if isinstance(task, Launch) else ():
            count[key] = count.get(key, 0) + 1
    used = [(launches, problem.graph.buffers[key].nbytes) for key, launches in count.items()]
    fillings = sum(launches * nbytes for launches, nbytes in used) / limit
    memory, large = problem.machine.devices[device].memory, 1 << 28
    transfer = problem.estimates.transfer
    seconds = (transfer(2 * large, HOST, memory) - transfer(large, HOST, memory)) / large  # for a byte

    def slower(number: int) -> float:
        crossing = sum(-(-launches // (number - 2)) * nbytes for launches, nbytes in used)
        return max(crossing * seconds, number * fillings * STEP)

    most = max(min(max(count.values(), default=1) + 2, MOST_AT_ONCE, limit // WORTH), AT_ONCE)
    return min(range(AT_ONCE, most + 1), key=slower) if seconds > 0 else most


class _Cutter:
    def __init__(self, problem: Problem, plan: Plan, limits: Mapping[int, int]) -> None:
        self._problem = problem
        self._limits = limits
        self._sizes = {key: b.nbytes for key, b in problem.graph.buffers.items()}
        self._known: dict[Hashable, tuple[int, int]] = {}
        self._identities: dict[int, Hashable] = {}  # by the launch's own
        self._at_once = {d: _at_once(problem, plan, d, limit) for d, limit in limits.items()}

    def look(self, a: Assignment) -> tuple[int, int]:
        """Along which dimension an assignment is to be cut, and into how many ranges; (WHOLE, 0): it stays whole."""
        task = self._problem.graph.nodes[a.node]
        if a.device == ON_HOST or not isinstance(task, Launch):
            return a.dimension, 0
        if id(task) not in self._identities:
            self._identities[id(task)] = identity(task, self._sizes)
        key = self._identities[id(task)], a.device, a.dimension, a.first, a.groups
        if key not in self._known:
            self._known[key] = self._look(a, task)
        return self._known[key]

    def _look(self, a: Assignment, task: Launch) -> tuple[int, int]:
        device, limit = self._problem.machine.devices[a.device], self._limits[a.device]
        sizes = [self._sizes[key] for key in stores(task)]
        whole, at_once = sum(sizes), self._at_once[a.device]
        fits = whole <= limit and max(sizes, default=0) <= device.max_allocation
        if fits and whole <= limit // at_once and a.dimension == WHOLE:
            return WHOLE, 0
        found: list[tuple[_Ranges, int]] = []
        reason = ""
        for dimension in range(len(task.global_size)) if a.dimension == WHOLE else (a.dimension,):
            try:
                divided = divide(task, dimension, self._sizes)
            except PolicyError as error:
                reason = reason or error.message
                continue
            first, count = (0, divided.groups) if a.dimension == WHOLE else (a.first, a.groups)
            ranges = _ranges(divided, first, count, limit, at_once, device)
            if ranges.at_once:
                found.append((ranges, dimension))
            else:
                why = divided.windowed.reason or "its ranges do not touch less"
                reason = f"{task.name} in ranges along dimension {dimension} needs {ranges.nbytes:,} bytes: {why}"
        best = min(found, key=lambda f: (-f[0].at_once, f[0].number), default=None)
        if fits and a.dimension == WHOLE and (best is None or best[0].nbytes > 0.5 * whole):
            return WHOLE, 0
        if best is None:
            raise too_large(task.name, a.node, whole, device, reason)
        return best[1], best[0].number

    def cut(self, a: Assignment, dimension: int, number: int) -> list[Assignment]:
        task = self._problem.graph.nodes[a.node]
        assert isinstance(task, Launch)
        groups = divide(task, dimension, self._sizes).groups
        first, count = (0, groups) if a.dimension == WHOLE else (a.first, a.groups)
        number = min(number, count)
        ends = [first + count * i // number for i in range(number + 1)]
        span = (a.end - a.start) / count
        return [
            a._replace(
                dimension=dimension,
                first=low,
                groups=high - low,
                start=a.start + (low - first) * span,
                end=a.start + (high - first) * span,
            )
            for low, high in pairwise(ends)
        ]


def stores(task: Launch) -> set[int]:
    """The keys of what a launch needs in its device's memory."""
    return {a.key for a in task.args if isinstance(a, BufferArg)}


def too_large(name: str, node: int, nbytes: int, device: Device, reason: str = "") -> RunError:
    """A launch does not fit into a device's memory."""
    return RunError(
        f"the run needs {nbytes:,} bytes of buffers on {device.name} at once, which has {device.global_memory:,}"
        f" ({device.max_allocation:,} for one): kernel {name} (node {node}) does not run in ranges there"
        + (f": {reason}" if reason else ""),
        hint="choose devices with more memory, smaller arrays, or a static policy (auto), which can choose the device",
    )


class _Ranges(NamedTuple):
    """A launch cut into ``number`` ranges: the most bytes that one of them needs, and of how many the windows fit into
    the memory at once, beside what all of them need whole (0: not even of one)."""

    number: int
    nbytes: int
    at_once: int


def _ranges(divided: Divided, first: int, count: int, limit: int, at_once: int, device: Device) -> _Ranges:
    """As few ranges of groups as have room ``at_once`` at a time, or less if that is never so."""
    for together in dict.fromkeys((at_once, AT_ONCE, 2, 1)):
        number = 1
        whole, windows = _needed(divided, first, count, device)
        while number < count and whole + together * windows > limit:
            share = max((limit - whole) // together, 1)
            wanted = -(-number * windows // share) if windows else 2 * number
            number = min(count, max(number + 1, min(2 * number, wanted)))
            # what every range needs whole does not get less by more ranges
            whole, windows = max((_needed(divided, f, n, device) for f, n in _samples(first, count, number)), key=sum)
        if whole + together * windows <= limit:
            return _Ranges(number, whole + windows, together)
    return _Ranges(number, whole + windows, 0)


def _samples(first: int, count: int, number: int) -> Iterable[tuple[int, int]]:
    """The first, the middle and the last of ``number`` ranges, as large as the largest."""
    most = -(-count // number)
    return {(first + min(count * i // number, count - most), most) for i in (0, number // 2, number - 1)}


def _needed(divided: Divided, first: int, count: int, device: Device) -> tuple[int, int]:
    """Bytes that a range needs on a device: of whole buffers, and of windows; more than there can be where one of them
    is too large for it."""
    windows = intervals(divided, first, count)
    parts = [_size(*interval) for interval in windows.values()]
    rest = [n for key, n in divided.sizes.items() if key not in windows]
    beyond = device.global_memory if max((*parts, *rest), default=0) > device.max_allocation else 0
    return sum(rest) + beyond, sum(parts)


def _size(low: int, high: int) -> int:
    """Bytes of a window for an interval: a little more, so that there are few sizes."""
    least = max(high - low // ALIGNED * ALIGNED, ALIGNED)
    step = max(ALIGNED, (1 << (least - 1).bit_length()) // (2 * _STEPS))
    return -(-least // step) * step


def intervals(divided: Divided, first: int, count: int) -> dict[int, tuple[int, int]]:
    """The buffers of which a range touches little, and which may be windows: first byte and one past the last."""
    found: dict[int, tuple[int, int]] = {}
    for key, (low, high) in divided.hulls(first, count).items():
        size = divided.sizes[key]
        high = -(-high // ELEMENT) * ELEMENT
        if size >= SMALL and _size(low, high) < _NEARLY_ALL * size:
            found[key] = low // ALIGNED * ALIGNED, high
    return found


class Windows:
    """The windows of a plan's ranges. ``of(device, key, low, high)``: the one that holds an interval of a buffer."""

    def __init__(
        self, wanted: Iterable[tuple[int, int, int, int]], new_key: Callable[[], int], shared: bool = True
    ) -> None:
        """``wanted``: (device, buffer, low, high). ``shared``: intervals of which nearly all is common get one window,
        and those of a buffer one size."""
        by_buffer: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for device, key, low, high in wanted:
            by_buffer.setdefault((device, key), set()).add((low, high))
        self._found: dict[tuple[int, int, int, int], Window] = {}
        for (device, key), given in by_buffer.items():
            groups = _alike(sorted(given)) if shared else [[interval] for interval in sorted(given)]
            sizes = [_size(min(g)[0], max(h for _, h in g)) for g in groups]
            for group, size in zip(groups, sizes, strict=True):
                window = Window(new_key(), key, min(group)[0], max(sizes) if shared else size, device)
                self._found.update(((device, key, low, high), window) for low, high in group)

    def of(self, device: int, key: int, low: int, high: int) -> Window:
        return self._found[device, key, low, high]


def _alike(given: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Sorted intervals in groups of which nearly all is common to all."""
    groups: list[list[tuple[int, int]]] = []
    low, high = 0, 0  # of the last group
    for a, b in given:
        together = min(high, b) - a
        if groups and together >= _ALIKE * max(high - low, b - a, max(high, b) - low):
            groups[-1].append((a, b))
            high = max(high, b)
        else:
            groups.append([(a, b)])
            low, high = a, b
    return groups


def interfere(touched: Sequence[tuple[Bytes, Bytes]]) -> bool:
    """Whether one of some ranges, given as the bytes that each reads and writes, may write what another one touches."""
    everything = pieces.union(written for _, written in touched)
    if sum(_length(written) for _, written in touched) > _length(everything):
        return True
    return any(_common(read, everything) > _common(read, written) for read, written in touched)


def _length(given: Bytes) -> int:
    return int((given[1] - given[0]).sum())


def _common(a: Bytes, b: Bytes) -> int:
    """How many bytes two sets have in common."""
    return _length(a) + _length(b) - _length(pieces.union([a, b]))


def same_graph(one: Graph, other: Graph) -> bool:
    """Whether the steps of one graph are those of another: the same launches of the same buffers."""
    return one is other or (
        len(one) == len(other)
        and one.predecessors == other.predecessors
        and one.components == other.components
        and one.buffers == other.buffers
        and all(_same(a, b) for a, b in zip(one.nodes, other.nodes, strict=True))
    )


def _same(one: Node, other: Node) -> bool:
    return one is other or (
        isinstance(one, Launch)
        and isinstance(other, Launch)
        and all(getattr(one, name) == getattr(other, name) for name in Launch.__slots__)
    )


def same_plan(one: Plan | None, other: Plan | None) -> bool:
    """Whether two plans are the same but for their times."""
    if one is None or other is None:
        return one is other
    return len(one.assignments) == len(other.assignments) and all(
        a[:3] == b[:3] and a[5:] == b[5:] for a, b in zip(one.assignments, other.assignments, strict=True)
    )
