"""Ctrl-C at random moments of random runs, once to three times: afterwards every array is right or said to be lost, and
the next run is right.

    python -m tests.run.faults.interrupts [COUNT [FIRST SEED [KINDS]]]

interrupts so many runs of each kind, or of so many kinds; the tests a few.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import numpy as np

import manycl as mc
from manycl.errors import ResultError
from manycl.plan.plan import Assignment, Plan
from manycl.run.session.session import Session
from tests.run.faults.nth_call import GROUP, Bits, Case, N, Step, enqueue, environment, reckon

ARRAYS = 4
POLICIES = ("eager", "heft", "mkmd", "balance", "auto", "clustering")
ALONE = ("auto", "in_order", "heft")  # with the first two, what is enqueued is given to the device at once
MEMORIES = {
    "shared": Case("shared", devices="native/2"),
    "opencl shared": Case("opencl shared"),
    "own": Case("own", devices="native/2", own=True),
    "staged": Case("staged", own=True, staged=True),
    "alone": Case("alone", devices="native/2#0"),
    "alone, own": Case("alone, own", devices="opencl/2#0", own=True),
}
KINDS = tuple(
    kind
    for kind in itertools.product(MEMORIES, ("plain", "prepared", "divided"), (1, 2, 3))
    if not ("alone" in kind[0] and kind[1] == "divided")
)
"""Memories, how it runs, presses."""


def some_steps(r: Random, divided: bool) -> list[Step]:
    kinds = ["inc", "mix", "sten"] if divided else ["inc", "mix", "sten", "host"]

    def arrays() -> tuple[int, int, int]:
        a, b, c = r.sample(range(ARRAYS), 3)
        return a, b, c

    return [(r.choice(kinds), arrays(), r.randrange(1, 1 << 32)) for _ in range(r.randint(3, 12))]


def halves(queue: mc.Queue, steps: list[Step]) -> Plan:
    """Every launch half on each device."""
    half = N // GROUP // 2
    ranges = [Assignment(n, d, 0, 0.0, 0.0, 0, d * half, half) for n in range(len(steps)) for d in (0, 1)]
    return Plan(tuple(ranges), "halves", queue.devices, 0.0)


class Presses(threading.Thread):
    """Ctrl-C, so many times, from a moment on."""

    def __init__(self, times: int, first: float) -> None:
        super().__init__()
        self._times, self._first = times, first
        self._over = threading.Event()  # (a join that is interrupted may take the thread for stopped)

    def run(self) -> None:
        time.sleep(self._first)
        for _ in range(self._times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.001)
        self._over.set()

    def wait(self) -> None:
        """Until no press comes any more."""
        while True:
            with suppress(KeyboardInterrupt):
                self._over.wait()
                time.sleep(0.001)
                return


class Torture:
    """Of one kind: a queue whose runs are interrupted, and what its arrays may hold."""

    def __init__(self, memories: str, how: str, presses: int, seed: int) -> None:
        self.r = Random(f"{memories} {how} {presses} {seed}")
        self.how, self.presses = how, presses
        self.session = Session(MEMORIES[memories].devices)
        self.policies = POLICIES if len(self.session.machine.devices) > 1 else ALONE
        self.queue = mc.Queue(session=self.session)
        self.values: list[Bits] = [np.arange(N, dtype=np.uint32) * np.uint32(k + 3) for k in range(ARRAYS)]
        self.arrays = [self.queue.array(value) for value in self.values]
        self.took = 0.01  # seconds of a run

    def run(self, steps: list[Step]) -> None:
        self.queue.policy = halves(self.queue, steps) if self.how == "divided" else self.r.choice(self.policies)
        if self.how == "plain":
            self.enqueue(steps)
            self.queue.finish()
        else:
            with self.queue.prepare() as prepared:
                self.enqueue(steps)
            prepared.run()

    def enqueue(self, steps: list[Step]) -> None:
        for step in steps:
            enqueue(self.queue, step, self.arrays)

    def turn(self) -> bool:
        """Interrupt a run, look, and run once more; whether it was interrupted."""
        steps, versions = some_steps(self.r, self.how == "divided"), [[value] for value in self.values]
        after = list(self.values)
        for step in steps:
            reckon(step, after)
            for mine, value in zip(versions, after, strict=True):
                if value is not mine[-1]:
                    mine.append(value)
        begun, ended = time.perf_counter(), False
        presses = Presses(self.presses, self.r.random() * self.took)
        try:
            with suppress(KeyboardInterrupt):
                presses.start()
                self.run(steps)
                ended = True
            presses.wait()
        except KeyboardInterrupt:
            presses.wait()
        if ended:
            self.took = 0.8 * self.took + 0.2 * (time.perf_counter() - begun)
        self.queue.close()  # what was interrupted before it ran does not run: the session stays open
        for k, (array, mine) in enumerate(zip(self.arrays, versions, strict=True)):
            try:
                got = array.get()
            except ResultError:
                assert not ended, f"the run ended well, and array {k} is lost"
                array.set(self.values[k])
                continue
            right = (got == mine[-1]).all() if ended else any((got == value).all() for value in mine)
            assert right, f"array {k} holds what nobody wrote ({'ended well' if ended else 'interrupted'})"
            self.values[k] = got
        steps = some_steps(self.r, self.how == "divided")
        for step in steps:
            reckon(step, self.values)
        self.run(steps)
        for k, (array, value) in enumerate(zip(self.arrays, self.values, strict=True)):
            assert (array.get() == value).all(), f"array {k} is wrong in the run after an interrupt"
        return not ended


def tortured(memories: str, how: str, presses: int, seed: int, count: int) -> Iterator[bool]:
    """So many turns; raises AssertionError where something is wrong."""
    with environment(MEMORIES[memories]):
        of = Torture(memories, how, presses, seed)
        try:
            for _ in range(count):
                yield of.turn()
        finally:
            of.session.close()


def main(arguments: list[str]) -> int:
    count = int(arguments[0]) if arguments else 60
    seed = int(arguments[1]) if len(arguments) > 1 else 0
    kinds = Random(seed).sample(KINDS, int(arguments[2])) if len(arguments) > 2 else KINDS
    failed = 0
    for memories, how, presses in kinds:
        interrupted = turns = 0
        try:
            while interrupted < count:
                for found in tortured(memories, how, presses, seed + turns, min(20, count)):
                    turns += 1
                    interrupted += found
            words = "right"
        except Exception as error:
            failed += 1
            traceback.print_exc()
            words = f"WRONG: {type(error).__name__}: {error}"
        print(f"{memories}, {how}, {presses} presses: {interrupted} of {turns} interrupted: {words}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
