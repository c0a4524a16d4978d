"""``fcfs``: the kernel that came first on the fastest of the devices that are free, without knowing when others will
be.

First come, first served, as current systems have it (Device-Hopping: P. Metzger, V. Seeker, C. Fensch and M. Cole, TACO
2021, Section 6.2), without migration; ``hop`` has it. Whether waiting for a faster device would be better nobody can
tell: ``pns`` can.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from manycl.plan.options import Options
from manycl.plan.policy import Choice, Component, DeviceState, KernelByKernel, register


@register("fcfs")
class Fcfs(KernelByKernel):
    """Kernel by kernel, one queue a device; those that prefer a device wait for one of their own, and nobody behind
    them does."""

    options = Options("fcfs")

    def select(self, frontier: Sequence[Component], devices: Sequence[DeviceState], now: float) -> Choice | None:
        free = {d.index for d in devices if d.free > 0}
        for component in sorted(frontier, key=lambda c: c.nodes):
            able = [d for d in component.devices if d in free and isfinite(component.seconds[d])]
            if able:
                return Choice(component.index, min(able, key=component.seconds.__getitem__))
        return None
