"""The runtime of native devices alone: what its commands cost, with kernels written in C that do nearly nothing.

enqueue_us: a launch of a chain of 2,000, in the program's thread; chain_us: such a launch from the first call until all
are complete. little_us: one of one work-group, from the call until a thread that waits goes on, launched as soon as the
one before is complete; rested_us: the same a millisecond later, when all threads sleep. range_us: what it costs to run
one of 64 ranges of a kernel that take little time, each enqueued apart. done_us: to ask whether a command is complete.
spread_us: a launch of 1,024 work-groups of 100 ns and more, enqueue to end, by all threads; spread_speedup: against one
thread. copy_gb_per_s: of 256 MiB. A C compiler has to be here; without one there is the key "skipped".
"""

from __future__ import annotations

import ctypes
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import common
import numpy as np

from manycl.drivers.driver import DriverError, End, Source
from manycl.drivers.native.compiler.compiled import NativeEntry, Parameter
from manycl.drivers.native.compiler.library import RUNTIME, compile_shared, compilers
from manycl.drivers.native.devices import found_with
from manycl.drivers.native.driver import NativeDriver
from manycl.machine import Device
from manycl.region import Rectangle

CHAIN, RANGES, GROUPS, NS, NBYTES = 2000, 64, 1024, 100, 1 << 28
CODE = """
#include "device.h"
#define KERNEL(name) __attribute__((visibility("default"))) void name( \\
    const void *const *args, const struct manycl_range *range, size_t first, size_t end, char *frame)

KERNEL(count) {
    (void)range, (void)frame;
    for (size_t group = first; group < end; group++) ++(*(u64 *const *)args[0])[group];
}
KERNEL(last) {
    (void)range, (void)frame;
    for (size_t group = first; group < end; group++) {
        for (u64 since = now(); now() - since < *(const u64 *)args[1];) relax();
        ++(*(u64 *const *)args[0])[group];
    }
}
"""


class Kernel(NamedTuple):
    name: str
    address: int
    parameters: tuple[Parameter, ...]
    most_items: int = 4096
    refused: DriverError | None = None
    counted: tuple[int, ...] = ()

    def entry(self, local_size: tuple[int, int, int], dims: int, wide: bool = False) -> NativeEntry:
        return NativeEntry(self.address, 0)

    def choose_local(self, global_size: tuple[int, ...]) -> tuple[int, ...]:
        return (1,) * len(global_size)


class Program:
    """The kernels of CODE."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "kernels.c", Path(folder) / "kernels.so"
            source.write_text(CODE)
            compile_shared(compilers()[0], source, target, (f"-I{RUNTIME.parent}", "-Wno-unused-function"))
            self._library = ctypes.CDLL(str(target))

    def kernel(self, name: str) -> Kernel:
        address = ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value or 0
        memory = Parameter("memory")
        return Kernel(name, address, (memory, Parameter("value", 8)) if name == "last" else (memory,))


@contextmanager
def opened(units: int = 0) -> Iterator[NativeDriver]:
    """So many cores of the processor (0: all)."""

    def compile_source(source: Source, device: Device) -> Program:
        return Program()

    found = found_with(compile_source)
    handle = found.handle.divide((units,) * (found.device.compute_units // units))[0] if units else found.handle
    driver = handle.open(found.device)
    assert isinstance(driver, NativeDriver)
    yield driver
    driver.finish()
    driver.release()


class Bench:
    """A driver with a queue, memory of GROUPS counters, and a kernel that counts."""

    def __init__(self, driver: NativeDriver) -> None:
        self.driver, self.queue = driver, driver.queue(timed=True)
        self.counts = np.zeros(GROUPS, np.uint64)
        self.wanted = 0
        self.program = driver.build(Source(""))
        self.memory = driver.allocate(self.counts.nbytes, self.counts.view(np.uint8))
        self.count = driver.kernel(self.program, "count")
        self.count.set(0, self.memory)

    def launch(self, kernel: Any, groups: int) -> Any:
        self.wanted += groups
        return self.driver.launch(self.queue, kernel, (groups,), (1,), None, None)

    def chain(self) -> tuple[float, float]:
        """Seconds of the calls, and until the end, for each launch."""
        start = time.perf_counter()
        for _ in range(CHAIN):
            event = self.launch(self.count, 1)
        given = time.perf_counter()
        self.driver.wait(event)
        return (given - start) / CHAIN, (time.perf_counter() - start) / CHAIN

    def one(self, groups: int, rest: float, repeats: int, kernel: Any = None) -> float:
        """Seconds from the call to the end, the median."""
        found = []
        for _ in range(repeats):
            start = time.perf_counter()
            self.driver.wait(self.launch(kernel or self.count, groups))
            found.append(time.perf_counter() - start)
            if rest:
                time.sleep(rest)
        return statistics.median(found)

    def ranges(self) -> float:
        """Seconds of each of RANGES parts, beyond what one launch of them all takes."""
        groups = GROUPS // RANGES
        for _ in range(20):
            self.driver.wait(self.launch(self.count, GROUPS))
        whole = common.median(lambda: common.seconds(lambda: self.driver.wait(self.launch(self.count, GROUPS))), 50)

        def apart() -> None:
            for _ in range(RANGES):
                event = self.launch(self.count, groups)
            self.driver.wait(event)

        return max(0.0, common.median(lambda: common.seconds(apart), 50) - whole) / RANGES

    def spread(self) -> float:
        """Seconds of a launch that all threads share."""
        kernel = self.driver.kernel(self.program, "last")
        kernel.set(0, self.memory)
        kernel.set(1, NS.to_bytes(8, "little"))
        return self.one(GROUPS, 0.0, 100, kernel)

    def copied(self) -> float:
        """Bytes a second."""
        source, target = np.ones(NBYTES, np.uint8), np.zeros(NBYTES, np.uint8)

        def copy() -> None:
            ends = End(target), End(source)
            self.driver.wait(self.driver.copy(self.queue, *ends, (Rectangle(0, NBYTES),), ())[-1])

        copy()
        found = NBYTES / common.median(lambda: common.seconds(copy), 5)
        assert (target == source).all()
        return found


def measure(driver: NativeDriver, repeats: int) -> dict[str, Any]:
    bench, units = Bench(driver), driver.device.compute_units
    for _ in range(3):
        bench.chain()
    chains = [bench.chain() for _ in range(repeats)]

    def least(measured: Callable[[], float]) -> float:
        return min(measured() for _ in range(repeats))

    with opened(1) as single:
        one = Bench(single)
        alone = least(one.spread)
        assert one.counts.sum() == one.wanted
    spread = least(bench.spread)
    driver.wait(event := bench.launch(bench.count, 1))
    figures = {
        "threads": units,
        "enqueue_us": 1e6 * min(c[0] for c in chains),
        "chain_us": 1e6 * min(c[1] for c in chains),
        "little_us": 1e6 * least(lambda: bench.one(1, 0.0, 500)),
        "rested_us": 1e6 * least(lambda: bench.one(1, 1e-3, 100)),
        "range_us": 1e6 * least(bench.ranges),
        "done_us": 1e6 * least(lambda: common.seconds(lambda: [driver.done(event) for _ in range(1000)])) / 1000,
        "spread_us": 1e6 * spread,
        "spread_speedup": alone / spread,
        "copy_gb_per_s": 1e-9 * max(bench.copied() for _ in range(min(repeats, 3))),
    }
    assert bench.counts.sum() == bench.wanted
    return figures


def main() -> None:
    args = common.parse(__doc__)
    try:
        with opened() as driver:
            figures = measure(driver, args.repeats)
    except DriverError as error:
        figures = {"skipped": error.message}
    common.report(args, figures)
