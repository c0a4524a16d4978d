"""Random programs whose commands are given to a device as they are enqueued, on devices that do everything in the worst
legal order, and of which one may fail: results are those of NumPy, or what is unknown is said to be.

    python -m tests.run.streams.eager_programs FAULT COUNT [FIRST SEED]

runs so many programs for a fault (or for ``all``).
"""

from __future__ import annotations

import gc
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

import manycl as mc
from manycl.api.arrays import arrays as arrays_module
from manycl.api.dispatch import compiled, copy_cache, launch_cache
from manycl.errors import ManyclError, ResultError
from manycl.graph.copies import Place
from manycl.graph.graph import BufferKey
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.commands.verify_commands import verify_script
from manycl.run.data.coherence import Directory, ValidRegion
from manycl.run.engine.engine import again
from manycl.run.session.session import Session
from manycl.run.simulation.foresee import StepEstimates
from manycl.run.simulation.simulator import SimBackend
from manycl.run.streams import eager_rule, eager_stream, host_access, stream_state
from manycl.run.streams.eager_result import EagerResult
from manycl.run.streams.eager_stream import EagerStream
from tests.drivers.test_mixed import FUNCTIONS, PROGRAM
from tests.run.streams.chaos_driver import FAULTS, Chaos, Fault, Kind, chaos_devices

LENGTHS = (4, 16, 64)
"""Elements that commands work on."""
MANY = 300
"""Repetitions of a launch: more than a batch has that goes on, and than the launch cache takes to load compiled
code."""

Words = npt.NDArray[np.uint32]


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

    patch("BESIDE", r.choice([64, 256, 1 << 20]), stream_state, host_access)
    patch("AT_ONCE", r.choice([0.0, 1e-3, 1e9]), stream_state)
    unknown = r.choice([stream_state.UNKNOWN, 0.2])
    patch("UNKNOWN", unknown, stream_state, eager_stream, launch_cache, copy_cache)
    patch("LARGE", r.choice([64, 1 << 18]), arrays_module)
    patch("SEVERAL", r.choice([8, 256]), eager_rule)


# what is counted and judged


@dataclass
class Seen:
    """``given``: commands of eager streams by ``give``; ``commands``: also those by the launch and copy caches.
    ``batches``: of which the command graphs were judged. ``failed``: programs that were told of an error. ``planned``:
    runs since all was waited for."""

    given: int = 0
    commands: int = 0
    batches: int = 0
    failed: int = 0
    planned: int = 0


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


def simulate(script: CommandGraph, found: Mapping[BufferKey, int | tuple[ValidRegion, ...]]) -> None:
    """Play the commands that a batch was given on a simulated machine, where buffers are as the batch has found
    them."""
    directory, lowered = Directory(), script.lowered
    for key, was in found.items():
        if isinstance(was, tuple):
            directory.parts[key] = was
        else:
            directory.valid[key] = was
    backend = SimBackend(script.problem.machine, StepEstimates(script.problem, lowered))
    result = again(script, backend, directory)
    assert result is not None, "buffers are not where the commands were given them"
    assert len(list(result.trace.kernels())) == len(lowered.graph.nodes), "not all commands ran"


# the programs


class Mine:
    """An array and what it has by NumPy. ``value`` None: nobody knows. ``others``: what it may have instead, as a call
    that was to change it was interrupted. ``is_new``: it was written since all was waited for."""

    def __init__(self, array: mc.Array, value: Words | None) -> None:
        self.array, self.value = array, value
        self.others: list[Words] = []
        self.before: list[Words | None] = []
        self.is_new = True

    def __len__(self) -> int:
        return self.array.size

    def become(self, value: Words | None) -> None:
        """A command was enqueued that gives it a value."""
        self.before.append(self.value)
        self.value, self.is_new = value, True

    def known(self, value: Words | None) -> None:
        """All that was enqueued has run."""
        self.value, self.is_new = value, False
        self.before, self.others = [], []


Part = tuple[Mine, int, int]
"""Elements of an array: the first, and behind the last."""


class Program:
    """A program of a seed, which is run as it is made up."""

    def __init__(self, r: Random, chaos: Chaos, seen: Seen, over: list[EagerResult]) -> None:
        self.r, self.chaos, self.seen, self.over = r, chaos, seen, over
        self.session = Session(remember=False)
        policy = r.choice([None, None, "in_order"])
        self.queues = [mc.Queue(session=self.session, policy=policy) for _ in range(1 + (r.random() < 0.2))]
        self.arrays: list[Mine] = []
        self.events: list[Any] = []
        self.reads: list[tuple[Any, Words, Words]] = []  # events, memory, what is to be there
        self.is_settled = self.is_over = False
        self.is_interrupted = False
        for _ in range(4):
            self.make()

    # what is used

    @property
    def queue(self) -> mc.Queue:
        return self.r.choice(self.queues)

    def words(self, count: int) -> Words:
        return np.frombuffer(self.r.randbytes(4 * count), np.uint32).copy()

    def number(self) -> int:
        return self.r.randrange(1, 1 << 32)

    def part(self, count: int, whole: bool = False, apart: tuple[Part, ...] = ()) -> Part:
        """So many elements that have nothing in common with others, of an array that has known contents, unless
        ``whole`` ones are wanted."""
        found = [m for m in self.arrays if m.value is not None or (whole and len(m) == count)]
        found = [m for m in found if len(m) >= count]
        self.r.shuffle(found)
        for mine in found:
            for first in (0, *(self.r.randrange(len(mine) - count + 1) for _ in range(3))):
                if mine.value is None and len(mine) > count:
                    continue
                if all(m is not mine or first + count <= low or high <= first for m, low, high in apart):
                    return mine, first, first + count
        mine = self.make(count)
        return mine, 0, count

    def near(self) -> Part:
        """Four elements, if possible of an array that a batch uses."""
        stream = self.session.devices.stream
        found = [m for m in self.arrays if stream is not None and m.array.buffer.key in stream.arrays]
        found = [m for m in found if m.value is not None]
        if not found or self.r.random() < 0.2:
            return self.part(4)
        mine = self.r.choice(found)
        first = self.r.randrange(len(mine) - 3)
        return mine, first, first + 4

    def view(self, part: Part) -> mc.Array:
        mine, low, high = part
        return mine.array if high - low == len(mine) else mine.array[low:high]

    def value(self, part: Part) -> Words:
        mine, low, high = part
        assert mine.value is not None
        return mine.value[low:high]

    # what the host does

    def make(self, count: int = 0) -> Mine:
        size = max(count, self.r.choice([4, 16, 16, 64, 64, 100]))
        value = self.words(size)
        way = self.r.randrange(3)
        if way == 0 and not count:
            mine = Mine(self.queue.empty(size, np.uint32), None)
        elif way == 1:
            mine = Mine(self.queue.zeros(size, np.uint32), np.zeros(size, np.uint32))
        else:
            mine = Mine(self.queue.array(value, copy=self.r.random() < 0.7), value)
        self.arrays.append(mine)
        return mine

    def call(self, act: Callable[[], Any], part: Part | None = None, value: Words | None = None) -> Any:
        """Do something that, if it does not raise, gives a part of an array a value."""
        after = None
        if part is not None:
            assert value is not None
            mine, low, high = part
            after = np.empty(len(mine), np.uint32) if mine.value is None else mine.value.copy()
            after[low:high] = value
        try:
            found = act()
        except (ManyclError, KeyboardInterrupt) as error:
            if part is not None and after is not None:  # it may have begun
                part[0].others.append(after)
                part[0].is_new = True
            self.is_interrupted |= isinstance(error, KeyboardInterrupt)
            self.fail(error)
            return None
        if part is not None:
            part[0].become(after)
        return found

    def check(self, found: Any, part: Part, words: str) -> None:
        if found is not None:
            assert (found == self.value(part)).all(), f"{words}: wrong"

    def finish(self) -> None:
        news = list(self.arrays)
        is_joined = False
        for queue in self.queues:
            is_joined |= self.r.random() < 0.2
            self.call(queue.catch_up if is_joined else queue.finish)
            if self.is_settled or self.is_over:
                break
        else:
            for mine in news:
                mine.known(mine.value)
                mine.is_new = is_joined  # the batch goes on: a copy to the host that fails fails its last command
            self.seen.planned = 0
        self.judge()

    def fail(self, error: BaseException) -> None:
        """Something went wrong. What is known then is right; the rest is written anew."""
        fault = self.chaos.fault
        assert fault.has_happened, f"nothing went wrong, and yet: {error!r}"
        if self.is_settled and not self.session.machine.devices:
            self.is_over = True
            return
        assert not self.is_settled, f"it goes wrong again: {error!r}"
        self.is_settled = True
        self.seen.failed += 1
        self.reads.clear()
        self.events.clear()
        for _ in range(4 * len(self.queues)):
            try:
                for queue in self.queues:
                    queue.finish()
                break
            except ManyclError:
                pass
        else:
            assert not self.session.machine.devices, "what has failed once fails for ever"
        for mine in self.arrays:
            if mine.value is not None:
                self.look(mine)
        self.is_over = not self.session.machine.devices

    def look(self, mine: Mine) -> None:
        """What an array has, after something went wrong."""
        got = None
        for _ in range(2):
            try:
                got = mine.array.get()
                break
            except ResultError:
                break
            except ManyclError:  # a device is found to be lost
                pass
        else:
            raise AssertionError("what has failed once, in asking, fails again")
        if got is not None:
            # (planned commands that had not begun have left their arrays as they were)
            possible = [mine.value, *mine.others, *(mine.before if self.seen.planned else ())]
            is_known = any(value is not None and (got == value).all() for value in possible)
            # (and another queue's commands may have read them by then)
            is_new = any(value is None for value in possible) or bool(self.seen.planned and len(self.queues) > 1)
            assert is_known or is_new, f"{mine.array!r} is wrong after a failure"
            value = got
            if is_new:  # nothing may have been written to it, ever, however it looks
                mine.array.set(value)
        else:
            is_lost = self.chaos.fault.kind in ("dies", "crashes") or any(d.is_dead for d in self.chaos.drivers)
            assert mine.is_new or is_lost, f"{mine.array!r} is unknown, and nothing wrote to it"
            value = self.words(len(mine))
            if self.r.random() < 0.5 and self.session.machine.devices:
                with suppress(ResultError):
                    mine.array[: len(mine) - 1].get()
                    raise AssertionError("what is unknown can be read in part")
                mine.array.queue.write(mine.array, value)
            else:
                mine.array.set(value)
            assert (mine.array.get() == value).all(), "what was unknown is wrong when all of it has been written"
        mine.known(value)

    def judge(self) -> None:
        """The command graphs of some batches that are over."""
        over, self.over[:] = list(self.over), []
        if self.is_settled or self.session.devices.changes:
            return
        for run in over[-4:]:
            if run.error is None and run.given and not run.went_on:
                playback = run.result.playback
                assert playback is not None
                verify_script(playback.script)
                simulate(playback.script, run.found)
                self.seen.batches += 1

    # what is enqueued

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
    fault, count, first = arguments[0], int(arguments[1]), int(arguments[2]) if len(arguments) > 2 else 0
    failed: dict[str, list[int]] = {}
    for one in FAULTS if fault == "all" else (fault,):
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
