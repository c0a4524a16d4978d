"""How soon a device is free once it is reserved, with another process that computes on it.

free_ms: from the request until nothing of the other process runs on the device any more and the block of mc.reserve
begins, which the requesting process measures; the most of the medians for launches of about 1, 20 and 200 ms (each of
them, and the worst of all requests: free_1_ms, …, worst_ms). Requests come at random times, and not before the other
process, which had given the device back, is at work again; it has the device that is asked for (--devices), and nothing
else, and its results are compared.

The first request is told for itself (first_1_ms, …): once somebody has asked for a device that cannot be stopped, long
launches run there in packets. launch_1_ms, …: what a launch takes then. Nothing stops a work-group, of 64 work-items:
where a device runs all that a launch has at a time, as a GPU does with some 100,000 work-items, it is free when these
have ended (--items 4194304: several times as many).

alone_us: to reserve a device that nobody uses, and give it back. listening_us: what the first session of a process
spends on reservations: its socket, its thread, and a look at what is reserved.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from typing import Any, NamedTuple

import common

from manycl.api.reserve import reserve

LENGTHS = (1, 20, 200)  # ms
AT_WORK = 0.05
"""Seconds after which a process is at work again, which has to allocate a GPU's memory anew: some 10 ms."""
SETTLING = 3.0
"""Seconds after the first request, in which a process finds out how its launches may be divided."""
QUICK = (1, 20)  # ms
"""What --quick is for, that everything runs, shows with short launches and without settling as well."""
COMPUTE = """
import statistics, sys, time
import numpy as np
import manycl as mc
program = mc.Program('''__kernel void busy(__global uint *x, uint n) {
  uint v = get_global_id(0);
  for (uint i = 0; i < n; i++) v = v * 1664525u + 1013904223u;
  x[get_global_id(0)] += v | 1u;
}''')
with mc.Queue(sys.argv[1]) as queue:
    wanted, n = float(sys.argv[2]) * 1e-3, int(sys.argv[4])
    x = queue.zeros(n, np.uint32)
    def seconds(steps):
        begin = time.perf_counter()
        program.busy(queue, (n,), (64,), x, np.uint32(steps))
        queue.finish()
        return time.perf_counter() - begin
    steps = 100
    took = min([seconds(steps) for _ in range(8)])
    while took < wanted / 2:
        steps = int(steps * min(max(1.2, wanted / took), 8.0))
        took = min([seconds(steps) for _ in range(3)])
    steps = max(1, int(steps * wanted / took))
    x.set(np.zeros(n, np.uint32))
    a, c, factor, added, left = 1664525, 1013904223, 1, 0, steps  # v -> v * factor + added is all steps
    while left:  # by squaring: a fast device has billions of them
        if left & 1:
            factor, added = factor * a % 2**32, (added * a + c) % 2**32
        a, c, left = a * a % 2**32, (a + 1) * c % 2**32, left >> 1
    v = np.arange(n, dtype=np.uint32) * np.uint32(factor) + np.uint32(added)
    print("ready", flush=True)
    took, end = [], time.monotonic() + float(sys.argv[3])
    while time.monotonic() < end:
        took.append(seconds(steps))
    assert (x.get() == (v | np.uint32(1)) * np.uint32(len(took))).all()
print("right", statistics.median(took[len(took) // 2:]), flush=True)
"""


class Times(NamedTuple):
    """Of launches that take about so many ms: seconds until a device was free, the ``first`` time and then; and of a
    ``launch``, then."""

    first: float
    then: list[float]
    launch: float


def times_of(devices: str, length: int, repeats: int, items: int, settling: float) -> Times:
    """Seconds until a device is free, launches taking about so many ms, with ``settling`` after the first request."""
    lasts = repeats * (AT_WORK + 0.05 + 4e-3 * length) + settling + 1.0
    words = [sys.executable, "-W", "ignore", "-c", COMPUTE, devices, str(length), str(lasts), str(items)]
    chance = random.Random(length)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        found = []
        for number in range(repeats + 1):
            time.sleep((settling if number == 1 else AT_WORK) + chance.random() * 2e-3 * length)
            device = reserve(devices)
            begin = time.perf_counter()
            with device:
                found.append(time.perf_counter() - begin)
        word, _, launch = other.stdout.readline().partition(" ")
        assert word == "right", "the other process has computed something else"
    return Times(found[0], found[1:], float(launch))


def alone(devices: str) -> float:
    device = reserve(devices)
    begin = time.perf_counter()
    with device:
        pass
    return time.perf_counter() - begin


def listening() -> float:
    """Seconds, in a process of its own."""
    code = (
        "import time; from manycl.run.session import session; watch, spent = session.watch, []\n"
        "def timed(s): begin = time.perf_counter(); watch(s); spent.append(time.perf_counter() - begin)\n"
        "session.watch = timed; session.Session('cpu').close(); print(spent[0])"
    )
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def main() -> None:
    made = common.parser(__doc__)
    made.add_argument("--devices", default="cpu", help="what is reserved, and computed on (default: cpu)")
    made.add_argument("--items", type=int, default=1 << 14, help="work-items of a launch (default: 16384)")
    args = made.parse_args()
    lengths, settling = (QUICK, 0.2) if args.quick else (LENGTHS, SETTLING)
    each = {length: times_of(args.devices, length, args.repeats, args.items, settling) for length in lengths}
    medians: dict[str, Any] = {f"free_{length}_ms": 1e3 * statistics.median(of.then) for length, of in each.items()}
    figures = {
        "free_ms": max(medians.values()),
        **medians,
        "worst_ms": 1e3 * max(x for of in each.values() for x in of.then),
        **{f"first_{length}_ms": 1e3 * of.first for length, of in each.items()},
        **{f"launch_{length}_ms": 1e3 * of.launch for length, of in each.items()},
        "alone_us": 1e6 * common.median(lambda: alone(args.devices), args.repeats),
        "listening_us": 1e6 * common.median(listening, args.repeats),
    }
    common.report(args, figures)


if __name__ == "__main__":
    main()
