"""``fcfs``: the kernel that came first, on the fastest of the free devices, without knowledge of when others will be
free. First come, first served, as current systems have it (Device-Hopping: P. Metzger, V. Seeker, C. Fensch and M.
Cole, TACO 2021, Section 6.2), without migration; ``hop`` has migration. It does not know whether waiting for a faster
device would be better; ``pns`` does."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from manycl.plan.options import Options
from manycl.plan.policy import Choice, Component, DeviceState, KernelByKernel, register


@register("fcfs")
class Fcfs(KernelByKernel):
    """First come, first served. Kernel by kernel, one queue a device; kernels that prefer a device wait for such a
    device, and no kernel behind waits for them."""

    options = Options("fcfs")

    def select(self, frontier: Sequence[Component], devices: Sequence[DeviceState], now: float) -> Choice | None:
        free = {d.index for d in devices if d.free > 0}
        for component in sorted(frontier, key=lambda c: c.nodes):
            able = [d for d in component.devices if d in free and isfinite(component.seconds[d])]
            if able:
                return Choice(component.index, min(able, key=component.seconds.__getitem__))
        return None
