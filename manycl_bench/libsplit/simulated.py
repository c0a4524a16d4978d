"""Libsplit's experiments on its machines, simulated: applications repeated on one device, divided evenly, adapted, and
divided as well as can be.

What a range of work-groups takes is counted: the operations that the analysis finds in it, with the contents of index
arrays, over the device's rate, or the bytes that it moves over the bandwidth, whichever is longer (each byte of its
regions once, or every access where these are fewer bytes). Work-groups are dealt out to compute units in whole rounds.
Transfers take the links of the machine file. Planning knows none of this: it begins with the project's first guesses,
or with the same for all devices as in the paper.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice, pairwise
from typing import Any

import numpy as np

from manycl.analysis.costs.cost import LaunchCost
from manycl.analysis.service import launched
from manycl.api.arrays.host_arrays import as_bytes
from manycl.errors import ResultError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Buffer, BufferArg, Graph, Launch
from manycl.graph.known import known_launch
from manycl.graph.launch import make_launch
from manycl.group_range import GroupRange
from manycl.machine import HOST, DeviceIndex, Machine
from manycl.model.estimate import ModelEstimates
from manycl.model.estimates import Wrapped
from manycl.plan.adapt.families import Family, families
from manycl.plan.plan import Plan
from manycl.plan.policies.adaptive import Adaptive, Ranges, divided
from manycl.plan.policies.auto import Auto
from manycl.plan.policy import StaticPolicy
from manycl.plan.problem import Problem
from manycl.plan.split import Split
from manycl.plan.splitting import Splits
from manycl_bench.libsplit.application import Application, Contents
from manycl_bench.libsplit.divisions import Fixed, of_family, parts
from manycl_bench.libsplit.paper import Libsplit
from manycl_bench.libsplit.repeat import repetitions

UNITS = {"special": 8.0}
"""What an operation of a kind costs beside an addition; loads and stores are counted by their bytes."""


KNOTS = 128
"""Places between which the work of groups is taken to be the same."""


class Profile:
    """What the groups of a launch do: operations, bytes touched and work-groups, up to each of some places."""

    def __init__(self, cost: LaunchCost, dimension: int) -> None:
        self.groups = cost.launch.groups(dimension)
        self._at = sorted({self.groups * i // KNOTS for i in range(KNOTS + 1)})
        self._sums = [(0.0, 0.0, 0.0)]
        for low, high in pairwise(self._at):
            work = cost.work(GroupRange(dimension, low, high - low))
            plain = (n * UNITS.get(k, 1.0) for k, n in work.operations.items() if not k.startswith(("load", "store")))
            a, b, c = self._sums[-1]
            self._sums.append((a + sum(plain), b + work.global_bytes, c + work.work_groups))

    def between(self, first: int, end: int) -> tuple[float, float, float]:
        """Operations, bytes and work-groups of the groups from one to another (not included)."""
        low, high = self._up_to(first), self._up_to(end)
        return high[0] - low[0], high[1] - low[1], high[2] - low[2]

    def _up_to(self, group: int) -> tuple[float, float, float]:
        i = max(0, bisect.bisect_right(self._at, group) - 1)
        if i + 1 >= len(self._at):
            return self._sums[-1]
        part = (group - self._at[i]) / (self._at[i + 1] - self._at[i])
        (a, b, c), (x, y, z) = self._sums[i], self._sums[i + 1]
        return a + part * (x - a), b + part * (y - b), c + part * (z - c)


class Case:
    """An application on a machine: its graph, what its ranges take, and the state before the first repetition."""

    def __init__(self, application: Application, machine: Machine) -> None:
        self.application = application
        self.machine = machine
        builder, keys = GraphBuilder(), {}
        for name, data in application.arrays.items():
            keys[name] = builder.buffer(data.nbytes, name)
        self.buffers = {keys[n]: Buffer(keys[n], d.nbytes, n) for n, d in application.arrays.items()}
        for step in application.steps:
            args = [BufferArg(keys[a]) if isinstance(a, str) else a for a in step.args]
            facts = application.program().facts
            builder.add(make_launch(facts, step.kernel, step.global_size, step.local_size, args, buffers=self.buffers))
        self.graph: Graph = builder.build(name=application.name)
        self.keys = keys
        self.splits: Mapping[int, Split] = Splits(self.graph)
        if whole := [node.name for n, node in enumerate(self.graph.nodes) if n not in self.splits]:
            raise ResultError(
                f"{application.name}: the analysis does not find how {', '.join(whole)} may be divided",
                hint="all these kernels can be; was it cut off on a loaded machine? run it again",
            )
        self._contents: list[Contents] = []
        self._costs: dict[tuple[int, int], LaunchCost] = {}
        self._profiles: dict[tuple[int, int], Profile] = {}
        self._known: dict[tuple[int, int, int, int, int], float] = {}

    @cached_property
    def problem(self) -> Problem:
        """Everything on the host, nothing known."""
        return Problem(
            graph=self.graph,
            machine=self.machine,
            estimates=ModelEstimates(self.graph, self.machine),
            queues=(1,) * len(self.machine.devices),
            valid={key: frozenset({HOST}) for key in self.buffers},
            splits=self.splits,
        )

    @cached_property
    def families(self) -> tuple[Family, ...]:
        return families(self.problem)

    def contents(self, turn: int) -> Contents:
        """What the arrays hold in a repetition, as far as the host decides it."""
        between = self.application.between
        if between is None:
            turn = 0
        if not self._contents:
            self._contents.append({k: v.copy() for k, v in self.application.arrays.items()})
        while len(self._contents) <= turn:
            now = dict(self._contents[-1])
            assert between is not None
            between(now, len(self._contents))
            self._contents.append(now)
        return self._contents[turn]

    # what is true

    def seconds(self, turn: int, node: int, device: DeviceIndex, first: int, count: int) -> float:
        """What groups of a node (all of one that cannot be split) take on a device in a repetition."""
        if self.application.between is None:
            turn = 0
        key = (turn, node, device, first, count)
        if key not in self._known:
            self._known[key] = self._seconds(*key)
        return self._known[key]

    def _seconds(self, turn: int, node: int, device: DeviceIndex, first: int, count: int) -> float:
        split, where = self.splits.get(node), self.machine.devices[device]
        if split is None:
            first = 0
            regions = self.problem.regions(node)
        else:
            regions = self.problem.regions(node, first, count)
        profile = self._profile(turn, node)
        operations, touched, groups = profile.between(first, first + count if split is not None else profile.groups)
        nbytes = min(touched, float(sum(high - low for _, low, high in regions)))
        rounds = math.ceil(groups / where.compute_units) * where.compute_units / max(groups, 1.0)
        return where.launch_overhead + rounds * max(operations / where.flops, nbytes / where.bandwidth)

    def _profile(self, turn: int, node: int) -> Profile:
        if (turn, node) not in self._profiles:
            split, cost = self.splits.get(node), self._cost(turn, node)
            self._profiles[turn, node] = Profile(cost, 0 if split is None else split.dimension)
        return self._profiles[turn, node]

    def _cost(self, turn: int, node: int) -> LaunchCost:
        if (turn, node) in self._costs:
            return self._costs[turn, node]
        launch = self.graph.nodes[node]
        assert isinstance(launch, Launch)
        sizes = {key: b.nbytes for key, b in self.buffers.items()}
        facts = launched(launch.program, launch.kernel.name, known_launch(launch, sizes))
        contents = self.contents(turn)
        names = {key: name for name, key in self.keys.items()}
        given = {
            index: as_bytes(np.ascontiguousarray(contents[names[a.key]]))
            for index, a in enumerate(launch.args)
            if isinstance(a, BufferArg)
            and a.key not in launch.writes
            and contents[names[a.key]].dtype == np.int32
            and contents[names[a.key]].size <= 1 << 20
        }
        self._costs[turn, node] = facts.cost_with(given) if given else facts.cost
        return self._costs[turn, node]

    # the best division

    def best(self, turn: int = 0) -> dict[int, Ranges]:
        """Every family so that its slowest device ends as early as can be: what the true times say, by bisection."""
        out: dict[int, Ranges] = {}
        for family in self.families:
            out.update(of_family(family, self._best(family, turn)))
        return out

    def _best(self, family: Family, turn: int) -> list[int]:
        groups, devices = family.leader.groups, self.machine.indices

        def taken(device: DeviceIndex, low: int, high: int) -> float:
            if low == high:
                return 0.0
            total = 0.0
            for m in family.members:
                a, b = m.cuts((0, low, groups))[1] if low else 0, m.cuts((0, high, groups))[1]
                total += self.seconds(turn, m.node, device, a, b - a) if b > a else 0.0
            return total

        def cuts(limit: float) -> list[int]:
            at = [0]
            for d in devices:
                low, high = at[-1], groups
                while low < high:
                    middle = (low + high + 1) // 2
                    if taken(d, at[-1], middle) <= limit:
                        low = middle
                    else:
                        high = middle - 1
                at.append(low)
            return at

        low, high = 0.0, min(taken(d, 0, groups) for d in devices)
        while high - low > 1e-3 * high:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if cuts(middle)[-1] == groups else (middle, high)
        found = cuts(high)
        found[-1] = groups
        return found


class Oracle:
    """A policy that knows what the next repetition will take."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._turn = 0

    def plan(self, problem: Problem) -> Plan:
        ranges = self._case.best(self._turn)
        self._turn += 1
        return divided(problem, ranges, "oracle")


def seconds_of(case: Case, policy: StaticPolicy, times: int, options: Mapping[str, str] | None = None) -> list[float]:
    """Seconds of each repetition. When nothing has changed for some repetitions, the others are like the last."""
    problem = replace(case.problem, options=options or {})
    out: list[float] = []
    last: Any = None
    same = 0
    for r in islice(repetitions(problem, policy, case.seconds), times):
        out.append(r.trace.makespan)
        cut = sorted((a.node, a.device, a.first, a.groups) for a in r.plan.assignments)
        now = cut, sum(e.nbytes for e in r.trace.transfers())
        same = same + 1 if now == last and abs(out[-1] - out[-2]) <= 1e-9 * out[-1] else 0
        last = now
        if same == STEADY and case.application.between is None:
            out += [out[-1]] * (times - len(out))
            break
    return out


STEADY = 6
"""Repetitions that are all alike, after which the others are taken to be so too."""


METHODS = ("profile", "fixed_point", "broyden")
"""Ours, and the paper's two as it has them; all begin with the same for every device."""
PLANNING = "10"
"""Seconds that ``auto`` may think, so that what it has planned before does not matter."""


def learner(method: str) -> tuple[StaticPolicy, dict[str, str]]:
    """A policy that learns by one of METHODS, with nothing measured, and its options."""
    if method == METHODS[0]:
        return Adaptive(), {"first": "uniform"}
    return Libsplit(method), {}


def policies(case: Case) -> Iterator[tuple[str, StaticPolicy, dict[str, str]]]:
    """Those of Figure 6, without one device: name, policy and options. ``estimates``: ours, begun by the first
    guesses."""
    yield "uniform", Fixed(parts(case.problem, [1.0] * len(case.machine.devices))), {}
    for method in METHODS:
        yield method, *learner(method)
    yield "estimates", Adaptive(), {}
    yield "oracle", Oracle(case), {}


class Known(Wrapped):
    """Estimates of launches that were all measured: what they truly take in the first repetition. Ranges are taken to
    lie at the front."""

    def __init__(self, case: Case) -> None:
        super().__init__(case.problem.estimates)
        self._case = case

    def launch(self, node: int, device: DeviceIndex) -> float:
        split = self._case.splits.get(node)
        return self.groups(node, device, 0, 1 if split is None else split.groups)

    def groups(self, node: int, device: DeviceIndex, count: int, of: int) -> float:
        return self._case.seconds(0, node, device, 0, count or of)

    def doubt(self, node: int, devices: Sequence[DeviceIndex]) -> float:
        return 0.0


def auto_over_one_device(case: Case) -> float:
    """How many times as fast as the best device alone ``auto`` does a single run, all data on the host and the times of
    launches known."""

    def seconds(problem: Problem, policy: StaticPolicy) -> float:
        return next(repetitions(problem, policy, case.seconds)).trace.makespan

    known = replace(case.problem, estimates=Known(case), options={"budget": PLANNING})
    alone = (Fixed({n: [(d, 0, s.groups)] for n, s in case.splits.items()}) for d in case.machine.indices)
    return min(seconds(case.problem, policy) for policy in alone) / seconds(known, Auto())
