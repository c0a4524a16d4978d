"""How much of a device a kernel can use alone: the one simple model of kernels that run at the same time.

A kernel with few work-items leaves part of a device idle. Its *share* is the fraction of the device's
throughput that it can use alone, in (0, 1]. Kernels in different queues of a device run at full speed
together as long as their shares add up to at most 1; beyond that all slow down alike. Planner and simulator
both go by this.
"""

from __future__ import annotations

from manycl.graph.graph import Launch
from manycl.machine import Device

ITEMS_PER_UNIT = {"cpu": 1, "gpu": 2048, "accelerator": 2048}
"""Work-items that fill one compute unit. GPUs: the threads that may be resident on one (2048 on most of
NVIDIA's data-centre parts; fewer are needed where each has much to do, so small kernels may share a GPU less
than this says)."""


def share(launch: Launch, device: Device) -> float:
    """Fraction of ``device`` that ``launch`` can use alone.

    Work-groups cannot be divided between compute units: with fewer groups than units, the rest is idle. Where
    the driver chooses the work-group size, the work-items alone decide.
    """
    items = launch.work_items
    units = max(1, device.compute_units)
    filled = items / (units * ITEMS_PER_UNIT.get(device.kind, 1))
    if launch.local_size is not None and device.kind == "cpu":
        group = 1
        for size in launch.local_size:
            group *= max(1, size)
        filled = -(-items // group) / units
    return min(1.0, max(filled, 1e-6))
