"""``heft``: the ready kernel of highest rank on the device where it ends first (PySchedCL, Section 5, Experiment 3).
This is the dynamic form of HEFT: the earliest finish time on a device is the end of what runs there now plus the
kernel's own time. If that device is still busy, the kernel waits for it, and so do those behind it."""

from __future__ import annotations

from collections.abc import Sequence

from manycl.plan.options import Options
from manycl.plan.policy import Choice, Component, DeviceState, KernelByKernel, register


@register("heft")
class Heft(KernelByKernel):
    """Dynamic HEFT. Kernel by kernel, one queue a device; the first of devices that are equal."""

    options = Options("heft")

    def select(self, frontier: Sequence[Component], devices: Sequence[DeviceState], now: float) -> Choice | None:
        first = frontier[0]
        best = min(first.devices, key=lambda d: max(now, devices[d].ready_at) + first.seconds[d])
        return Choice(first.index, best) if devices[best].free > 0 else None
