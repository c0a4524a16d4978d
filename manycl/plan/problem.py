"""A scheduling problem, as a policy gets it: the graph, the machine, the estimates, and the state at the start."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from manycl.errors import PolicyError
from manycl.graph.access import is_partial, needed, touched
from manycl.graph.graph import BufferKey, Graph, HostTask, Launch, Node, Placement, ResultTask
from manycl.graph.launch import local_bytes
from manycl.graph.versions.feasible import matches, obstacle, permits, remedy
from manycl.machine import HOST, DeviceIndex, Machine, Routes
from manycl.model.contention import Contention
from manycl.model.estimates import Estimates
from manycl.model.occupancy import LaunchRange
from manycl.plan.analysis_budget import AnalysisBudget
from manycl.plan.merging import Merging
from manycl.plan.plan import MERGE, ON_HOST, WHOLE, Assignment, Plan, alone
from manycl.plan.split import Split
from manycl.region import NOTHING


class ValidInterval(NamedTuple):
    """Bytes ``low`` … ``high - 1`` of a buffer, valid in these memories."""

    low: int
    high: int
    memories: frozenset[int]


BufferRange = tuple[BufferKey, int, int]
"""A buffer, and the bytes from one up to another one."""

Way = tuple[tuple[int, int, DeviceIndex, int, float], ...]
"""Transfers one after another: from, to, device, queue, and seconds alone."""

HANDOVER = 50e-6
"""Seconds of a handover from device to device, until measured (36-52 us with PoCL on two cores, 110 between H200s)."""
ENQUEUING = 20e-6
"""Seconds in which the engine decides on a command and enqueues it, until measured
(docs/decisions/16-eager-streams.md)."""


@dataclass(frozen=True)
class Problem:
    """A scheduling problem.

    ``valid[b]`` is the set of memories where buffer b holds its contents at the start (absent or empty: nowhere; its
    contents are undefined and need no copy). ``queues[d]`` is the number of in-order queues of device d. ``options``
    are the policy's own, as strings. ``not_before`` is the earliest time in seconds anything may start. ``handover`` is
    the cost of a dependence between two devices in seconds beside its transfers: the engine gets a report and enqueues.

    ``splits[n]`` says how node n may be split into ranges of work-groups (absent: it may not). ``fixed`` is a partial
    schedule: assignments that every plan keeps as they are, all those of a node or none, those of a node's predecessors
    among them. The inputs of a fixed node have been transferred; ``valid`` is the state before it.

    ``valid_intervals[b]``, for a buffer that is not valid as a whole anywhere: its intervals in order, and the memories
    in which each is valid. Divided launches follow them, whole kernels go by ``valid[b]``.

    ``spills``: the engine runs a launch that does not fit into a device's memory in ranges, one after another
    (``run/tiling/tiling.py``), if it may be split.

    ``repeated``: the graph will run again and again, and is planned for the n-th time (0: it will not). Analyses that
    are done once may then cost more, and the plan that runs fastest will be kept. ``rival``: the plan is wanted that
    comes next to the one taken for the fastest, if the policy has one.

    ``foresee(plan)`` returns the plan with the times that the engine itself takes for it on the simulated machine
    (``run/simulation/foresee.py``), which takes milliseconds; None where it is not worth that. Of a policy that decides
    at run time, it has the makespan alone. ``foresee(plan, problem)``: for another problem in the same state.

    ``analysis``: the launches that a session has analysed for splitting, and what it may spend on more; None: nothing.

    ``merging``: when results of launches' parts are written to the host's memory.

    ``away``: devices that have left and are not to be used; the contents of their memories stay valid. If all devices
    were away, none counts as away.

    ``demanded``: devices that have to be free soon whenever another process demands them, and whose launches cannot end
    early.

    ``as_planned``: a static plan runs as it is: its ranges and transfers are not cut further, nor put in another order,
    no launch runs in depth, no share moves that the policy has not made ``movable``, and a device that becomes slower
    changes nothing. Only what does not fit into a memory at once is cut.

    ``in_kernel_queues``: a transfer is in the queue of the launch that needs its bytes, in front of it, or of the one
    that has made them, behind it, and not in a queue for transfers: what a program does that has one in-order queue for
    a device (PySchedCL, Section 2 and its default configuration in Section 5).
    """

    graph: Graph
    machine: Machine
    estimates: Estimates
    queues: tuple[int, ...]
    valid: Mapping[BufferKey, frozenset[int]] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    not_before: float = 0.0
    handover: float = HANDOVER
    splits: Mapping[int, Split] = field(default_factory=dict)
    fixed: tuple[Assignment, ...] = ()
    valid_intervals: Mapping[BufferKey, tuple[ValidInterval, ...]] = field(default_factory=dict)
    spills: bool = False
    repeated: int = 0
    rival: bool = False
    foresee: Callable[..., Plan] | None = None
    analysis: AnalysisBudget | None = None
    away: frozenset[DeviceIndex] = frozenset()
    merging: Merging = "automatic"
    demanded: frozenset[DeviceIndex] = frozenset()
    as_planned: bool = False
    in_kernel_queues: bool = False

    def initial(self, key: BufferKey) -> tuple[ValidInterval, ...]:
        """Return where the contents of a buffer are at the start, part by part (none: they are undefined)."""
        places = self.valid.get(key)
        if key in self.valid_intervals:
            return self.valid_intervals[key]
        return (ValidInterval(0, self.graph.buffers[key].nbytes, places),) if places else ()

    def allowed(self, node: int) -> tuple[DeviceIndex, ...]:
        """Return the indices of the devices that may run the node as a whole: those it prefers that can run it, and
        have the memory for it; where none has, those that can run it in ranges, one after another
        (``run/tiling/tiling.py``). A host task has none. Raises PolicyError where none is left."""
        places = self.preferred(node)
        if not places:
            return ()
        able = tuple(d for d in places if self.can_run(node, d) and self.fits(node, d))
        able = able or tuple(d for d in places if self.can_run(node, d) and self.in_ranges(node, d))
        if not able:
            raise self._refusal(node, " as a whole")
        return able

    def in_ranges(self, node: int, device: DeviceIndex) -> bool:
        """Return whether a node that does not fit into a device's memory is run there in ranges, one after another."""
        split = self.splits.get(node) if self.spills else None
        return split is not None and self._fit(node, device, split, 1)

    def places(self, node: int) -> tuple[tuple[DeviceIndex, int], ...]:
        """Return the devices that may run the node, each with the most groups that fit into its memory at once, for a
        node that may be split; with 0 where the whole fits. Raises PolicyError where there is none."""
        split = self.splits.get(node)
        found: list[tuple[DeviceIndex, int]] = []
        for d in self.preferred(node):
            if not self.can_run(node, d):
                continue
            if self.fits(node, d):
                found.append((d, 0))
            elif split is not None and (most := self._most_groups(node, d, split)) > 0:
                found.append((d, most))
        if not found and not isinstance(self.graph.nodes[node], HostTask):
            raise self._refusal(node, ", not even in ranges")
        return tuple(found)

    def can_run(self, node: int, device: DeviceIndex) -> bool:
        """Return whether a device may run a node, has what some version of it needs, and has an estimate for it."""
        return bool(self.masks[node] >> device & 1) and self.estimates.launch(node, device) < math.inf

    def fits(self, node: int, device: DeviceIndex, first: int = 0, count: int = 0) -> bool:
        """Return whether the bytes that a range of groups touches fit into a device's memory; ``count`` 0: all buffers
        that the node touches, as they are allocated whole."""
        if self.roomy:
            return True
        if count:
            sizes = [high - low for _, low, high in self.regions(node, first, count)]
        else:
            task, buffers = self.graph.nodes[node], self.graph.buffers
            sizes = [buffers[key].nbytes for key in {*task.reads, *task.writes}]
        return self.machine.devices[device].holds(sizes)

    def check(self, plan: Plan) -> None:
        """Raise PolicyError for a plan that is for other devices."""
        names = tuple([d.name for d in self.machine.devices])
        if plan.devices != names:
            raise PolicyError(f"the plan is for devices {', '.join(plan.devices)}, not for {', '.join(names)}")

    def check_given(self, plan: Plan) -> None:
        """Raise PolicyError for a user's plan that is for other devices, or has a node on one that cannot run it."""
        self.check(plan)
        for a in plan.assignments:
            is_one = 0 <= a.node < len(self.graph) and 0 <= a.device < len(self.machine.devices)
            if is_one and not self.masks[a.node] >> a.device & 1:
                task, device = self.graph.nodes[a.node], self.machine.devices[a.device]
                raise PolicyError(f"the plan has {task.name} on {device.name}, which {obstacle(task, device)}")

    @cached_property
    def roomy(self) -> bool:
        """True if every device has room for all buffers at once, as most have."""
        sizes = [buffer.nbytes for buffer in self.graph.buffers.values()]
        return all(device.holds(sizes) for device in self.machine.devices)

    def regions(self, node: int, first: int = 0, count: int = 0) -> list[BufferRange]:
        """Return the bytes (buffer, from, to) that groups first … first + count - 1 touch, ``count`` 0: the whole
        launch. Buffers that are only written are among them: a kernel may leave parts of them as they were."""
        task, buffers = self.graph.nodes[node], self.graph.buffers
        keys = dict.fromkeys((*task.reads, *task.writes))
        regions = self.splits[node].regions if count else {}
        parts = not self.graph.parts.isdisjoint(keys)
        reads, writes = touched(task, self._sizes) if parts else ({}, {})
        out: list[BufferRange] = []
        for key in keys:
            size = buffers[key].nbytes
            part = regions.get(key)
            if part is not None:
                low, high = part.bounds(first, count, size)
                out.append((key, low, high))
            elif parts:
                found = reads.get(key, NOTHING) | writes.get(key, NOTHING)
                out += [(key, low, high) for low, high in found.intervals]
            else:
                out.append((key, 0, size))
        return out

    def written(self, node: int, key: BufferKey) -> list[tuple[int, int]]:
        """Return the intervals (from, to) of a buffer that a node may write, in bytes."""
        if key not in self.graph.parts:
            return [(0, self.graph.buffers[key].nbytes)]
        return touched(self.graph.nodes[node], self._sizes)[1].get(key, NOTHING).intervals

    @cached_property
    def _devices(self) -> tuple[DeviceIndex, ...]:
        return tuple(d for d in self.machine.indices if d not in self.away) or tuple(self.machine.indices)

    @cached_property
    def masks(self) -> list[int]:
        """By node, the devices (bits) where it is feasible (F; REPARA, Eq. 5), whatever memory they have: those that
        the user allows and that have what it needs. Every policy, every move at run time and the judge's bounds are
        within it."""
        known: dict[object, int] = {}
        takes_local: dict[int, bool] = {}
        out: list[int] = []
        for task in self.graph.nodes:
            key: object = type(task), getattr(task, "device", "")
            if isinstance(task, Launch):  # (ten thousand of them are looked at per plan)
                kernel = id(task.kernel)
                if kernel not in takes_local:
                    takes_local[kernel] = any(a.kind == "local" for a in task.kernel.arguments)
                local = local_bytes(task, task.kernel) if takes_local[kernel] else 0
                key = kernel, task.local_size, task.device, local, id(task.versions)
            if key not in known:
                known[key] = sum(1 << d for d, found in self.machine.numbered() if not obstacle(task, found))
            out.append(known[key])
        return out

    @cached_property
    def contents(self) -> list[tuple[BufferKey, ...]]:
        """The :func:`contents_needed` of every node."""
        return [contents_needed(task) for task in self.graph.nodes]

    @cached_property
    def _sizes(self) -> dict[BufferKey, int]:
        return {key: buffer.nbytes for key, buffer in self.graph.buffers.items()}

    def needs(self, node: int, first: int = 0, count: int = 0) -> list[BufferRange]:
        """Return what :meth:`regions` returns, without the bytes that the node overwrites for certain: the bytes that
        have to be valid. Where partial results are merged, what every one of them overwrites is a part of that."""
        task, buffers = self.graph.nodes[node], self.graph.buffers
        keys = self.contents[node]
        if not count and self.graph.parts:
            whole = needed(task, self._sizes)
            return [(key, low, high) for key, region in whole.items() for low, high in region.intervals]
        if not count:
            return [(key, 0, buffers[key].nbytes) for key in keys]
        found = self.regions(node, first, count)
        return found if self.splits[node].merge != "none" else [region for region in found if region[0] in keys]

    @cached_property
    def routes(self) -> Routes:
        """:attr:`Machine.routes`, which know what they have found."""
        return self.machine.routes

    @cached_property
    def ways(self) -> dict[tuple[int, int, DeviceIndex], Way]:
        """The transfers that bring so many bytes from a memory to a device's, as far as they have been asked for."""
        return {}

    @cached_property
    def enqueuing(self) -> list[tuple[float, float]]:
        """The seconds of the host's thread that enqueues a kernel and a transfer, by device; the last: on the host."""
        return [*[(d.enqueuing, d.enqueuing_copy) for d in self.machine.devices], (0.0, 0.0)]

    def given(self, device: DeviceIndex, kernels: float, transfers: float) -> float:
        """Return the seconds in which the host's thread enqueues so many kernels and transfers of a device."""
        kernel, transfer = self.enqueuing[device]
        return kernels * kernel + transfers * transfer

    @cached_property
    def whole_needs(self) -> list[list[BufferRange]]:
        """The :meth:`needs` of every node as a whole."""
        return [self.needs(node) for node in range(len(self.graph))]

    @cached_property
    def whole_writes(self) -> list[list[BufferRange]]:
        """The bytes that every node may write as a whole, likewise."""
        nodes = enumerate(self.graph.nodes)
        return [[(key, *span) for key in task.writes for span in self.written(n, key)] for n, task in nodes]

    def range_seconds(self, node: int, device: DeviceIndex, count: int, first: int | None = None) -> float:
        """Return the seconds of ``count`` of a node's work-groups on a device (0: of the whole launch), from ``first``
        on (None: on average over where they lie). Where the estimates do not know: affine in the groups, with the
        device's launch overhead as the constant part."""
        whole = self.estimates.launch(node, device)
        if count == 0:
            return whole
        groups = self.splits[node].groups
        known = self.estimates.groups(node, device, count, groups)
        if known is None:
            once = min(self.machine.devices[device].launch_overhead, whole)
            known = once + (whole - once) * (count / groups)
        where = LaunchRange(first, count, groups) if first is not None else None
        return known if where is None else known * self.estimates.relative(node, device, where)

    def may_gain(self, gained: float) -> bool:
        """Return whether all devices together could gain so many seconds on all nodes one by one, each where it is
        fastest, and on bringing each buffer to a device and back."""
        devices, seconds = self.machine.devices, 0.0
        enough = gained / (1.0 - 1.0 / max(2, len(devices)))
        for buffer in self.graph.buffers.values() if self.machine.memories > 1 else ():
            seconds += 2 * min(self.estimates.transfer(buffer.nbytes, HOST, d.memory) for d in devices)
        for node in range(len(self.graph)):
            if seconds >= enough:
                break
            seconds += min(self.estimates.launch(node, d) for d in self.machine.indices)
        return seconds >= enough

    def version(self, node: int, device: DeviceIndex) -> int:
        """Return the version (index) of a node that a device runs: the one that ``estimates.launch`` is about."""
        return self.estimates.version(node, device)

    def all_on(self, device: DeviceIndex, policy: str) -> Plan:
        """Return the plan that has all kernels, whole and in order, on one device, or else on the first that may run
        them; without times."""
        plan = alone(self.graph, device, self.machine, policy)
        placed = list(plan.assignments)
        for n, a in enumerate(placed):
            if a.device != ON_HOST:
                allowed = self.allowed(n)
                place = device if device in allowed else allowed[0]
                placed[n] = a._replace(device=place, version=self.version(n, place))
        return replace(plan, assignments=tuple(placed))

    def merge_seconds(self, node: int, device: DeviceIndex, others: int) -> float:
        """Return the seconds on a device to merge the partial results of ``others`` other memories into its own.
        ``kernel`` reads each partial result and writes it; ``difference`` reads the old contents beside it."""
        split = self.splits[node]
        if split.merge == "none" or others == 0:
            return 0.0
        if split.merge_seconds:
            return others * split.merge_seconds[device]
        where = self.machine.devices[device]
        passes = 2 if split.merge == "kernel" else 3
        nbytes = sum(self.graph.buffers[key].nbytes for key in self.graph.nodes[node].writes)
        return others * (where.launch_overhead + passes * nbytes / where.bandwidth)

    def together(self, node: int) -> int:
        """Return the most devices that may run parts of a node."""
        wanted, count = getattr(self.graph.nodes[node], "device", ""), len(self.machine.devices)
        return min(wanted.at_most, count) or count if isinstance(wanted, Placement) else count

    def is_limited(self, node: int) -> bool:
        """Return whether fewer devices may run parts of a node together than there are."""
        return self.together(node) < len(self.machine.devices)

    def partners(self, node: int, places: Sequence[tuple[DeviceIndex, int]]) -> list[tuple[DeviceIndex, int]]:
        """Return those of a node's places (device, and most groups at once) among which it may be divided; none where
        it may not, or there is one only. Of more than its user lets work on it, the fastest.

        What ranges in several memories have written may have to be merged. Every device to which results may be moved,
        or that may merge them, then has room for the copies that this needs. The device and the method are chosen
        later, so this is the most that either method needs: all of the launch's buffers and a copy of those that it
        writes (``kernel``); for each buffer that it writes the old contents, and two results (``difference``).
        """
        split = self.splits.get(node)
        if split is None:
            return []
        found = list(places)
        if split.merge != "none":
            task, buffers = self.graph.nodes[node], self.graph.buffers
            written = [buffers[key].nbytes for key in task.writes]
            touched = sum(buffers[key].nbytes for key in {*task.reads, *task.writes})
            needed = max(touched + sum(written), 3 * max(written, default=0))
            devices = self.machine.devices
            found = [p for p in places if devices[p[0]].memory == HOST or needed <= devices[p[0]].global_memory]
        if len(found) > (most := self.together(node)):
            fastest = sorted(found, key=lambda p: (self.estimates.launch(node, p[0]), p[0]))[:most]
            found = [p for p in found if p in fastest]
        return found if len(found) > 1 else []

    @cached_property
    def results(self) -> Mapping[int, tuple[BufferKey, ...]]:
        """The buffers, by the node that writes each last, that the host reads when all has run; none where all devices
        compute in the host's memory."""
        found: dict[int, tuple[BufferKey, ...]] = {}
        for task in self.graph.nodes if self.machine.memories > 1 else ():
            for key in task.reads if isinstance(task, ResultTask) else ():
                node = self.graph.last_writers[key]
                found[node] = (*found.get(node, ()), key)
        return found

    @cached_property
    def homes(self) -> Mapping[int, Sequence[float]]:
        """The :meth:`home_seconds` of every node that has results, by device; the last: of the host."""
        return {n: [self.home_seconds(n, d) for d in (*self.machine.indices, ON_HOST)] for n in self.results}

    def home_seconds(self, node: int, device: DeviceIndex, groups: int = 0) -> float:
        """Return the seconds in which what a device has written of a node's results comes to the host: after all of the
        node, or after a range of so many groups."""
        seconds, memory = 0.0, HOST if device == ON_HOST else self.machine.devices[device].memory
        for key in self.results.get(node, ()) if memory != HOST else ():
            nbytes = self.graph.buffers[key].nbytes
            if groups and key in self.splits[node].regions:
                nbytes = nbytes * groups // self.splits[node].groups
            seconds += self.estimates.transfer(nbytes, memory, HOST)
        return seconds

    @cached_property
    def contention(self) -> Contention:
        """The contention on the machine: which activities slow each other down."""
        return Contention(self.machine, self.estimates)

    def draws(self, a: Assignment, seconds: float) -> float:
        """Return the bytes per second that a kernel, a range of one or a merge, which takes ``seconds`` alone, reads
        from and writes to the host's memory: none, where the device computes in another memory."""
        if a.device == ON_HOST or not self.contention.limited or self.machine.devices[a.device].memory != HOST:
            return 0.0
        if a.dimension is MERGE:  # bound by memory
            return min(self.machine.devices[a.device].bandwidth, self.machine.host_bandwidth)
        nbytes = self.estimates.traffic(a.node, a.device)
        if a.dimension is not WHOLE:
            nbytes *= a.groups / self.splits[a.node].groups
        return self.contention.draws(nbytes, seconds)

    def check_fixed(self) -> None:
        """Raise PolicyError where a node is fixed, but not all that it depends on."""
        fixed = {a.node for a in self.fixed}
        for node in sorted(fixed):
            if not fixed.issuperset(self.graph.predecessors[node]):
                raise PolicyError(f"node {node} is fixed, but not all that it depends on")

    def _most_groups(self, node: int, device: DeviceIndex, split: Split) -> int:
        """Return the most groups of which any range fits (0: not even one); more groups never need less."""
        where, counts = self.machine.devices[device], range(1, split.groups + 1)
        if (room := (node, where.global_memory, where.max_allocation)) not in self._most:
            self._most[room] = bisect_right(counts, False, key=lambda n: not self._fit(node, device, split, n))
        return self._most[room]

    @cached_property
    def _most(self) -> dict[tuple[int, int, int], int]:
        """The most groups of nodes that fit into a memory of so many bytes, in allocations of so many."""
        return {}

    def _fit(self, node: int, device: DeviceIndex, split: Split, count: int) -> bool:
        """Return whether any range of ``count`` groups fits."""
        # regions are clipped at the ends of their buffers: a range in the middle is the largest
        first = (split.groups - count) // 2
        return all(self.fits(node, device, f, count) for f in {0, first, split.groups - count})

    def _refusal(self, node: int, how: str) -> PolicyError:
        """Return the error for a node that no device can run: what each device lacks, and what to do."""
        task, devices = self.graph.nodes[node], self.machine.devices
        nbytes = sum(self.graph.buffers[key].nbytes for key in {*task.reads, *task.writes})
        little, hint, said = f"has too little memory for its {nbytes} bytes", "", list[str]()
        for d in self.preferred(node):
            able = self.can_run(node, d)
            lacks = obstacle(task, devices[d]) or (little if able else "has no version of it")
            said.append(f"{devices[d].name} {lacks}")
            if not able:
                hint = remedy(task, devices)
            elif node in self.splits:
                hint = "mkmd_coarse, mkmd and balance run a kernel that may be split in ranges that fit"
        reasons = ", ".join(said) or "there are no devices"
        kernel = f" of kernel {task.kernel.name}" if isinstance(task, Launch) else ""
        return PolicyError(f"no device can run node {node} ({task.name}){kernel}{how}: {reasons}", hint=hint)

    def preferred(self, node: int) -> tuple[DeviceIndex, ...]:
        """Return the indices of the devices that the node prefers where some device matches, else all that are not
        away, of those that it is restricted to (also those away, if all of them are; all, if there is none). A host
        task has none (it runs on the host)."""
        task, devices, there = self.graph.nodes[node], self.machine.devices, self._devices
        if isinstance(task, HostTask):
            return ()
        wanted: str | Placement = task.device
        if isinstance(wanted, Placement):
            may = [d for d in self.machine.indices if permits(wanted, devices[d])]
            there, wanted = tuple([d for d in may if d in there] or may) or there, wanted.prefer
        chosen = tuple([d for d in there if matches(devices[d], wanted)]) if wanted else ()
        return chosen or there


def contents_needed(task: Node) -> tuple[BufferKey, ...]:
    """Return the buffers whose contents a node that runs as a whole must find: those that it reads, and those that it
    writes but may leave in part as they were."""
    overwrites = task.overwrites
    if overwrites and isinstance(task, Launch | HostTask) and is_partial(task):
        overwrites = ()  # only parts of these are overwritten
    kept = [key for key in task.writes if key not in overwrites] if overwrites else task.writes
    return tuple(dict.fromkeys((*task.reads, *kept)))
