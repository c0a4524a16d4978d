"""What random programs have whose commands are given to a device as they are enqueued: queues, events, and arrays with
what they are by NumPy; and the judge of all that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

import manycl as mc
from manycl.errors import ManyclError, ResultError
from manycl.graph.graph import BufferKey
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.data.coherence import Directory, ValidRegion
from manycl.run.engine.engine import again
from manycl.run.session.session import Session
from manycl.run.simulation.foresee import StepEstimates
from manycl.run.simulation.simulator import SimBackend
from manycl.run.streams.eager_result import EagerResult
from tests.run.commands.verify_commands import verify_commands
from tests.run.streams.chaos_driver import Chaos

LENGTHS = (4, 16, 64)
"""Elements that commands work on."""
MANY = 300
"""Repetitions of a launch: more than a batch has that goes on, and than the launch cache takes to load compiled
code."""

Words = npt.NDArray[np.uint32]


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


def simulate(command_graph: CommandGraph, found: Mapping[BufferKey, int | tuple[ValidRegion, ...]]) -> None:
    """Play the commands that a batch was given on a simulated machine, where buffers are as the batch has found
    them."""
    directory, lowered = Directory(), command_graph.lowered
    for key, was in found.items():
        if isinstance(was, tuple):
            directory.valid_regions[key] = was
        else:
            directory.valid[key] = was
    backend = SimBackend(command_graph.problem.machine, StepEstimates(command_graph.problem, lowered))
    result = again(command_graph, backend, directory)
    assert result is not None, "buffers are not where the commands were given them"
    assert len(list(result.trace.kernels())) == len(lowered.graph.nodes), "not all commands ran"


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


class State:
    """The queues, arrays and events of a program, and what is right of them."""

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
                verify_commands(playback.command_graph)
                simulate(playback.command_graph, run.found)
                self.seen.batches += 1
