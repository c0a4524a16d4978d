"""Feasibility: which devices can run a node, by what it needs, what they have, and what its user allows. "Static
partitioning and scheduling of kernels from profiles" (REPARA), Section 2.1, Eq. 1, 2 and 5: a unit is feasible on a
device if none of its restrictions is among the device's. Memory for its buffers is another matter (``Problem.fits``): a
launch may run in ranges."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from manycl.graph.graph import HostTask, Launch, Node, Placement, Version
from manycl.graph.launch import local_bytes
from manycl.graph.versions.versions import preferred
from manycl.machine import Device


def beyond(launch: Launch, device: Device, chosen: Version | None = None) -> str:
    """Return what a launch or a version needs that a device does not have, in words; empty: nothing, or by version."""
    if launch.versions and chosen is None:
        return ""
    task = chosen or launch
    lacks = {*device.lacks.split(), *["double precision"] * (not device.double)}
    if missing := [name for name in task.kernel.needs if name in lacks]:
        return f"{' and '.join(missing)}, where {device.name} has none"
    items, nbytes = prod(task.local_size or ()), local_bytes(launch, task.kernel)
    if items > device.max_work_group:
        return f"work-groups of {items} work-items, where {device.name} has at most {device.max_work_group}"
    if nbytes > device.local_memory:
        return f"{nbytes} bytes of local memory, where {device.name} has {device.local_memory}"
    return ""


def able(launch: Launch, device: Device) -> list[int]:
    """Return the versions of a launch (indices) that a device can run, the preferred one first."""
    versions = launch.versions
    return [v for v in preferred(versions, device.kind) if not beyond(launch, device, versions[v])]


def matches(device: Device, preference: str) -> bool:
    """Return whether a device meets a preference: its kind, its name, or the name of the device it is a part of."""
    return preference in (device.kind, device.name) or device.name.startswith(f"{preference}.")


def permits(wanted: Placement, device: Device) -> bool:
    """Return whether a restriction permits a device."""
    only, never = wanted.only, wanted.never
    return (not only or any(matches(device, w) for w in only)) and not any(matches(device, w) for w in never)


def obstacle(task: Node, device: Device) -> str:
    """Return why a device cannot run a node, in words that follow its name; empty: it can."""
    if isinstance(task, HostTask):
        return "is not the host"
    if isinstance(task.device, Placement) and not permits(task.device, device):
        return f"is excluded ({task.device})"
    if not isinstance(task, Launch):
        return ""
    if task.versions:
        return "" if able(task, device) else "has no version of it"
    excess = beyond(task, device)
    return excess and f"cannot have {excess}"


def remedy(task: Node, devices: tuple[Device, ...]) -> str:
    """Return what the user can do where no device can run a node."""
    if isinstance(task, Launch) and isinstance(task.device, Placement):
        could = [d.name for d in devices if not obstacle(replace(task, device=""), d)]
        if could:
            return f"without the restriction {', '.join(could)} could; there are {', '.join(d.name for d in devices)}"
    return "give the kernel another version, smaller work-groups or less local memory, or take other devices"
