"""Devices that do not hold all of a run, and the error for a launch that fits into none. Pure."""

from __future__ import annotations

from manycl.errors import RunError
from manycl.graph.graph import BufferArg, BufferKey, CopyTask, DeviceTask, FillTask, HostTask, Node
from manycl.machine import HOST, Device, DeviceIndex
from manycl.plan.plan import Plan
from manycl.plan.problem import Problem


def limited(problem: Problem, plan: Plan | None) -> dict[DeviceIndex, int]:
    """Return the devices that do not hold all buffers that a plan uses there (without a plan: that the graph uses), and
    the bytes that each holds. Nearly always there are none."""
    if problem.roomy:
        return {}
    nodes, buffers = problem.graph.nodes, problem.graph.buffers
    found: dict[DeviceIndex, int] = {}
    for index, device in problem.machine.numbered():
        if device.memory == HOST:
            continue
        mine = range(len(nodes)) if plan is None else (a.node for a in plan.assignments if a.device == index)
        keys = {key for n in mine if not isinstance(task := nodes[n], HostTask) for key in stores(task)}
        if not device.holds([buffers[key].nbytes for key in keys]):
            found[index] = device.global_memory
    return found


def stores(task: DeviceTask) -> set[BufferKey]:
    """Return the keys of what a node needs in its device's memory."""
    return {a.key for a in task.args if isinstance(a, BufferArg)}


def too_large(task: Node, node: int, nbytes: int, device: Device, reason: str = "") -> RunError:
    """Return the error for a node that does not fit into a device's memory."""
    what = task.function if isinstance(task, CopyTask | FillTask) else "kernel"
    return RunError(
        f"the run needs {nbytes:,} bytes of buffers on {device.name} at once, which has {device.global_memory:,}"
        f" ({device.max_allocation:,} for one): {what} {task.name} (node {node}) does not run in ranges there"
        + (f": {reason}" if reason else ""),
        hint="choose devices with more memory, smaller arrays, or a static policy (auto), which can choose the device",
    )
