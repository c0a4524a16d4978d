"""Workers that end by themselves, at a command that is told by its number."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np

import manycl as mc
from manycl.cluster.commands import NodeCommands
from tests.cluster.test_programs import GROUP, PROGRAM, N

ADDING = mc.Program(
    "kernel void add(global const float *x, global float *sum) { sum[get_global_id(0)] += x[get_global_id(0)]; }"
)
STEPS = 8


def count_commands(end_at: int = 0) -> None:
    """Have this worker count its commands from now on, and end before one of a number, as by a signal that nobody can
    catch."""
    if not hasattr(NodeCommands, "done"):
        do = NodeCommands._do

        def counted(self: Any, *given: Any) -> None:
            NodeCommands.done += 1  # type: ignore[attr-defined]
            if NodeCommands.done == NodeCommands.end_at:  # type: ignore[attr-defined]
                os.kill(os.getpid(), signal.SIGKILL)
            do(self, *given)

        NodeCommands._do = counted  # type: ignore[method-assign]
    NodeCommands.done, NodeCommands.end_at = 0, end_at  # type: ignore[attr-defined]


def commands_done() -> int:
    """Return how many commands this worker has done since."""
    found: int = NodeCommands.done  # type: ignore[attr-defined]
    return found


def address_of(queue: mc.Queue, node: int) -> str:
    """Return where the worker of a node is: others may have begun since the session did."""
    handle: Any = queue.session.devices.opened[node].handle
    return str(handle._nodes.links[node].address)


def summed(queue: mc.Queue) -> bytes:
    """Run a program of several runs, which changes contents in place, writes some between runs, and drops arrays."""
    random = np.random.default_rng(1)
    u, v = (queue.array(random.random((N, N), np.float32), name=name) for name in ("heat", "other"))
    total = queue.zeros((N, N), name="total")
    for step in range(STEPS):
        for _ in range(3):
            PROGRAM.sweep(queue, (N, N), (16, GROUP), u, v, N)
            u, v = v, u
        noise = queue.array(random.random((N, N), np.float32))
        for x in (u, noise):
            ADDING.add(queue, (N * N,), (64,), x, total)
        queue.finish()
        if step % 3 == 1:
            v.set(random.random((N, N), np.float32))
        if step % 4 == 2:
            np.add(total.get(), 0)
    return bytes(u.get().tobytes() + total.get().tobytes())
