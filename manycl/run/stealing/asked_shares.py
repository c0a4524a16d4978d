"""The share scheduler of a policy that decides at run time: what such a policy gives to a device may leave it, as the
shares of a plan may. Pure.

Long launches are cut into chunks as for a plan that has each launch on its fastest device
(:func:`manycl.run.engine.asking_policies.in_advance`); devices and queues are those that the policy chooses.
"""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import and_

from manycl.graph.graph import BufferKey
from manycl.machine import DeviceIndex
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policy import DynamicPolicy
from manycl.plan.problem import Problem
from manycl.run.commands.backend import Lane
from manycl.run.engine.assign import Ask, Assigned
from manycl.run.lowering.steps import Lowered
from manycl.run.stealing.share_scheduler import ShareScheduler
from manycl.run.stealing.work_stealing import WorkStealing
from manycl.run.stealing.worker import StealingWorker


class AskedShares(ShareScheduler):
    """The assigner that puts what a policy chooses into the lines of queues."""

    def __init__(
        self, problem: Problem, policy: DynamicPolicy, lowered: Lowered, valid: Mapping[BufferKey, int]
    ) -> None:
        super().__init__(problem, lowered, valid)
        self._pieces = lowered.cut
        self._ask = Ask(problem, policy, self._of_buffers(valid))
        self.decisions, self.queues = self._ask.decisions, tuple(map(max, self.queues, self._ask.queues))
        self._chosen: list[Assignment] = []
        # launches that no device was given, and steps that are no chunks, by node
        self._cut, self.launches = self.launches, {}
        self._factors, self._watched = self._watched, {}
        self._node = {step: node for node, chunks in lowered.chunks.items() for step in chunks.steps}
        self._step = {lowered.step(t).node: t for t in range(len(self._graph.nodes)) if t not in self._node}
        self._node |= {step: node for node, step in self._step.items()}
        self._seconds = self._expected = dict(self._seconds)
        self._lines.clear()

    def plan(self, name: str) -> Plan:
        return Plan(tuple(self._chosen), name, tuple(d.name for d in self._problem.machine.devices), 0.0)

    def shares(self) -> Iterator[tuple[int, StealingWorker, int]]:
        for node, device, *_ in self._chosen:
            if (launch := self.launches.get(node)) is not None:
                yield node, launch.workers[device], launch.groups(0, len(launch.chunks.steps))

    def start(self, now: float) -> list[Assigned]:
        return self._placed(self._ask.start(now), now)

    def completed(self, nodes: list[int], now: float, valid: Mapping[BufferKey, int]) -> list[Assigned]:
        out = super().completed(nodes, now, valid)
        ended = dict.fromkeys(self._node[n] for n in nodes if n >= 0)
        whole = [n for n in ended if n not in self.launches or self.launches[n].is_over]
        return out + self._placed(self._ask.completed(whole, now, self._of_buffers(valid)), now)

    def leave(self, device: DeviceIndex, is_stopped: bool = False) -> None:
        self._ask.leave(device)
        super().leave(device, is_stopped)

    def come(self, device: DeviceIndex, now: float) -> None:
        self._ask.come(device, now)
        super().come(device, now)

    def _placed(self, chosen: list[Assigned], now: float) -> list[Assigned]:
        """Put what was chosen into lines. Return what may be enqueued."""
        for node, device, queue, _, seconds, *_ in chosen:
            self._chosen.append(Assignment(node, device, queue, 0.0, 0.0))
            item: int | WorkStealing
            if node in self._step:
                item = self._step[node]
                self._expected[item] = seconds
            else:
                item = self.launches[node] = self._cut[node]
                item.place(device, self._estimates.terms(node, device), queue)
                if node in self._factors:
                    self._watched[node] = self._factors[node]
            self._lines.setdefault((device, queue), deque()).append(item)
        return self._go(now, []) if chosen else []

    def _give(self, step: int, lane: Lane, out: list[Assigned]) -> None:
        super()._give(step, lane, out)
        out[-1] = out[-1]._replace(watched=True)  # the policy is asked again

    def _of_buffers(self, valid: Mapping[BufferKey, int]) -> Mapping[BufferKey, int]:
        """Return where buffers are valid: those that are cut, where all of their pieces are."""
        whole = {key: reduce(and_, (valid.get(p, 0) for p in pieces)) for key, pieces in self._pieces.items()}
        return ChainMap(whole, valid) if whole else valid  # type: ignore[arg-type]
