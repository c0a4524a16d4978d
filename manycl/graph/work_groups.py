"""Work-groups for launches that leave their size to the driver."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from manycl.graph.graph import Launch

_MOST = {1: (256,), 2: (16, 16), 3: (8, 8, 4)}
_LEAST = 16  # work-items in a group; smaller ones would leave most of a device idle
_ASKS = re.compile(r"\bget_(local|group|num_groups|num_sub|sub_group|enqueued)|\bbarrier\b|work_group|#\s*include")


def with_work_groups(launch: Launch) -> Launch:
    """The launch with a local size, where the driver was to choose one and the kernel cannot tell which it is: any will
    do, so that parts of the launch can be named by their work-groups. Else the launch as it is."""
    if launch.local_size is not None or _ASKS.search(launch.program.source):
        return launch
    sizes = zip(launch.global_size, _MOST[len(launch.global_size)], strict=True)
    local = tuple(math.gcd(size, most) for size, most in sizes)
    return replace(launch, local_size=local) if math.prod(local) >= min(_LEAST, launch.work_items) else launch
