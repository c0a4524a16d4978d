"""What it costs that a device has a process of its own (``cpu/2#0@process`` instead of ``cpu/2#0``).

*_enqueue_us: of the thread that enqueues 2,000 small kernels in a row, a kernel; *_chain_us: until the end of all is
known, a kernel; *_known_us: from enqueueing one small kernel until its end is known. open_ms: until the process has
opened the device; *_fetch_ms: 64 MiB from the device to ordinary memory of NumPy's, which with a process goes by memory
that both share. Both kinds in turns; medians.
"""

from __future__ import annotations

import statistics
from typing import Any

import common
import numpy as np

SOURCE = "kernel void add(global uint *x, uint by) { x[get_global_id(0)] += by; }"
ITEMS, LOCAL, CHAIN, LARGE = 1024, 64, 2000, 64 << 20


class Bench:
    """An opened device, with a kernel that is ready."""

    def __init__(self, selection: str) -> None:
        from manycl.drivers.choice import open_devices
        from manycl.drivers.driver import Source

        _, (chosen,) = open_devices(selection)
        self.open_seconds = common.seconds(lambda: setattr(self, "driver", chosen.open()))
        self.driver: Any
        self.queue = self.driver.queue(timed=False)
        self.kernel = self.driver.kernel(self.driver.build(Source(SOURCE)), "add")
        self.kernel.set(0, self.driver.allocate(4 * ITEMS))
        self.kernel.set(1, (1).to_bytes(4, "little"))
        self.large, self.result = self.driver.allocate(LARGE), np.zeros(LARGE, np.uint8)

    def chain(self, count: int) -> tuple[float, float]:
        """Seconds until all is enqueued, and until its end is known."""
        driver, queue, event = self.driver, self.queue, None

        def enqueue() -> None:
            nonlocal event
            for _ in range(count):
                event = driver.launch(queue, self.kernel, (ITEMS,), (LOCAL,), None, None)
            driver.flush(queue)

        enqueued = common.seconds(enqueue)
        return enqueued, enqueued + common.seconds(lambda: driver.wait(event))

    def fetch(self) -> float:
        from manycl.drivers.driver import End
        from manycl.region import Rectangle

        def moved() -> None:
            events = self.driver.copy(self.queue, End(self.result), End(self.large), (Rectangle(0, LARGE),), ())
            self.driver.flush(self.queue)
            self.driver.wait(events[-1])

        return common.seconds(moved)


def main() -> None:
    args = common.parse(__doc__)
    benches = {"here": Bench("cpu/2#0"), "worker": Bench("cpu/2#0@process")}
    for bench in benches.values():
        bench.chain(CHAIN)
        bench.fetch()
    found: dict[str, list[float]] = {}
    for _ in range(args.repeats):
        for name, bench in benches.items():
            enqueued, ended = bench.chain(CHAIN)
            found.setdefault(f"{name}_enqueue_us", []).append(enqueued / CHAIN * 1e6)
            found.setdefault(f"{name}_chain_us", []).append(ended / CHAIN * 1e6)
            found.setdefault(f"{name}_known_us", []).append(bench.chain(1)[1] * 1e6)
            found.setdefault(f"{name}_fetch_ms", []).append(bench.fetch() * 1e3)
    figures: dict[str, Any] = {name: statistics.median(values) for name, values in found.items()}
    figures["open_ms"] = benches["worker"].open_seconds * 1e3
    for bench in benches.values():
        bench.driver.finish()
        bench.driver.release()
    common.report(args, figures)
