"""A plan replayed on the simulated machine: every command in the order of the plan, its moves too, as soon as it can.

What a plan says is judged by that, and graphs that nothing is known of but times are run by it. The engine's rules:
commands of one device wait for each other inside the
device; what another device (or the host) must finish first is known once its end has been reported. The back end is
the simulator's (``run/backends/sim.py``), with its queues, its throughput and its clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

from manycl.errors import PolicyError, RunError
from manycl.graph.graph import Launch
from manycl.machine import HOST
from manycl.model.contention import NOTHING, Use
from manycl.plan.contents import Contents, Need
from manycl.plan.events import kernel_event, move_event
from manycl.plan.plan import MERGE, ON_HOST, WHOLE, Plan
from manycl.plan.problem import Problem
from manycl.run.backend import DOWNLOAD_QUEUE, UPLOAD_QUEUE, Command, Download, HostCall, Queued, Run, Upload
from manycl.run.backends.sim import NO_HOST_TIMES, SimBackend
from manycl.run.disturbance import UNDISTURBED, Disturbance
from manycl.trace import Event, HostEvent, KernelEvent, Trace, TransferEvent


class _PlanBackend(SimBackend):
    """The simulator, with the plan's assignments and moves as what its tokens name."""

    def __init__(
        self, problem: Problem, plan: Plan, host_seconds: Mapping[int, float], disturbance: Disturbance
    ) -> None:
        whole = {i: a.node for i, a in enumerate(plan.assignments) if a.dimension == WHOLE and a.device != ON_HOST}
        super().__init__(
            problem.machine,
            problem.estimates,
            host_seconds={i: host_seconds.get(a.node, 0.0) for i, a in enumerate(plan.assignments)},
            report_latency=problem.handover,
            start=problem.not_before,
            disturbance=replace(disturbance, nodes=whole) if disturbance is not UNDISTURBED else disturbance,
        )
        self._problem = problem
        self._plan = plan
        self._fixed = frozenset(problem.fixed)
        self.contents = Contents(plan, problem)

    def _cost(self, command: Queued) -> tuple[float, float]:
        token, problem = command.token, self._problem
        base = len(self._plan.assignments)
        if token >= base:
            m = self._plan.moves[token - base]
            return problem.estimates.transfer(m.nbytes, m.source, m.target), 0.0
        a = self._plan.assignments[token]
        if a in self._fixed:
            return max(0.0, a.end - self.now()), 0.0
        if a.device == ON_HOST:
            return self._host_seconds.get(token, 0.0), 0.0
        if a.dimension == WHOLE:
            assert isinstance(command, Run)
            return super()._cost(command._replace(token=a.node))
        if a.dimension == MERGE:
            others = self.contents.others(a.node, self.contents.memory(a))
            return problem.merge_seconds(a.node, a.device, len(others)), 1.0
        return problem.range_seconds(a.node, a.device, a.groups), 1.0

    def _use(self, command: Queued, seconds: float) -> Use:
        token, base = command.token, len(self._plan.assignments)
        if token >= base:
            m = self._plan.moves[token - base]
            return self._contention.use((m.source, m.target), m.nbytes, seconds)
        a = self._plan.assignments[token]
        return NOTHING if a in self._fixed else Use(None, self._problem.draws(a, seconds))

    def _disturbed(self, by: Disturbance, command: Queued, seconds: float, now: float) -> float:
        token = command.token
        if token < len(self._plan.assignments) and self._plan.assignments[token] in self._fixed:
            return seconds
        return super()._disturbed(by, command, seconds, now)

    def _note(self, command: Queued, start: float, end: float) -> None:
        events, plan = self.record.sorted_events, self._plan
        token, base = command.token, len(self._plan.assignments)
        if token >= base:
            events.append(move_event(plan.moves[token - base]._replace(start=start, end=end), self._problem))
            return
        a = plan.assignments[token]
        if a not in self._fixed:
            a = a._replace(start=start, end=end)
        start, end = a.start, a.end
        task = self._problem.graph.nodes[a.node]
        if isinstance(task, Launch):
            component = self._component.get(a.node, -1)
            events.append(kernel_event(a, task, self.machine.devices[a.device].name, component))
        else:
            events.append(HostEvent(a.node, task.name, start, end))


class _Replay:
    """Which command may be enqueued when: a line of tokens for every queue, and for each token what it waits for."""

    def __init__(self, problem: Problem, plan: Plan, contents: Contents) -> None:
        self._problem = problem
        self._plan = plan
        self._base = len(plan.assignments)
        count = self._base + len(plan.moves)
        self._reported = bytearray(count)
        self._after: list[tuple[int, ...]] = []
        self._lines: dict[tuple[int, int], deque[int]] = {}
        fixed = set(problem.fixed)
        under_way: dict[int, list[int]] = {}
        for i, a in enumerate(plan.assignments):
            if a in fixed and a.end <= problem.not_before:
                self._reported[i] = 1
                self._after.append(())
                continue
            self._lines.setdefault((a.device, a.queue), deque()).append(i)
            if a in fixed:  # under way already, or as good as: it waits for nothing
                under_way.setdefault(a.device, []).append(i)
                self._after.append(())
                continue
            waits = {*self._predecessors(i, contents), *_bringers(contents.needs(i), f"node {a.node}")}
            # whatever queue it is in, nothing new starts on a device beside what is fixed there
            waits.update(under_way.get(a.device, ()))
            self._after.append(tuple(sorted(waits)))
        for j, m in enumerate(plan.moves):
            queue = DOWNLOAD_QUEUE if m.target == HOST else UPLOAD_QUEUE
            self._lines.setdefault((m.device, queue), deque()).append(self._base + j)
            self._after.append(tuple(sorted(set(_bringers(contents.sources(j), f"move {j}")))))
        self.left = count - sum(self._reported)

    def _predecessors(self, index: int, contents: Contents) -> set[int]:
        node = self._plan.assignments[index].node
        found = {i for p in self._problem.graph.predecessors[node] for i in contents.members(p)}
        if self._plan.assignments[index].dimension == MERGE:
            found.update(i for i in contents.members(node) if i != index)
        return found

    def device(self, token: int) -> int:
        if token < self._base:
            return self._plan.assignments[token].device
        return self._plan.moves[token - self._base].device

    def report(self, token: int) -> None:
        self._reported[token] = 1
        self.left -= 1

    def commands(self) -> list[Command]:
        """All that can be enqueued now: a line's head, once all of other devices that it waits for is reported."""
        out: list[Command] = []
        for (device, queue), line in self._lines.items():
            while line:
                token = line[0]
                inside = [t for t in self._after[token] if not self._reported[t]]
                if any(device == ON_HOST or self.device(t) != device for t in inside):
                    break
                line.popleft()
                out.append(self._command(token, device, queue, inside))
        return out

    def _command(self, token: int, device: int, queue: int, inside: list[int]) -> Command:
        if device == ON_HOST:
            return HostCall(token)
        if token < self._base:
            return Run(token, device, queue, inside, True)
        kind = Upload if queue == UPLOAD_QUEUE else Download
        return kind(token, self._plan.moves[token - self._base].buffer, device, inside, True)


def _bringers(needs: Iterable[Need], what: str) -> list[int]:
    out: list[int] = []
    for need in needs:
        if need.missing:
            raise PolicyError(
                f"{what} needs bytes {need.low} to {need.high} of buffer {need.buffer} as node {need.writer} leaves"
                " them, but no move of the plan brings them"
            )
        out.extend(need.bringers)
    return out


def replay(
    problem: Problem,
    plan: Plan,
    *,
    host_seconds: Mapping[int, float] = NO_HOST_TIMES,
    disturbance: Disturbance = UNDISTURBED,
) -> Trace:
    """Replay a plan with its moves on the simulated machine: the trace, of kind ``simulation``.

    The plan's times play no part, only its orders; given the estimates that it was made with, it takes exactly as long
    as it says. ``host_seconds[n]``: how long host task n takes. Raises PolicyError for a plan that lacks a move, and
    for a disturbance with faults, of which a plan says nothing.
    """
    if disturbance.faults:
        raise PolicyError("a plan is replayed without faults", hint="simulate runs it by the engine, which meets them")
    backend = _PlanBackend(problem, plan, host_seconds, disturbance)
    backend.begin(problem.graph, problem.queues)
    lines = _Replay(problem, plan, backend.contents)
    backend.perform(lines.commands())
    while lines.left:
        try:
            reports = backend.wait()
        except RunError:
            raise PolicyError(
                f"the plan of {plan.policy} waits for itself: {lines.left} commands never start"
            ) from None
        for report in reports:
            lines.report(report.token)
        backend.perform(lines.commands())
    events: tuple[Event, ...] = tuple(backend.finish().events())
    ends = [e.end for e in events if isinstance(e, (KernelEvent, TransferEvent, HostEvent))]
    ends += [a.end for a in problem.fixed]
    return Trace(
        events=events,
        devices=plan.devices,
        policy=plan.policy,
        makespan=max(ends, default=problem.not_before),
        kind="simulation",
        application=problem.graph.name,
        edges=problem.graph.edges,
        details=plan.details,
    )
