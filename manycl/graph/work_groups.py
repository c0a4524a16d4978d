"""Work-groups for launches that leave their size to the driver."""

from __future__ import annotations

import math
from dataclasses import replace

from manycl.graph.graph import BufferArg, Launch

_MOST = {1: (256,), 2: (16, 16), 3: (8, 8, 4)}
LEAST = 16
"""Work-items in a group; smaller ones would leave most of a device idle."""


def with_work_groups(launch: Launch) -> Launch:
    """The launch with a local size, where the driver was to choose one and the kernel cannot tell which it is: any will
    do, so that parts of the launch can be named by their work-groups. Else the launch as it is. Where no size of LEAST
    work-items divides the NDRange, they are smaller: parts are named by them, but run with whatever the driver chooses
    (:func:`chosen_by_driver`)."""
    if launch.local_size is not None or seen_groups(launch):
        return launch
    sizes = list(zip(launch.global_size, _MOST[len(launch.global_size)], strict=True))
    local = tuple(math.gcd(size, most) for size, most in sizes)
    if math.prod(local) < min(LEAST, launch.work_items):
        local = tuple(_divisor(size, most) for size, most in sizes)
    return replace(launch, local_size=local)


def seen_groups(launch: Launch) -> str:
    """By what a launch may tell how its work-items are grouped; empty: by nothing."""
    facts = launch.kernel
    if facts.sees_groups or not facts.sees_groups_shared:
        return facts.sees_groups
    given = [arg.key if isinstance(arg, BufferArg) else None for arg in launch.args]
    written = [key for key, fact in zip(given, facts.arguments, strict=True) if fact.writes and key is not None]
    return facts.sees_groups_shared if any(given.count(key) > 1 for key in written) else ""


def ungathered(launch: Launch) -> Launch:
    """A launch with work-groups as of any other, where its kernel's barriers order nothing as its buffers are: a device
    that only knows the kernel may take as many work-items as it can for one group."""
    if launch.local_size is None and launch.kernel.sees_groups_shared and not chosen_by_driver(launch):
        return with_work_groups(launch)
    return launch


def chosen_by_driver(launch: Launch) -> bool:
    """Return whether the driver is to choose the work-groups of the parts of a launch: it was to choose those of the
    launch, and the ones by which the parts are named are too small to be run."""
    local = with_work_groups(launch).local_size
    return launch.local_size is None and (local is None or math.prod(local) < min(LEAST, launch.work_items))


def why_none(launch: Launch) -> str:
    """Why work-groups are left to the driver, of a launch that has none."""
    return f"its local size is left to the driver, and the kernel may tell which it is: {seen_groups(launch)}"


def _divisor(size: int, most: int) -> int:
    """The largest divisor of a size up to the most."""
    return next(d for d in range(min(size, most), 0, -1) if size % d == 0)
