"""How long REPARA's kernels take on its machine, and what profiles tell of that.

The paper gives no times. These rates are chosen so that its tables follow where one model of the machine can make them
follow (``repara.toml`` has what is implied); where it speaks of no numbers they are guesses within the devices' peaks,
with the order that it tells: the accelerator first in GEMM and bitonic sort, for their vectors, else the GPU for much
data.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import median

from manycl.graph.graph import Launch
from manycl.machine import HOST, DeviceIndex, Machine
from manycl.model.counts import buffer_bytes
from manycl.model.estimates import Estimates
from manycl.model.interpolation import interpolate
from manycl_bench.repara_graphs import Benchmark

CACHES = 30 << 20
"""Bytes of the last cache of a Xeon E5-2695 (Intel's data sheet)."""
IN_CACHE = {"stencil": 3.9}
"""How many times faster the CPU is where all data fit into its cache: what is needed for all of 1024 x 1024 to be best
on the CPU, and 12/16 of 2048 x 2048 on the GPU (Table 2)."""
RATES = {  # operations (``Benchmark.work``) a second on the CPU, GPU and accelerator
    "stencil": (2.45e8, 3e10, 1e10),  # Table 2: 4/16 and 12/16 end together, transfers with the GPU's
    "multiply": (1.5e9, 7e7, 7e7),  # Table 3: 1/16 on the GPU takes longer than all on the CPU
    "unite": (1e9, 5e10, 2e10),
    "compare": (1e9, 5e10, 2e10),
    "lud_corner": (1e9, 2e8, 5e7),  # a single work-item
    "lud_top": (2e10, 2e11, 1e11),
    "lud_left": (2e10, 2e11, 1e11),
    "lud_rest": (2e10, 2e11, 1e11),
    "gemm": (4e10, 1.5e11, 4e11),
    "monte_carlo": (5e9, 6e10, 3e10),
    "median_filter": (5e8, 1e10, 5e9),
    "bitonic": (5e8, 1e10, 4e10),
}
CHEMISTRY = (1.7e10, 3e11, 1e11)
"""S3D's kernels: logarithms and exponentials most of all; by these rates memory bounds four of them on the GPU."""
NOISE = 0.03
"""Of a profile: the standard deviation of its logarithm."""


class _Transfers(Estimates):
    def __init__(self, machine: Machine) -> None:
        self._links = {(x.source, x.target): (x.latency, x.bandwidth) for x in machine.links}

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        if source == target:
            return 0.0
        if (source, target) not in self._links:
            return self.transfer(nbytes, source, HOST) + self.transfer(nbytes, HOST, target)
        latency, bandwidth = self._links[source, target]
        return latency + nbytes / bandwidth


class Real(_Transfers):
    """How long everything really takes: a launch's overhead, and the longer of its work at the kernel's rate and its
    bytes at the bandwidth of the device's memory."""

    def __init__(self, of: Benchmark, machine: Machine) -> None:
        super().__init__(machine)
        self._of, self._machine = of, machine

    def part(self, node: int, device: DeviceIndex, part: float) -> float:
        """Seconds of a part of a node's work (1: all)."""
        kernel = self._of.kernels[node]
        where = self._machine.devices[device]
        rate = RATES.get(kernel, CHEMISTRY)[("cpu", "gpu", "accelerator").index(where.kind)]
        if self._is_cached(device):
            rate *= IN_CACHE.get(kernel, 1.0)
        carried = self.traffic(node, device) / where.bandwidth
        return where.launch_overhead + part * max(self._of.work[node] / rate, carried)

    def _is_cached(self, device: DeviceIndex) -> bool:
        return self._machine.devices[device].kind == "cpu" and self._of.nbytes <= CACHES

    def traffic(self, node: int, device: DeviceIndex) -> float:
        """Return the bytes of all buffers that a launch reads and of all that it writes: the least that it moves."""
        task = self._of.graph.nodes[node]
        if self._is_cached(device) or not isinstance(task, Launch):
            return 0.0
        return float(buffer_bytes(self._of.graph.buffers, task))

    def launch(self, node: int, device: DeviceIndex) -> float:
        return self.part(node, device, 1.0)

    def groups(self, node: int, device: DeviceIndex, count: int, of: int) -> float:
        return self.part(node, device, count / of)


class Profiled(_Transfers):
    """What the paper's interpolation says (Section 2.2), from profiles of ``sizes`` and, where a kernel may be
    divided, of 1/4 to 4/4 of each: at a size that was profiled between its fractions, at others each fraction between
    the sizes. Profiles are noisy; the same ``seed`` gives the same."""

    def __init__(
        self, of: Benchmark, machine: Machine, sizes: Sequence[int], make: Callable[[int], Benchmark], seed: int = 0
    ) -> None:
        super().__init__(machine)
        self._of = of
        seen = [make(n) for n in sizes]
        self._points: dict[tuple[int, int], list[tuple[float, float]]] = {}
        for node, work in enumerate(of.work):
            if not of.kernels[node]:
                continue  # the host's
            fractions = (0.25, 0.5, 0.75, 1.0) if node in of.splits else (1.0,)
            for d in machine.indices:
                chance = random.Random(f"{seed} {of.name} {node} {d}")
                profiles = {
                    (b.size, part): Real(b, machine).part(node, d, part) * chance.lognormvariate(0.0, NOISE)
                    for b in seen
                    for part in fractions
                }
                self._points[node, d] = [
                    (part, _at_size(of.size, work, part, [(b.size, b.work[node]) for b in seen], profiles))
                    for part in fractions
                ]

    def launch(self, node: int, device: DeviceIndex) -> float:
        return self._points[node, device][-1][1]

    def groups(self, node: int, device: DeviceIndex, count: int, of: int) -> float:
        found = interpolate(self._points[node, device])
        assert found is not None
        return found.at(count / of)


def _at_size(
    size: int, work: float, part: float, seen: Sequence[tuple[int, float]], profiles: dict[tuple[int, float], float]
) -> float:
    if (size, part) in profiles:
        return profiles[size, part]
    if len({w for _, w in seen}) == 1:
        return median(profiles[n, part] for n, _ in seen)  # its work does not depend on the size
    found = interpolate([(w, profiles[n, part]) for n, w in seen])
    assert found is not None
    return found.at(work)
