"""``eager``: the ready kernel of highest rank on any free device, whatever it prefers (PySchedCL, 5, Experiment 2)."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from manycl.plan.options import Options
from manycl.plan.policy import Choice, Component, DeviceState, KernelByKernel, register


@register("eager")
class Eager(KernelByKernel):
    """The eager policy. Kernel by kernel, one queue a device; the first free device that can run the kernel, without
    regard to speed or preference."""

    options = Options("eager")

    def select(self, frontier: Sequence[Component], devices: Sequence[DeviceState], now: float) -> Choice | None:
        first = frontier[0]
        free = next((d for d in devices if d.free > 0 and isfinite(first.seconds[d.index])), None)
        return Choice(first.index, free.index) if free is not None else None
