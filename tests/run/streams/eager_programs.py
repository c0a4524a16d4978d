"""Random programs whose commands are given to a device as they are enqueued, on devices that do everything in the worst
legal order, and of which one may fail: results are those of NumPy, or what is unknown is said to be.

    python -m tests.run.streams.eager_programs FAULT,... COUNT [FIRST SEED]

runs so many programs for each fault.
"""

from __future__ import annotations

import gc
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any
from unittest import mock

import numpy as np

import manycl as mc
from manycl.api.arrays import arrays as arrays_module
from manycl.api.dispatch import compiled, copy_cache, launch_cache
from manycl.errors import ManyclError
from manycl.graph.copies import Place
from manycl.run.session.session import Session
from manycl.run.streams import eager_rule, eager_stream, host_access, stream_state
from manycl.run.streams.eager_result import EagerResult
from manycl.run.streams.eager_stream import EagerStream
from tests.drivers.test_mixed import FUNCTIONS, PROGRAM
from tests.run.streams.chaos_driver import Chaos, Fault, Kind, chaos_devices
from tests.run.streams.eager_state import LENGTHS, MANY, Mine, Part, Seen, State, Words

# the kinds of devices


def some_kinds(r: Random, fault: str) -> list[Kind]:
    """One to three devices, of which the first one is given what is unknown. (A polled device works no more when a
    command has failed.)"""
    if fault == "fails" and r.random() < 0.6:
        return [Kind(r.random() < 0.2, False, True)]
    if r.random() < 0.4:
        is_polled = r.random() < 0.5
        return [Kind(r.random() < 0.2, is_polled, not is_polled and r.random() < 0.7, r.random() < 0.3)]
    return [Kind(r.random() < 0.2, True, False, r.random() < 0.5) for _ in range(r.randint(2, 3))]


def some_limits(r: Random, stack: ExitStack) -> None:
    """Have arrays of few bytes take the ways of large ones, and batches of few commands those of many."""

    def patch(name: str, value: float, *modules: Any) -> None:
        for module in modules:
            stack.enter_context(mock.patch.object(module, name, value))

    patch("LARGE", r.choice([64, 256, 1 << 20]), stream_state, host_access)
    patch("LONGEST", r.choice([0.0, 1e-3, 1e9]), stream_state)
    unknown = r.choice([stream_state.UNKNOWN, 0.2])
    patch("UNKNOWN", unknown, stream_state, eager_stream, launch_cache, copy_cache)
    patch("LARGE", r.choice([64, 1 << 18]), arrays_module)
    patch("SEVERAL", r.choice([8, 256]), eager_rule)


# what is counted and judged


@contextmanager
def watched(seen: Seen, over: list[EagerResult]) -> Iterator[None]:
    """Count what is given to eager streams, and note their batches when these are over."""
    give, close = EagerStream.give, EagerResult.close
    runs = [(name, getattr(Session, name)) for name in ("run", "repeat")]

    def given(*args: Any) -> bool:
        found = give(*args)
        seen.given += found
        return found

    def closed(run: EagerResult) -> None:
        close(run)
        seen.commands += len(run.given)
        over.append(run)

    def planned(run: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            seen.planned += 1
            return run(*args, **options)

        return counted

    with ExitStack() as stack:
        for name, run in runs:
            stack.enter_context(mock.patch.object(Session, name, planned(run)))
        stack.enter_context(mock.patch.object(EagerStream, "give", given))
        stack.enter_context(mock.patch.object(EagerResult, "close", closed))
        yield


# the programs


class Program(State):
    """A program of a seed, which is run as it is made up."""

    def step(self) -> None:
        kinds = [
            *("inc", "mix", "sten") * 4,
            *("copy", "fill") * 3,
            *("get", "part") * 2,
            *("set", "set part", "write", "finish", "wait", "drop", "loop", "read", "ahead", "behind", "store"),
            *("host", "flush", "exchange", "map", "sum"),
        ]
        self.do(self.r.choice(kinds))

    def do(self, kind: str) -> None:
        getattr(self, "do_" + kind.replace(" ", "_"))()

    def launch(self, name: str, target: Part, value: Words, *args: Any) -> Callable[[], None]:
        """A kernel: enqueued, and to be done again (then with another number, if it has one)."""
        count = target[2] - target[1]
        sizes = ((count,), self.r.choice([None, (4,)]))
        queue = self.queue

        def act() -> Any:
            return getattr(PROGRAM, name)(queue, *sizes, *args)

        event = self.call(act, target, value)
        if event is not None and len(self.events) < 8:
            self.events.append(event)
        return lambda: None

    def do_inc(self, part: Part | None = None, array: mc.Array | None = None, m: int = 0) -> None:
        part = part or self.part(self.r.choice(LENGTHS))
        m = m or self.number()
        value = self.value(part) * np.uint32(1664525) + np.uint32(m)
        self.launch("inc", part, value, self.view(part) if array is None else array, m)

    def do_mix(self) -> None:
        count = self.r.choice(LENGTHS)
        a, b = self.part(count), self.part(count)
        c, m = self.part(count, True, (a, b)), self.number()
        value = self.value(a) * np.uint32(m) + (self.value(b) >> np.uint32(3))
        self.launch("mixup", c, value, self.view(a), self.view(b), self.view(c), m)

    def do_sten(self) -> None:
        count = self.r.choice(LENGTHS)
        a = self.part(count)
        c = self.part(count, False, (a,))
        v, value = self.value(a), self.value(c).copy()
        value[1:-1] = v[:-2] + v[2:]
        self.launch("sten", c, value, self.view(a), self.view(c), count)

    def do_loop(self) -> None:
        """The same launch again and again, and often its result."""
        part, looks = self.part(self.r.choice(LENGTHS)), self.r.choice([0.0, 0.3, 1.0])
        array, m, same = self.view(part), self.number(), self.r.random() < 0.5
        for _ in range(self.r.choice([5, 5, 20, MANY])):
            if self.is_over or part[0].value is None:
                return
            self.do_inc(part, array, m if same else 0)
            if self.r.random() < looks:
                way = self.r.random()
                if way < 0.6:
                    self.check(self.call(array.get), part, "in a loop")
                if 0.4 < way < 0.5:
                    self.do_set(part[0])
                elif way > 0.6:  # as a program does that is run by ``manycl exec``
                    self.call(array.queue.catch_up)
                    self.do(self.r.choice(["store", "ahead", "behind", "inc", "copy"]))

    def do_copy(self) -> None:
        count = self.r.choice(LENGTHS)
        source = self.part(count)
        target = self.part(count, True, (source,))
        queue, arrays = self.queue, (self.view(target), self.view(source))
        value = self.value(source).copy()
        for _ in range(self.r.choice([1, 1, 3])):
            if not self.is_settled:
                self.call(lambda: queue.copy(*arrays), target, value)

    def do_fill(self) -> None:
        count, number = self.r.choice(LENGTHS), self.number()
        target = self.part(count, True)
        queue, array = self.queue, self.view(target)
        self.call(lambda: queue.fill(array, np.uint32(number)), target, np.full(count, number, np.uint32))

    def do_get(self) -> None:
        mine = self.known()
        if mine is not None:
            out = np.empty(len(mine), np.uint32) if self.r.random() < 0.3 else None
            self.check(self.call(lambda: mine.array.get(out)), (mine, 0, len(mine)), "get")
            self.judge()

    def do_part(self) -> None:
        part = self.part(4)
        self.check(self.call(self.view(part).get), part, "get of a part")

    def known(self) -> Mine | None:
        found = [mine for mine in self.arrays if mine.value is not None]
        return self.r.choice(found) if found else None

    def do_set(self, mine: Mine | None = None) -> None:
        mine = mine or self.r.choice(self.arrays)
        value, copy = self.words(len(mine)), self.r.random() < 0.7
        self.call(lambda: mine.array.set(value, copy=copy), (mine, 0, len(mine)), value)

    def do_set_part(self) -> None:
        part = self.part(4)
        value = self.words(4)
        self.call(lambda: self.view(part).set(value), part, value)

    def do_write(self) -> None:
        part = self.part(self.r.choice(LENGTHS), True)
        value, queue, array = self.words(part[2] - part[1]), self.queue, self.view(part)
        self.call(lambda: queue.write(array, value), part, value)

    def do_read(self) -> None:
        mine = self.known()
        if mine is not None and mine.value is not None:
            queue, value = self.queue, mine.value
            event = self.call(lambda: queue.read(mine.array))
            if event is not None:
                self.reads.append((event, event.out, value))

    def do_ahead(self) -> None:
        """As a program does that is run by ``manycl exec``."""
        part, out = self.near(), np.empty(16, np.uint8)
        array = self.view(part)
        place = Place(array.buffer, array.offset, 16)
        if self.call(lambda: array.queue.read_ahead(place, out)):
            self.check(out.view(np.uint32), part, "read ahead")

    def do_behind(self) -> None:
        part, out = self.part(4), np.empty(16, np.uint8)
        array = self.view(part)
        place = Place(array.buffer, array.offset, 16)
        event = self.call(lambda: array.queue.read_behind(array.owner, place, out))
        if event is not None:
            self.reads.append((event, out.view(np.uint32), self.value(part).copy()))

    def do_store(self) -> None:
        part, data = self.near(), self.words(4)
        array = self.view(part)
        place = Place(array.buffer, array.offset, 16)
        mine, low, high = part
        assert mine.value is not None
        after = mine.value.copy()
        after[low:high] = data
        try:
            if array.queue.write_ahead(place, data.view(np.uint8)):
                mine.become(after)
        except (ManyclError, KeyboardInterrupt) as error:
            mine.others.append(after)
            self.fail(error)
        data[:] = 0

    def do_finish(self) -> None:
        self.finish()

    def do_flush(self) -> None:
        stream: Any = self.session.devices.stream
        self.call(stream.flush if stream is not None else self.finish)

    def do_wait(self) -> None:
        if self.events:
            event = self.events.pop(self.r.randrange(len(self.events)))
            event.is_complete  # noqa: B018 (it is asked)
            self.call(event.wait)
        if self.reads:
            event, out, value = self.reads.pop(self.r.randrange(len(self.reads)))
            self.call(event.wait)
            assert self.is_settled or (out == value).all(), "what was read is wrong"

    def do_drop(self) -> None:
        if len(self.arrays) > 2:
            self.arrays.pop(self.r.randrange(len(self.arrays)))
        self.make()

    def do_host(self) -> None:
        part = self.part(4)
        queue, array, value = self.queue, self.view(part), self.value(part)[::-1].copy()

        def turn(x: Words) -> None:
            x[:] = x[::-1].copy()

        self.call(lambda: queue.call(turn, array), part, value)

    def do_exchange(self) -> None:
        found = [m for m in self.arrays if m.value is not None]
        pairs = [(a, b) for a in found for b in found if a is not b and len(a) == len(b)]
        if pairs:
            a, b = self.r.choice(pairs)
            before = self.is_settled
            self.call(lambda: a.array.exchange(b.array))
            if self.is_settled == before:
                a.value, b.value = b.value, a.value

    def do_map(self) -> None:
        mine = self.known()
        if mine is None:
            return
        value = self.words(len(mine))

        def write() -> None:
            with mine.array.map() as host:
                assert (host == mine.value).all(), "what is mapped is wrong"
                host[:] = value

        self.call(write, (mine, 0, len(mine)), value)

    def do_sum(self) -> None:
        """An array that is made by the way, and dropped."""
        part = self.part(self.r.choice(LENGTHS))
        array, value = self.view(part), self.value(part).copy()
        found = self.call(array.copy)
        if found is not None:
            self.arrays.append(Mine(found, None))
            self.arrays[-1].become(value)

    # a whole program

    def run(self) -> None:
        for _ in range(self.r.randint(8, 40)):
            if self.is_over:
                break
            self.step()
        if not self.is_over:
            self.finish()
        for mine in self.arrays:
            if mine.value is not None and not self.is_over:
                self.check(self.call(mine.array.get), (mine, 0, len(mine)), "at the end")
        for event, out, value in [] if self.is_over else list(self.reads):
            self.call(event.wait)
            assert self.is_settled or (out == value).all(), "what was read is wrong at the end"

    def close(self) -> None:
        for queue in self.queues:
            queue.close()
        self.session.close()


def run_seed(fault: str, seed: int, seen: Seen) -> None:
    """Raises AssertionError where something is wrong."""
    r = Random(f"{fault} {seed}")
    chaos = Chaos(Random(r.random()), some_kinds(r, fault), FUNCTIONS.functions)
    over: list[EagerResult] = []
    with ExitStack() as stack:
        stack.enter_context(chaos_devices(chaos))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", RuntimeWarning)  # devices are left out
        some_limits(r, stack)
        stack.enter_context(watched(seen, over))
        program = Program(r, chaos, seen, over)
        try:
            chaos.fault = Fault(fault, r.randrange(r.choice([20, 60, 200])), r.random() < 0.5)
            program.run()
        finally:
            chaos.fault = Fault(has_happened=chaos.fault.has_happened)
            program.close()
    assert not chaos.wrong, chaos.wrong


def main(arguments: list[str]) -> int:
    compiled.install()
    faults, count, first = arguments[0], int(arguments[1]), int(arguments[2]) if len(arguments) > 2 else 0
    failed: dict[str, list[int]] = {}
    for one in faults.split(","):
        seen, words = Seen(), Counter[str]()
        for seed in range(first, first + count):
            try:
                run_seed(one, seed, seen)
            except Exception as error:
                failed.setdefault(one, []).append(seed)
                words[f"{type(error).__name__}: {error}"[:100]] += 1
                if len(failed[one]) <= 3:
                    traceback.print_exc(limit=-8)
                    print(f"{one} {seed}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        wrong = failed.get(one, [])
        print(f"{one}: {count} seeds from {first}, {len(wrong)} failed {wrong[:20]}; {seen}", flush=True)
        for said, times in words.most_common(12):
            print(f"    {times} x {said}")
        gc.collect()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
