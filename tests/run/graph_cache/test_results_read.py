"""What the host reads behind runs is a part of later runs: moved and timed with them, and never wrong."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import manycl as mc
from manycl.api.arrays.arrays import LARGE
from manycl.machine import HOST_BIT
from manycl.model import transfer
from manycl.trace import HostEvent, TransferEvent

COUNT = transfer.LARGE // 2  # of numbers of four bytes: as large as results are that count
PROGRAM = """
kernel void fill(global float *x, global float *y, float n) {
    int i = get_global_id(0);
    x[i] = i + n;
    y[i] = i - n;
}
"""


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[mc.Queue]:
    """Two parts of a processor with a memory each."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with mc.Queue("cpu/2", policy="balance", options={"rounds": "2"}) as queue:  # all is planned
        if queue.session.machine.memories == 1:
            pytest.skip("no device has a memory of its own here")
        yield queue


def came_home(queue: mc.Queue) -> tuple[set[str], bool]:
    """The arrays that came to the host within the last run, and whether it has results."""
    events = queue.trace.events
    moved = {e.name for e in events if isinstance(e, TransferEvent) and e.target == "host"}
    return moved, any(isinstance(e, HostEvent) and e.name == "results" for e in events)


def looped(queue: mc.Queue, reads: list[str], count: int = COUNT) -> list[set[str]]:
    """What came home within each run of a loop, which makes its arrays anew and reads those named."""
    program, found = mc.Program(PROGRAM), []
    for n, names in enumerate(reads):
        arrays = {name: queue.empty(count, np.float32, name=name) for name in "xy"}
        program.fill(queue, (count,), (64,), arrays["x"], arrays["y"], float(n))
        if not names:
            queue.finish()
        for name in names:
            step = np.arange(count, dtype=np.float32) + (n if name == "x" else -n)
            assert (arrays[name].get() == step).all()
        moved, has_results = came_home(queue)
        assert has_results == bool(moved)
        found.append(moved)
    return found


def test_what_was_read_behind_all_runs_is_expected_again(queue: mc.Queue) -> None:
    assert looped(queue, ["xy"] * 4) == [{"x"}, {"x", "y"}, {"x", "y"}, {"x", "y"}]


def test_a_result_is_given_away_without_a_copy_and_stays_what_it_is(queue: mc.Queue) -> None:
    """Large results: what the run has brought is the caller's, whatever runs then; it comes again if asked for."""
    count, kept = LARGE, list[np.ndarray]()
    program = mc.Program(PROGRAM)
    x, y = (queue.empty(count, np.float32, name=name) for name in "xy")
    copied: list[int] = []
    for n in range(6):
        program.fill(queue, (count,), (64,), x, y, float(n))
        before = queue.session.buffers.reading
        kept.append(x.get())
        copied.append(queue.session.directory.valid.get(x.buffer.key, 0) & HOST_BIT)
        assert queue.session.buffers.reading == before, "the run has brought it"
        if n % 2:
            assert (x.get() == kept[-1]).all()
            assert (y.get() == np.arange(count) - n).all()
    assert not any(copied), "the host's copy was given away"
    for n, result in enumerate(kept):
        assert (result == np.arange(count) + n).all()
        result[:] = -1
    assert (x.get() == np.arange(count) + 5).all()


def test_prepared_graphs_expect_it_too(queue: mc.Queue) -> None:
    """Also of arrays that exchange their contents after each run."""
    program = mc.Program(
        "kernel void up(global int *x, global int *y) { y[get_global_id(0)] = x[get_global_id(0)] + 1; }"
    )
    x, y = (queue.array(np.zeros(COUNT, np.int32), name=name) for name in "xy")
    with queue.prepare() as graph:
        program.up(queue, (COUNT,), (64,), x, y)
    homes = []
    for turn in range(1, 8):
        events = graph.run().trace.events
        homes.append({e.name for e in events if isinstance(e, TransferEvent) and e.target == "host"})
        x.exchange(y)
        if turn != 6:
            assert (x.get() == turn).all()
    assert homes == [set(), {"x"}, {"y"}, {"x"}, {"y"}, {"x"}, set()], "of the buffers that were written"
    assert (x.get() == 7).all()
    assert (y.get() == 6).all()


def test_what_is_not_read_again_is_not_expected_any_more(queue: mc.Queue) -> None:
    """And what is read now and then never was: it comes when it is asked for."""
    assert looped(queue, ["xy", "y", "y", "", "y"]) == [{"x"}, {"x", "y"}, {"y"}, {"y"}, set()]


def test_small_results_come_when_they_are_asked_for(queue: mc.Queue) -> None:
    assert looped(queue, ["x", "x"], 64) == [set(), set()]


def test_contents_that_other_commands_change_are_not_results(queue: mc.Queue) -> None:
    """A view is no result; a graph that has run with others behind it is read at the end only."""
    program = mc.Program(PROGRAM)
    x, y = (queue.empty(COUNT, np.float32, name=name) for name in "xy")
    program.fill(queue, (COUNT,), (64,), x, y, 1.0)
    assert x[: COUNT // 2].get()[0] == 1
    assert came_home(queue) == (set(), False)
    program.fill(queue, (COUNT,), (64,), x, y, 2.0)
    queue.flush()
    program.fill(queue, (COUNT,), (64,), x, y, 3.0)
    assert (x.get()[0], y.get()[0]) == (3, -3)
