"""Host-to-device transfers on the first GPU, as shares of what pinned memory reaches by hand in the same process.

ordinary_share: from an ordinary NumPy array (``copy=False``); allocated_share: from an array that manycl allocated
(written in place through ``map``); by_hand_share: PyOpenCL's enqueue_copy from a NumPy array. Each is the median rate
of a whole run: the transfer, and a kernel of one work-item that needs it. Without a GPU there is nothing to measure:
exit 0 with the key "skipped".
"""

from __future__ import annotations

import statistics
from typing import Any

import common
import numpy as np
import pyopencl as cl

import manycl as mc
from manycl.drivers.addresses import aligned

NBYTES = 1 << 30
SOURCE = "__kernel void touch(__global uchar *x) { if (get_global_id(0) == 0) x[0] += 1; }"


def main() -> None:
    args = common.parse(__doc__)
    if not any(d.kind == "gpu" for d in mc.devices()):
        common.report(args, {"skipped": "no GPU on this machine"})
        return
    queue = mc.Queue("gpu0")
    program = mc.Program(SOURCE)
    data = np.random.default_rng(1).integers(0, 100, NBYTES, np.uint8)
    ordinary, allocated = queue.array(data, copy=False), queue.empty(NBYTES, np.uint8)

    def run(array: mc.Array) -> float:
        program.touch(queue, (1,), (1,), array)
        queue.finish()
        return NBYTES / queue.result.seconds

    def from_ordinary() -> float:
        ordinary.set(data, copy=False)
        return run(ordinary)

    def from_allocated() -> float:
        with allocated.map() as host:
            host[:64] = data[:64]
        return run(allocated)

    driver: Any = queue.session.backend.drivers[0]
    uploads = driver.queue(timed=True)
    target = cl.Buffer(driver.context, cl.mem_flags.READ_WRITE, NBYTES)
    fast = aligned(NBYTES)
    fast[:] = data
    _pin = driver.pin(fast)

    def by_hand(source: np.ndarray) -> float:
        def copy() -> None:
            cl.enqueue_copy(uploads, target, source, is_blocking=False).wait()

        return NBYTES / common.seconds(copy)

    with allocated.map() as host:
        host[:] = data
    kinds = {
        "pinned": lambda: by_hand(fast),
        "by_hand": lambda: by_hand(data),
        "ordinary": from_ordinary,
        "allocated": from_allocated,
    }
    rates: dict[str, list[float]] = {k: [] for k in kinds}
    for turn in range(args.repeats + 1):
        for kind, measure in kinds.items():
            rate = measure()
            if turn:  # the first turn allocates
                rates[kind].append(rate)
    assert ordinary.get()[1:].tobytes() == data[1:].tobytes()
    medians = {k: statistics.median(v) for k, v in rates.items()}
    common.report(
        args,
        {
            "ordinary_share": medians["ordinary"] / medians["pinned"],
            "allocated_share": medians["allocated"] / medians["pinned"],
            "by_hand_share": medians["by_hand"] / medians["pinned"],
            **{f"{k}_gb_per_s": v / 1e9 for k, v in medians.items()},
            "bytes": NBYTES,
            "device": driver.device.model,
        },
    )
