"""Assignment at run time: a dynamic policy's choices become assignments of nodes to queues. Pure."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

from manycl.errors import ManyclError, PolicyError
from manycl.graph.dependences import least_first
from manycl.graph.graph import BufferKey, HostTask, Launch
from manycl.graph.versions.feasible import obstacle
from manycl.machine import DeviceIndex
from manycl.plan.plan import ON_HOST
from manycl.plan.policy import Choice, Component, DeviceState, DynamicPolicy
from manycl.plan.problem import Problem
from manycl.plan.search.queues import setup_cq
from manycl.plan.search.rank import bottom_levels
from manycl.run.lowering.steps import Chunks
from manycl.trace import DecisionEvent
from manycl.utilities.unforeseen import told


class Assigned(NamedTuple):
    """A node that may be enqueued now. ``watched``: the assigner must be notified when the node is complete.
    ``seconds``: its predicted time (0: no prediction). ``chunks``: the nodes, ``node`` being the first, that run
    together as one ``task``, a packet of the chunks ``of`` a launch."""

    node: int
    device: DeviceIndex
    queue: int
    watched: bool
    seconds: float = 0.0
    chunks: tuple[int, ...] = ()
    task: Launch | None = None
    of: Chunks | None = None


class Assigner(Protocol):
    """A component that decides at run time which device runs what. ``queues`` by device: how many of them it uses."""

    queues: tuple[int, ...]
    decisions: list[DecisionEvent]

    def start(self, now: float) -> list[Assigned]:
        """Return what may be enqueued when the run begins."""

    def completed(self, nodes: list[int], now: float, valid: Mapping[BufferKey, int]) -> list[Assigned]:
        """Return what may be enqueued when ``nodes`` have been reported complete. ``valid``: the memories in which
        buffers are valid, as masks, as far as that is decided."""

    def leave(self, device: DeviceIndex) -> None:
        """Give a device nothing more that another device can run."""

    def come(self, device: DeviceIndex, now: float) -> None:
        """Consider a device for assignments from now on."""

    def slow(self, device: DeviceIndex) -> None:
        """Note that a device has become slower, or faster."""


@dataclass(slots=True)
class _Running:
    device: DeviceIndex
    slot: int
    left: int
    until: float


class Ask:
    """PySchedCL's Algorithm 1. It keeps the frontier of ready task components and the devices with free places, and
    asks the policy's ``select`` until that returns None; a chosen component's kernels go to queues by ``setup_cq``.
    ``fits``: whether a device has room for all that a node needs at once (default: ``problem.fits``)."""

    def __init__(
        self,
        problem: Problem,
        policy: DynamicPolicy,
        valid: Mapping[BufferKey, int],
        fits: Callable[[int, DeviceIndex], bool] | None = None,
    ) -> None:
        if problem.fixed:
            raise PolicyError("a policy that decides while it runs cannot continue a partial schedule (problem.fixed)")
        self._problem = problem
        self._fits = fits or problem.fits
        self._policy = policy
        self._valid = valid
        self.decisions: list[DecisionEvent] = []
        policy.start(problem)
        graph = problem.graph
        self._members = policy.components(graph)
        if sorted(n for c in self._members for n in c) != list(range(len(graph.nodes))):
            raise PolicyError("the policy's task components are no partition of the nodes")
        self._component_of = [0] * len(graph.nodes)
        for index, nodes in enumerate(self._members):
            for n in nodes:
                self._component_of[n] = index
        devices = problem.machine.indices
        self._places = [max(1, policy.resident(d)) for d in devices]
        self.queues = tuple(max(1, policy.queues(d)) for d in devices)
        self._away = set(problem.away) if len(problem.away) < len(devices) else set()
        self._slots: list[list[int]] = [
            [] if d in self._away else list(range(p)) for d, p in zip(devices, self._places, strict=True)
        ]
        self._running: dict[int, _Running] = {}
        self._frontier: list[Component] = []
        try:
            levels = bottom_levels(problem)
        except ManyclError:
            raise  # a policy's own refusal, or a kernel that no device can run
        except Exception as error:  # any order of the frontier is right
            told(error, "ranking the kernels")
            levels = [0.0] * len(graph.nodes)
        self._missing = [0] * len(self._members)
        self._rank = [0.0] * len(self._members)
        of = self._component_of
        for index, nodes in enumerate(self._members):
            outside = {p for n in nodes for p in graph.predecessors[n] if of[p] != index}
            self._missing[index] = len(outside)
            own = [r for n in nodes if (r := graph.nodes[n].rank) is not None]
            front = [levels[n] for n in nodes if all(of[p] != index for p in graph.predecessors[n])]
            self._rank[index] = max(own) if own else max(front, default=0.0)
        # a user's own rank orders before every computed one
        self._ranked = [any(graph.nodes[n].rank is not None for n in nodes) for nodes in self._members]
        self._check_acyclic()

    def _check_acyclic(self) -> None:
        of, graph = self._component_of, self._problem.graph
        before: list[set[int]] = [set() for _ in self._members]
        after: list[set[int]] = [set() for _ in self._members]
        for p, n in graph.edges:
            if of[p] != of[n]:
                before[of[n]].add(of[p])
                after[of[p]].add(of[n])
        if stuck := sorted({*range(len(self._members))}.difference(least_first(before, after))):
            raise PolicyError(
                f"task components {stuck} wait for one another in a circle",
                hint="no path may leave a component and come back to it; merge or divide them",
            )

    def start(self, now: float) -> list[Assigned]:
        out: list[Assigned] = []
        for index, missing in enumerate(self._missing):
            if missing == 0:
                self._ready(index, out)
        return out + self._choose(now)

    def completed(self, nodes: list[int], now: float, valid: Mapping[BufferKey, int]) -> list[Assigned]:
        self._valid = valid
        graph, of = self._problem.graph, self._component_of
        out: list[Assigned] = []
        for node in nodes:
            mine = of[node]
            told: set[int] = set()
            for s in graph.successors[node]:
                other = of[s]
                if other != mine and other not in told:
                    told.add(other)
                    self._missing[other] -= 1
                    if self._missing[other] == 0:
                        self._ready(other, out)
            run = self._running.get(mine)
            if run is not None:
                run.left -= 1
                if run.left == 0:
                    del self._running[mine]
                    if run.device not in self._away:
                        self._slots[run.device].append(run.slot)
                        self._slots[run.device].sort()
        return out + self._choose(now)

    def leave(self, device: DeviceIndex) -> None:
        away, graph, problem = self._away | {device}, self._problem.graph, self._problem
        places = (
            [set(problem.allowed(n)) for n in nodes if not isinstance(graph.nodes[n], HostTask)]
            for nodes in self._members
        )
        if all(set.intersection(*found) - away for found in places if found):  # else the rest could not run
            self._away.add(device)
            self._slots[device] = []

    def come(self, device: DeviceIndex, now: float) -> None:
        if device in self._away:
            self._away.discard(device)
            busy = {run.slot for run in self._running.values() if run.device == device}
            self._slots[device] = [slot for slot in range(self._places[device]) if slot not in busy]

    def slow(self, device: DeviceIndex) -> None:
        """Do nothing: a kernel is where it is, and the policy is asked where the next one goes."""

    def _ready(self, index: int, out: list[Assigned]) -> None:
        """Put a component whose outside predecessors are complete onto the frontier; host functions start at once."""
        nodes = self._members[index]
        graph = self._problem.graph
        if all(isinstance(graph.nodes[n], HostTask) for n in nodes):
            out.extend(Assigned(n, ON_HOST, 0, True) for n in nodes)
            return
        allowed = set(self._problem.machine.indices)
        for n in nodes:
            if not isinstance(graph.nodes[n], HostTask):
                allowed &= set(self._problem.allowed(n))
        if not allowed:
            names = ", ".join(graph.nodes[n].name for n in nodes)
            raise PolicyError(f"no one device meets the preferences of all kernels of a task component: {names}")
        seconds = tuple(self._seconds(nodes, d) for d in self._problem.machine.indices)
        component = Component(index, nodes, self._rank[index], tuple(sorted(allowed)), seconds)
        insort(self._frontier, component, key=lambda c: (not self._ranked[c.index], -c.rank, c.index))

    def _seconds(self, nodes: tuple[int, ...], device: DeviceIndex) -> float:
        problem = self._problem
        estimates, graph = problem.estimates, problem.graph
        memory = problem.machine.devices[device].memory
        total, inside = 0.0, set()
        for n in nodes:
            node = graph.nodes[n]
            if isinstance(node, HostTask):
                continue
            # a node that fits nowhere is placed all the same: the run's error then says what it needs, and what to do
            fits = self._fits(n, device) or not any(self._fits(n, d) for d in problem.allowed(n))
            seconds = estimates.launch(n, device) + problem.home_seconds(n, device)
            total += seconds if fits and problem.can_run(n, device) else inf
            for key in node.reads:
                mask = self._valid.get(key, 0)
                if key not in inside and mask and not mask >> memory & 1:
                    source = (mask & -mask).bit_length() - 1
                    total += estimates.transfer(graph.buffers[key].nbytes, source, memory)
                inside.add(key)
            inside.update(node.writes)
        return total

    def _states(self, now: float) -> list[DeviceState]:
        held: list[list[int]] = [[] for _ in self._slots]
        until = [now] * len(self._slots)
        for index, run in self._running.items():
            held[run.device].append(index)
            until[run.device] = max(until[run.device], run.until)
        return [
            DeviceState(i, d, len(self._slots[i]), tuple(held[i]), until[i])
            for i, d in self._problem.machine.numbered()
        ]

    def _choose(self, now: float) -> list[Assigned]:
        out: list[Assigned] = []
        while self._frontier:
            choice = self._policy.select(tuple(self._frontier), self._states(now), now)
            if choice is None and self._away and not self._running:  # the policy waits for a device that has left
                choice = next((Choice(c.index, d) for c in self._frontier for d in c.devices if self._slots[d]), None)
            if choice is None:
                break
            out.extend(self._place(choice, now))
        if self._frontier and not self._running and not out:
            waiting = ", ".join(self._problem.graph.nodes[c.nodes[0]].name for c in self._frontier[:5])
            raise PolicyError(
                f"the policy places nothing although every device is idle (waiting: {waiting})",
                hint="select() must return a Choice when all devices are free",
            )
        return out

    def _place(self, choice: Choice, now: float) -> list[Assigned]:
        if not isinstance(choice, Choice):
            raise PolicyError(f"select() returned {choice!r}, not a Choice or None")
        component = next((c for c in self._frontier if c.index == choice.component), None)
        if component is None:
            raise PolicyError(f"select() chose component {choice.component!r}, which is not on the frontier")
        device = choice.device
        if not (isinstance(device, int) and 0 <= device < len(self._slots)):
            raise PolicyError(f"select() chose device {device!r}; there are {len(self._slots)}")
        nodes, machine = self._problem.graph.nodes, self._problem.machine.devices
        for n in component.nodes:
            if not isinstance(nodes[n], HostTask) and (why := obstacle(nodes[n], machine[device])):
                raise PolicyError(f"select() chose {machine[device].name} for {nodes[n].name}, which {why}")
        if not self._slots[device]:
            raise PolicyError(f"select() chose device {self._problem.machine.devices[device].name}, which is not free")
        self._frontier.remove(component)
        slot = self._slots[device].pop(0)
        until = now + component.seconds[device]
        self._running[component.index] = _Running(device, slot, len(component.nodes), until)
        name = self._problem.machine.devices[device].name
        self.decisions.append(DecisionEvent(now, component.index, component.nodes, name))
        share = max(1, self.queues[device] // self._places[device])
        first = slot * share % self.queues[device]
        graph, of = self._problem.graph, self._component_of
        placed = setup_cq(graph, component.nodes, share, first)
        # queues run in order: the report of a queue's last kernel stands for all before it
        last = {queue: n for n, queue in placed}
        seconds = component.seconds[device] / len(component.nodes) if component.seconds[device] < inf else 0.0
        return [
            Assigned(n, ON_HOST, 0, True)
            if isinstance(graph.nodes[n], HostTask)
            else Assigned(
                n,
                device,
                queue,
                last[queue] == n or any(of[s] != component.index for s in graph.successors[n]),
                seconds,
            )
            for n, queue in placed
        ]
