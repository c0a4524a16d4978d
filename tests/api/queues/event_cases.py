"""What the tests of events share: kernels, and a function of the host that stands still."""

from __future__ import annotations

import threading

import manycl as mc

N = 64
SIZES = (N,), (16,)
PROGRAM = mc.Program("""
kernel void inc(global int *x) { x[get_global_id(0)] += 1; }
kernel void add(global const int *x, global int *y) { y[get_global_id(0)] += x[get_global_id(0)]; }
""")
STATUS = mc.CommandStatus
PATIENCE = 60  # seconds, after which something hangs


class Gate:
    """A host function that stands still until it is let go."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun, self.go, self.error = threading.Event(), threading.Event(), error

    def __call__(self, *args: object) -> None:
        self.begun.set()
        assert self.go.wait(PATIENCE)
        if self.error is not None:
            raise self.error


# status, and waiting for one command
