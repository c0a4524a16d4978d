"""Commands that drivers record and run again, on other buffers and with other scalars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from manycl.drivers.driver import (
    CommandRecorder,
    Driver,
    DriverError,
    Event,
    RecordedCopy,
    RecordedFill,
    RecordedLaunch,
)
from tests.drivers.conformance.suite import Desk, noise, uint


def recorded_launch(
    desk: Desk, kernel: Any, args: tuple[int, ...], after: Sequence[int] = (), queue: Any = None
) -> Any:
    """A launch of 16 work-items; ``args``: slots."""
    return RecordedLaunch(queue or desk.queue, tuple(after), kernel, args, (16,), None, None)


def play(desk: Desk, recording: CommandRecorder, bound: Any) -> list[Event]:
    events: list[Event] = []
    recording.play(bound, events)
    desk.driver.flush(desk.queue)
    return events


@pytest.mark.parametrize("is_timed", [False, True])
def test_recorded_commands_run_on_other_buffers_with_other_scalars(
    driver: Driver, desk: Desk, recording: CommandRecorder, is_timed: bool
) -> None:
    """As the calls one by one. Of one kernel and of several, one buffer in several slots; more than have their times in
    one array."""
    desk.queue = driver.queue(is_timed)
    add, other = desk.kernel("add"), desk.kernel("add")
    commands: list[Any] = []
    for turn in range(300):  # slots: two buffers, three scalars
        commands.append(recorded_launch(desk, add, (turn % 2, 2)))
        commands.append(recorded_launch(desk, other, (0, 3 + turn % 2), (len(commands) - 1,)))
    commands.append(RecordedCopy(desk.queue, (), 1, 0, 32, 16, 16))
    commands.append(RecordedFill(desk.queue, (len(commands) - 1,), 1, uint(7), 8, 8))
    memories = [desk.there(np.zeros(64, np.uint8)) for _ in range(3)]
    want = [np.zeros(16, np.uint32) for _ in memories]
    tables = [(0, 1, 1, 2, 3), (1, 2, 5, 1, 4), (2, 0, 1, 1, 1), (2, 2, 1, 2, 3)]
    first = [memories[0], memories[1], *map(uint, tables[0][2:])]
    recorded = recording.record(commands, first)
    if recorded is None:
        pytest.skip("its kernels run elsewhere")
    bound = []
    for a, b, *scalars in tables:
        bound.append((a, b, scalars, recording.bind(recorded, [memories[a], memories[b], *map(uint, scalars)])))
    for a, b, scalars, playable in [*bound, *bound[::-1], bound[0]]:
        events = play(desk, recording, playable)
        assert len(events) == len(commands)
        for turn in range(300):
            want[(a, b)[turn % 2]] += scalars[0]
            want[a] += scalars[1 + turn % 2]
        want[b][8:12] = want[a][4:8].copy()
        want[b][2:4] = 7
        desk.end(events[-1])
        assert all(driver.done(event) for event in events)
        if is_timed:
            spans = [driver.times(event) for event in events]
            assert all(start <= end for start, end in spans)
        for memory, values in zip(memories, want, strict=True):
            assert (desk.look(memory, 64).view(np.uint32) == values).all()


def test_recorded_commands_of_several_queues(driver: Driver, desk: Desk, recording: CommandRecorder) -> None:
    """They wait for one another."""
    queues = [desk.queue, driver.queue(False)]
    slow, memory = desk.kernel("slow"), desk.there(np.zeros(64, np.uint8))
    result = desk.there(np.zeros(64, np.uint8))
    commands: list[Any] = [
        recorded_launch(desk, slow, (0, 2)),
        RecordedCopy(queues[1], (0,), 1, 0, 0, 0, 64),
        recorded_launch(desk, slow, (0, 2), (1,)),
        recorded_launch(desk, slow, (1, 2), (2,), queues[1]),
    ]
    table = [memory, result, uint(1)]
    recorded = recording.record(commands, table)
    if recorded is None:
        pytest.skip("its kernels run elsewhere")
    for _ in range(3):
        events: list[Event] = []
        recording.play(recording.bind(recorded, table), events)
        for queue in queues:
            driver.flush(queue)
        driver.wait(events[-1])
    assert (desk.look(memory, 64).view(np.uint32) == 6).all()
    assert (desk.look(result, 64).view(np.uint32) == 6).all(), "5 were copied, and 1 added"


def test_recorded_commands_keep_what_they_use(desk: Desk, recording: CommandRecorder) -> None:
    """Nobody else holds the memory, nor what was recorded."""
    result, slow = desk.there(np.zeros(64, np.uint8)), desk.kernel("slow")
    commands = [recorded_launch(desk, slow, (1, 2)), RecordedCopy(desk.queue, (), 0, 1, 0, 0, 64)]
    table = [result, desk.there(np.full(64, 7, np.uint8)), uint(0)]
    recorded = recording.record(commands, table)
    if recorded is None:
        pytest.skip("its kernels run elsewhere")
    events = play(desk, recording, recording.bind(recorded, table))
    del table[1:], recorded, slow, commands
    scratch = [desk.there(noise(64, n)) for n in range(8)]
    desk.end(events[-1])
    assert (desk.look(result, 64) == 7).all()
    assert len(scratch) == 8


def test_a_recorded_command_that_cannot_run(desk: Desk, recording: CommandRecorder) -> None:
    """It is not recorded, or fails when it is played: those before it have their events."""
    add, memory = desk.kernel("add"), desk.there(np.zeros(64, np.uint8))
    large = RecordedLaunch(desk.queue, (), desk.kernel("add"), (0, 1), (1 << 24,), (1 << 24,), None)
    commands = [recorded_launch(desk, add, (0, 1)), large, recorded_launch(desk, add, (0, 1))]
    table = [memory, uint(1)]
    recorded, events = recording.record(commands, table), list[Event]()

    def run() -> None:
        recording.play(recording.bind(recorded, table), events)
        desk.driver.flush(desk.queue)
        for event in events:
            desk.driver.wait(event)

    if recorded is not None:
        with pytest.raises(DriverError):
            run()
        desk.driver.finish()
        assert len(events) in (1, 3)
    desk.end(desk.launch(desk.kernel("add", memory, 1), 16))
    assert desk.look(memory, 64).view(np.uint32)[0] in (1, 2, 3)


def test_a_binding_table_of_another_shape_is_refused(desk: Desk) -> None:
    driver, memory = desk.driver, desk.there(np.zeros(64, np.uint8))
    if not isinstance(driver, CommandRecorder):
        pytest.skip("it records nothing")
    recorded = driver.record([recorded_launch(desk, desk.kernel("add"), (0, 1))], [memory, uint(1)])
    for table in ([memory, b"12"], [memory, memory], [uint(1), memory], [memory], [memory, bytes(16)]):
        with pytest.raises(DriverError, match="binding table"):
            driver.bind(recorded, table)
