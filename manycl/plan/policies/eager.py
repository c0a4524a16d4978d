"""``eager``: the ready kernel of highest rank on any free device, whatever it prefers (PySchedCL, Section 5,
Experiment 2)."""

from __future__ import annotations

from collections.abc import Sequence

from manycl.plan.policy import Choice, Component, DeviceState, KernelByKernel, register


@register("eager")
class Eager(KernelByKernel):
    """Kernel by kernel, one queue a device; the first free device, without regard to speed or preference."""

    def select(self, frontier: Sequence[Component], devices: Sequence[DeviceState], now: float) -> Choice | None:
        free = next((d for d in devices if d.free > 0), None)
        return Choice(frontier[0].index, free.index) if free is not None else None
