"""Checkpoints: whichever command a worker ends at, a program's results are those of one session."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.errors import ManyclError
from tests.cluster.conftest import cluster
from tests.cluster.counting import Even, count_from_now_on, counted
from tests.cluster.losing import ADDING, address_of, commands_done, count_commands, summed
from tests.cluster.test_programs import N

LOSSES = int(os.environ.get("MANYCL_TEST_LOSSES", "3"))
"""The number of commands at which a worker ends, of each test."""
WORKERS = 3
PATIENCE = 30.0
"""Seconds in which one that has ended is there again."""


@pytest.fixture(scope="module")
def complete() -> Iterator[Callable[[], Any]]:
    """Return the client of a cluster with all of its workers: Dask begins one anew that has ended, nearly always."""
    with ExitStack() as stack:
        found: list[Any] = []

        def client() -> Any:
            try:
                if found:
                    found[-1].wait_for_workers(WORKERS, timeout=PATIENCE)
                    return found[-1]
            except TimeoutError:
                stack.close()
            found.append(stack.enter_context(cluster(WORKERS)))
            return found[-1]

        yield client


@pytest.fixture
def client(complete: Callable[[], Any]) -> Any:
    found = complete()
    found.run(count_commands)  # nobody ends of what a test before has said
    return found


@pytest.fixture(scope="module")
def expected() -> bytes:
    with mc.Queue("cpu") as alone:
        return summed(alone)


@pytest.fixture
def ending(client: Any) -> Callable[..., tuple[mc.Queue, str]]:
    """Open a session in which the worker of node 1 ends at a command (a part of all that it has without that)."""

    def opened(part: float, checkpoint: int = 0) -> tuple[mc.Queue, str]:
        with mc.Queue(client, policy=Even(), checkpoint=checkpoint) as queue:
            client.run(count_commands)
            summed(queue)
            commands = client.run(commands_done)[address_of(queue, 1)]
        queue = mc.Queue(client, policy=Even(), checkpoint=checkpoint)
        victim = address_of(queue, 1)
        client.run(count_commands, 1 + int(part * commands), workers=[victim])
        return queue, victim

    return opened


def parts(seed: int) -> list[float]:
    random = Random(seed)
    return [random.uniform(0, 0.9) for _ in range(LOSSES)]  # (behind the last of them it would not end)


@pytest.mark.parametrize("part", parts(1))
@pytest.mark.filterwarnings("ignore:node1 does not work any more")
def test_with_checkpoints_results_are_right(ending: Any, expected: bytes, part: float) -> None:
    queue, _ = ending(part, checkpoint=1 + int(21 * part) % 3)
    with queue:
        assert summed(queue) == expected
        assert queue.devices == ("node0", "node2")
        assert summed(queue) == expected


@pytest.mark.parametrize("part", parts(2))
@pytest.mark.filterwarnings("ignore:node1 does not work any more")
def test_without_checkpoints_the_error_is_clear(ending: Any, expected: bytes, part: float) -> None:
    queue, victim = ending(part)
    with queue:
        said = ""
        try:
            found = summed(queue)
        except ManyclError as error:
            said = str(error)
        if said:
            assert all(word in said for word in ("node1", victim))
            assert any(name in said for name in ("heat", "other", "total"))
        else:  # what was lost is elsewhere, too
            assert found == expected
        assert queue.devices == ("node0", "node2")
        assert summed(queue) == expected


@pytest.mark.filterwarnings("ignore:node. does not work any more")
def test_one_after_the_other_may_be_lost(client: Any, expected: bytes) -> None:
    """Also the worker that has had the copies of the one before."""
    with mc.Queue(client, policy=Even(), checkpoint=2) as queue:
        for node, at in ((1, 60), (2, 150)):
            client.run(count_commands, at, workers=[address_of(queue, node)])
        assert summed(queue) == expected
        assert queue.devices == ("node0",)


def test_a_loss_between_runs_is_heard_of_when_contents_are_asked_for(client: Any) -> None:
    with mc.Queue(client, policy=Even(), checkpoint=2) as queue:
        x, total = queue.array(np.ones(N * N, np.float32)), queue.zeros(N * N)
        for _ in range(5):
            ADDING.add(queue, (N * N,), (64,), x, total)
            queue.finish()
        victim = address_of(queue, 1)
        os.kill(client.run(os.getpid, workers=[victim])[victim], signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match="node1"):
            np.testing.assert_array_equal(total.get(), 5)
        ADDING.add(queue, (N * N,), (64,), x, total)
        np.testing.assert_array_equal(total.get(), 6)


def test_host_functions_are_called_once(client: Any) -> None:
    seen: list[float] = []

    def double(data: np.ndarray) -> None:
        seen.append(float(data[0]))
        data *= 2

    with mc.Queue(client, policy=Even(), checkpoint=100) as queue:
        x, total = queue.array(np.ones(N * N, np.float32)), queue.zeros(N * N)
        for step in range(4):
            ADDING.add(queue, (N * N,), (64,), x, total)
            if step == 1:
                queue.call(double, total)
            queue.call(lambda data: seen.append(float(data[-1])), total, writes=())
            queue.finish()
        victim = address_of(queue, 1)
        os.kill(client.run(os.getpid, workers=[victim])[victim], signal.SIGKILL)
        ADDING.add(queue, (N * N,), (64,), x, total)
        with pytest.warns(RuntimeWarning, match="node1"):
            np.testing.assert_array_equal(total.get(), 7)
    assert seen == [1, 2, 4, 5, 6]


def test_checkpoints_take_changed_contents_to_a_partner(client: Any) -> None:
    """Half of the sum in two runs, of each node, and nothing of what has stayed as it was."""
    with mc.Queue(client, policy=Even(), checkpoint=2) as queue:
        x, total = queue.array(np.ones(N * N, np.float32)), queue.zeros(N * N)

        def add(count: int) -> None:
            for _ in range(count):
                ADDING.add(queue, (N * N,), (64,), x, total)
                queue.finish()

        add(3)  # the first checkpoint is before the third
        client.run(count_from_now_on)
        add(6)
        assert counted(client) == (0, 3 * 4 * N * N, 0)
        np.testing.assert_array_equal(total.get(), 9)
