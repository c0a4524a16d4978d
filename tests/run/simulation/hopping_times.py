"""For tests of kernels that begin while their fast device is taken, by the real engine on a simulated machine: what
is foreseen of them, and what they really take."""

from __future__ import annotations

from manycl.machine import DeviceIndex
from manycl.model.estimates import Estimates
from manycl.plan.problem import Problem
from manycl.run.lowering.steps import Lowered, Step
from manycl.run.simulation.foresee import StepEstimates

GROUPS = 4096
"""Work-groups of each launch."""
SLOW, FAST = DeviceIndex(0), DeviceIndex(1)
PACKET = 5e-6
"""Seconds that each packet takes, however small."""


class HoppingTimes(Estimates):
    """Of what takes the fast device for ``wait`` seconds (node 0), and of the kernel (node 1), which takes the slow
    device ``seconds``, and the fast one a k-th of that."""

    def __init__(self, seconds: float, wait: float, k: float) -> None:
        self.seconds, self.wait, self.k = seconds, wait, k

    def launch(self, node: int, device: DeviceIndex) -> float:
        return self.groups(node, device, GROUPS, GROUPS)

    def groups(self, node: int, device: DeviceIndex, count: int, of: int) -> float:
        if node == 0:
            return self.wait * count / of
        return PACKET + self.seconds / (self.k if device == FAST else 1.0) * count / of

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 0.0


class HoppingTruth(StepEstimates):
    """What steps really take, by ``times`` that know of ranges, whatever the plan was made from."""

    def __init__(self, problem: Problem, lowered: Lowered, times: Estimates) -> None:
        super().__init__(problem, lowered)
        self._times = times

    def range(self, step: Step, device: DeviceIndex) -> float:
        seconds = self._times.groups(step.node, device, step.groups, GROUPS)
        assert seconds is not None
        return seconds

    def launch(self, token: int, device: DeviceIndex) -> float:
        step = self._lowered.step(token)
        return super().launch(token, device) if step.role else self._times.launch(step.node, device)
