"""Workers that are lost: the error names them and the arrays, and the session goes on with the others."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.cluster.commands import NodeCommands
from manycl.errors import ManyclError
from tests.cluster.conftest import cluster
from tests.cluster.counting import Even
from tests.cluster.test_programs import GROUP, PROGRAM, N


def die_at(number: int) -> None:
    """Have this worker end, as by a signal that nobody can catch, before it does a launch of a number."""
    launch, left = NodeCommands.launch, [number]

    def counted(self: Any, *given: Any) -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        launch(self, *given)

    NodeCommands.launch = counted  # type: ignore[method-assign]


def address_of(queue: mc.Queue, node: int) -> str:
    """Return where the worker of a node is: others may have begun since the session did."""
    handle: Any = queue.session.devices.opened[node].handle
    return str(handle.open(queue.session.machine.devices[node]).link.address)


def sweeps(queue: mc.Queue, u: mc.Array, v: mc.Array, count: int) -> mc.Array:
    for _ in range(count):
        PROGRAM.sweep(queue, (N, N), (16, GROUP), u, v, N)
        u, v = v, u
    return u


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with cluster(3) as found:  # of which each test leaves at least one less
        yield found


@pytest.mark.parametrize("moment", ["between runs", "in the middle of a run"])
def test_a_lost_worker_is_told_of(client: Any, moment: str) -> None:
    start = np.random.default_rng(1).random((N, N), np.float32)
    with mc.Queue("cpu") as alone:
        expected = sweeps(alone, alone.array(start), alone.array(start), 4).get()
    with mc.Queue(client, policy=Even()) as queue:
        u, v = queue.array(start, name="heat"), queue.array(start, name="other")
        sweeps(queue, u, v, 4)
        queue.finish()
        others = [name for name in queue.devices if name != "node1"]
        victim = address_of(queue, 1)
        if moment == "between runs":
            os.kill(client.run(os.getpid, workers=[victim])[victim], signal.SIGKILL)
        else:
            client.run(die_at, 20, workers=[victim])
        began = time.monotonic()
        left = f"devices that are left: {', '.join(others)}"
        with pytest.warns(RuntimeWarning, match=left), pytest.raises(ManyclError) as raised:
            sweeps(queue, u, v, 40).get()
        assert time.monotonic() - began < 5
        words = str(raised.value)
        assert all(word in words for word in ("node1", victim, "heat"))
        for array in (u, v):
            with pytest.raises(ManyclError, match=array.name):
                array.get()
        assert queue.devices == tuple(others)
        found = sweeps(queue, queue.array(start), queue.array(start), 4).get()
        assert found.tobytes() == expected.tobytes()
