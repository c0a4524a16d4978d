"""Whether runs go on without a device whose process is killed, and how much longer they take than they must.

An ordinary loop (a stencil, a change in place, sums of integers by atomic operations, a copy back) runs on two worker
devices, halves of the processor, as it is enqueued and as a prepared graph; with policies auto, mkmd and balance; in
the host's memory and with memories of the devices' own; from arrays that the host has just given, or that the devices
have left. At a random time of each run the process of one device is killed (SIGKILL). The device is admitted again
afterwards, and runs undisturbed before the next loss.

losses: processes that were killed while a run was under way. right: runs that then ended with the bits of one device
alone. clear: runs that ended with an error which names the array that was lost with the device. other: those that
ended with another error. wrong: with other bits. hung: nothing came for --patience seconds. over_oracle_median and
over_oracle_worst: of the runs that were right, the time of each divided by that of an oracle: it does what was done
until the loss as fast as both devices, and from the moment of the loss all that is left as fast as the one that is
left, t + (1 - t / both) * alone; it needs no time to notice, does nothing twice, and plans nothing. both: the median of
the undisturbed runs around the loss; alone: of the same runs on the one device, in turns with them.
"""

from __future__ import annotations

import json
import os
import random
import re
import selectors
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import common
import numpy as np

SOURCE = """
kernel void blur(global const float *x, global float *y) {
    int i = get_global_id(0), n = get_global_size(0);
    y[i] = 0.25f * x[max(i - 1, 0)] + 0.5f * x[i] + 0.25f * x[min(i + 1, n - 1)];
}
kernel void change(global float *y, int steps) {
    float v = y[get_global_id(0)];
    for (int k = 0; k < steps; k++) v = v * 1.0000001f + 0.25f;
    y[get_global_id(0)] = v;
}
kernel void count(global const float *y, global int *sums) {
    atomic_add(&sums[((int)fabs(y[get_global_id(0)])) & 15], 1);
}
kernel void take(global const float *y, global float *x) { x[get_global_id(0)] = y[get_global_id(0)] * 0.5f; }
"""
ITEMS, LOCAL, SUMS = 1 << 15, 64, 16
DEVICES = "cpu/2@process"
SHAPES, POLICIES, MEMORIES = ("enqueued", "prepared"), ("auto", "mkmd", "balance"), ("shared", "own")
SETTLED = 6  # runs until a plan is kept
CHILD = "--one"


class Case(NamedTuple):
    shape: str
    policy: str
    memory: str


class Loop:
    """What runs, on a queue."""

    def __init__(self, devices: str, policy: str, shape: str, steps: int, turns: int) -> None:
        import manycl as mc

        self.queue = mc.Queue(devices, policy=policy)
        self.program = mc.Program(SOURCE)
        self.steps, self.turns = steps, turns
        self.x, self.y = (self.queue.zeros(ITEMS, np.float32, name=name) for name in "xy")
        self.sums = self.queue.zeros(SUMS, np.int32, name="sums")
        self.graph = None
        if shape == "prepared":
            with self.queue.prepare() as self.graph:
                self.enqueue(turns)

    def enqueue(self, turns: int) -> None:
        p, q, size, local = self.program, self.queue, (ITEMS,), (LOCAL,)
        for _ in range(turns):
            p.blur(q, size, local, self.x, self.y)
            p.change(q, size, local, self.y, np.int32(self.steps))
            p.count(q, size, local, self.y, self.sums)
            p.take(q, size, local, self.y, self.x)

    def begin(self, carried: bool) -> None:
        """Arrays are what the host has given, or what devices have made of that."""
        self.x.set(np.linspace(0, 100, ITEMS, dtype=np.float32))
        self.y.set(np.zeros(ITEMS, np.float32))
        self.sums.set(np.zeros(SUMS, np.int32))
        if carried:
            self.enqueue(1)
            self.queue.finish()

    def run(self) -> tuple[float, Any]:
        """Seconds, and what came out."""
        began = time.perf_counter()
        if self.graph is not None:
            self.graph.run()
        else:
            self.enqueue(self.turns)
        found = self.x.get().copy(), self.sums.get().copy()
        return time.perf_counter() - began, found


def is_same(one: Any, other: Any) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def steps_for(ms: float, turns: int) -> int:
    """So that a run of one device takes about twice as long."""
    loop, steps = Loop("cpu/2#0", "in_order", "enqueued", 50, turns), 50
    for _ in range(4):
        loop.steps = steps
        loop.begin(False)
        took = min(loop.run()[0] for _ in range(2))
        steps = max(1, int(steps * min(max(2e-3 * ms / took, 0.1), 20.0)))
    loop.queue.close()
    return steps


def losses(case: Case, count: int, steps: int, turns: int, seed: int) -> Iterator[dict[str, Any]]:
    """Of each loss, what became of it."""
    from manycl.run.recovery.health import examine

    os.environ["MANYCL_ZERO_COPY"] = "1" if case.memory == "shared" else "0"
    r = random.Random(seed)
    alone = Loop(DEVICES.replace("@", "#0@"), "in_order", "enqueued", steps, turns)
    both = Loop(DEVICES, case.policy, case.shape, steps, turns)
    expected = []
    for carried in (False, True):
        alone.begin(carried)
        expected.append(alone.run()[1])
    done = 0
    while done < count:
        times: dict[str, list[float]] = {"alone": [], "both": []}
        carried = r.random() < 0.5
        for turn in range(SETTLED):
            both.begin(carried)
            seconds, found = both.run()
            assert is_same(found, expected[carried]), "a run that nobody has disturbed is wrong"
            if turn >= SETTLED - 3:
                times["both"].append(seconds)
                alone.begin(carried)
                times["alone"].append(alone.run()[0])
        usual = {name: statistics.median(found) for name, found in times.items()}
        when, victim = r.random() * usual["both"], r.randrange(2)
        both.begin(carried)
        driver: Any = both.queue.session.backend.drivers[victim]
        outcome = one_loss(both, expected[carried], when, driver.pid)
        session = both.queue.session
        with session.devices.lock:
            session.devices.end_stream()
            examine(session.devices, session.directory)  # it may have been killed when it had nothing to do any more
        for name in list(both.queue.excluded):
            both.queue.admit(name)
        if outcome is None:
            continue  # the run was over before
        oracle = when + (1 - when / usual["both"]) * usual["alone"]
        done += 1
        yield {**outcome, **usual, "when": when, "over": outcome["seconds"] / oracle, "carried": carried}
    for loop in (alone, both):
        loop.queue.close()


def one_loss(loop: Loop, expected: Any, when: float, pid: int) -> dict[str, Any] | None:
    """A run during which a process is killed; None where the run was over first."""
    from manycl.errors import ManyclError

    killed: list[float] = []

    def kill(until: float) -> None:
        time.sleep(max(0.0, until - time.perf_counter()))
        os.kill(pid, signal.SIGKILL)
        killed.append(time.perf_counter())

    began = time.perf_counter()
    killer = threading.Thread(target=kill, args=(began + when,))
    killer.start()
    said = ""
    try:
        _, found = loop.run()
        what = "right" if is_same(found, expected) else "wrong"
    except ManyclError as error:
        said = str(error)
        named = re.search(r"without: (.*?):|(\w+) cannot be brought from|contents of (\w+) are unknown", said)
        what = "clear" if named is not None and {"x", "y", "sums"} & set(re.findall(r"\w+", named[0])) else "other"
    ended = time.perf_counter()
    killer.join()
    if ended <= killed[0]:
        return None
    return {"what": what, "seconds": ended - began, "said": said}


def child(words: list[str]) -> None:
    case, count, steps, turns, seed = Case(*words[:3]), *map(int, words[3:7])
    import warnings

    warnings.simplefilter("ignore", RuntimeWarning)
    for one in losses(case, count, steps, turns, seed):
        print(json.dumps({"case": "/".join(case), **one}), flush=True)


def heard(words: list[str], patience: float, hear: Callable[[dict[str, Any]], None]) -> bool:
    """Run a child; whether it came to its end."""
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process, selectors.DefaultSelector() as waiting:
        assert process.stdout is not None
        waiting.register(process.stdout, selectors.EVENT_READ)
        while waiting.select(patience):
            line = process.stdout.readline()
            if not line:
                if process.wait():
                    raise SystemExit(f"{' '.join(words)} has ended with status {process.returncode}")
                return True
            hear(json.loads(line))
        process.kill()
        return False


def main() -> None:
    made = common.parser(__doc__)
    made.add_argument("--losses", type=int, help="how many (default: 15 times --repeats)")
    made.add_argument("--ms", type=float, default=300.0, help="what an undisturbed run takes about (default: 300)")
    made.add_argument("--turns", type=int, default=8, help="of the loop in a run (default: 8)")
    made.add_argument("--only", default="", help="cases: shape, policy or memory, several with commas")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--patience", type=float, default=120.0, help="seconds without a word (default: 120)")
    args = made.parse_args()
    wanted = {word for word in args.only.split(",") if word}
    cases = [Case(*one) for one in product(SHAPES, POLICIES, MEMORIES) if wanted <= set(one)]
    total = args.losses or 15 * args.repeats
    steps = steps_for(args.ms, args.turns)
    found: list[dict[str, Any]] = []
    hung = 0
    for n, case in enumerate(cases):
        count = total * (n + 1) // len(cases) - total * n // len(cases)
        if not count:
            continue
        words = [sys.executable, __file__, CHILD, *case, *map(str, (count, steps, args.turns, args.seed + n))]
        before = len(found)
        hung += not heard(words, args.patience, found.append)
        mine = found[before:]
        common.progress(f"{'/'.join(case):24} {[(one['what'], round(one['over'], 2)) for one in mine]}")
        for one in mine:
            if one["what"] == "other":
                common.progress(one["said"])
    over = [one["over"] for one in found if one["what"] == "right"]
    kinds = [one["what"] for one in found]
    figures = {
        "losses": len(found) + hung,
        **{kind: kinds.count(kind) for kind in ("right", "clear", "other", "wrong")},
        "hung": hung,
        "over_oracle_median": statistics.median(over) if over else 0.0,
        "over_oracle_worst": max(over, default=0.0),
        "both_ms": 1e3 * statistics.median(one["both"] for one in found),
        "alone_ms": 1e3 * statistics.median(one["alone"] for one in found),
    }
    common.report(args, figures, {"runs": found})


if __name__ == "__main__":
    if CHILD in sys.argv[1:2]:
        child(sys.argv[2:])
    else:
        main()
