"""Occupancy: how much of a device a kernel can use alone, the one simple model of kernels that run at the same time.

A kernel with few work-items leaves part of a device idle. Its *share* is the fraction of the device's throughput that
it can use alone, in (0, 1]. Kernels in different queues of a device run at full speed together as long as their shares
add up to at most 1; beyond that all slow down alike. Planner and simulator both use this.
"""

from __future__ import annotations

from manycl.graph.graph import Launch
from manycl.machine import Device

ITEMS_PER_UNIT = {"cpu": 1, "gpu": 2048, "accelerator": 2048}
"""Work-items that fill one compute unit. GPUs: the threads that may be resident on one (2048 on most of NVIDIA's
data-centre parts; fewer are needed where each has much to do, so small kernels may share a GPU less than this says)."""


def share(launch: Launch, device: Device) -> float:
    """Return the fraction of ``device`` that ``launch`` can use alone."""
    return share_of(launch.work_items, work_groups(launch), device)


def work_groups(launch: Launch) -> int:
    """Return the number of work-groups of a launch, about (0: the driver chooses)."""
    if launch.local_size is None:
        return 0
    group = 1
    for size in launch.local_size:
        group *= max(1, size)
    return -(-launch.work_items // group)


def share_of(work_items: float, work_groups: float, device: Device) -> float:
    """Return the fraction of ``device`` that so many work-items in so many work-groups (0: the driver chooses) can use.

    A core runs whole work-groups: with fewer groups than cores, the rest is idle. Elsewhere, and where the driver
    chooses the work-group size, the work-items alone decide.
    """
    units = max(1, device.compute_units)
    if work_groups and device.kind == "cpu":
        filled = work_groups / units
    else:
        filled = work_items / (units * ITEMS_PER_UNIT.get(device.kind, 1))
    return min(1.0, max(filled, 1e-6))
