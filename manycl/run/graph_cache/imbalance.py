"""Imbalance of the shares of divided launches in a run: whether one device took longer than another, compared with what
was planned for both."""

from __future__ import annotations

from manycl.graph.graph import Launch
from manycl.machine import DeviceIndex
from manycl.model.history.history import share_key
from manycl.model.history.imbalance import Imbalances
from manycl.run.engine.result import Result
from manycl.run.lowering.steps import RANGE


def note_shares(imbalances: Imbalances, result: Result) -> None:
    """Note the shares of a run that followed a plan with times, and was timed."""
    plan, lowered = result.plan, result.lowered
    if plan is None or not plan.is_split or lowered is None or lowered.room is not None:
        return
    planned = dict[tuple[int, DeviceIndex], float]()  # seconds of a work-group
    for a in plan.assignments:
        if a.is_range and a.end > a.start:
            planned[a.node, a.device] = (a.end - a.start) / a.groups
    took = dict[int, dict[DeviceIndex, tuple[float, int]]]()  # seconds and work-groups of devices, by node
    for step, device, seconds in result.measured():
        if step.role == RANGE and (step.node, device) in planned:
            before, groups = took.setdefault(step.node, {}).get(device, (0.0, 0))
            took[step.node][device] = before + seconds, groups + step.groups
    for node, found in took.items():
        launch = result.graph.nodes[node]
        assert isinstance(launch, Launch)
        parts = {d: seconds / groups / planned[node, d] for d, (seconds, groups) in found.items()}
        imbalances.note(share_key(launch), parts)
