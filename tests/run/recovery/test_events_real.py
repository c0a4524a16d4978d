"""Devices that leave and come while real launches run: bits are those of one device that runs all of it alone."""

from __future__ import annotations

import random
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from random import SystemRandom

import numpy as np
import pytest

import manycl as mc
from manycl.errors import ManyclError, ResultError
from manycl.plan import preemptible
from tests.run.recovery.test_lost_devices import Death, death, victim

__all__ = ["death"]  # a fixture

N = 1 << 14
PROGRAM = mc.Program("""
__kernel void change(__global float *x, int n) {
  int i = get_global_id(0);
  float v = x[i];
  for (int k = 0; k < n; k++) v = v * 1.0000001f + 0.5f;
  x[i] = v;
}
__kernel void blend(__global const float *x, __global float *y) {
  int i = get_global_id(0), n = get_global_size(0);
  y[i] = x[i] + x[(i + 1) % n] * 0.5f;
}""")


def enqueue(queue: mc.Queue, x: mc.Array, y: mc.Array, times: int) -> None:
    for _ in range(times):
        PROGRAM.change(queue, (N,), (64,), x, 300)
        PROGRAM.blend(queue, (N,), (64,), x, y)
        PROGRAM.change(queue, (N,), (64,), y, 100)
        PROGRAM.blend(queue, (N,), (64,), y, x)


def arrays(queue: mc.Queue) -> tuple[mc.Array, mc.Array]:
    return queue.array(np.arange(N, dtype=np.float32)), queue.zeros(N, np.float32)


def alone(devices: str, turns: int, times: int) -> list[np.ndarray[tuple[int], np.dtype[np.float32]]]:
    with mc.Queue(devices, policy="in_order") as queue:
        x, y = arrays(queue)
        out = []
        for _ in range(turns):
            enqueue(queue, x, y, times)
            out.append(x.get().copy())
        return out


@contextmanager
def restless(queue: mc.Queue, seed: int) -> Iterator[None]:
    """Devices leave and come, by another thread, until the end; then all are there."""
    stop, r = threading.Event(), random.Random(seed)

    def work() -> None:
        while not stop.wait(r.uniform(0.0, 0.01)):
            name = r.choice(queue.devices)
            if r.random() < 0.5:
                queue.leave(name, r.choice(["drain", "now"]), returns=True)
            else:
                queue.come(name)
        for name in queue.devices:
            queue.come(name)

    thread = threading.Thread(target=work)
    thread.start()
    timer = threading.Timer(1.0, stop.set)  # who waits for a device that returns, gets it
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        stop.set()
        thread.join()


@pytest.mark.parametrize("zero_copy", ["1", "0"], ids=["zero copy", "copies"])
@pytest.mark.parametrize(
    ("devices", "policy", "shares"),
    [
        *product(["native/2", "opencl/2"], ["heft", "mkmd", "eager"], ["static", "moving"]),
        *product(["native/2"], ["mkmd", "pns"], ["long"]),
    ],
)
def test_bits_are_those_of_one_device(
    devices: str, policy: str, shares: str, zero_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)
    monkeypatch.setenv("MANYCL_DETERMINISTIC", str(int(shares != "moving")))
    if shares == "long":  # all launches may leave a device while they run
        monkeypatch.setattr(preemptible, "SHORTEST", 0.0)
    seed, turns = SystemRandom().randrange(1 << 32), 4
    print("seed", seed)
    expected = alone(devices.partition("/")[0], turns, 4)
    with mc.Queue(devices, policy=policy) as queue:
        x, y = arrays(queue)
        for turn in range(turns):
            with restless(queue, seed + turn):
                enqueue(queue, x, y, 4)
                found = x.get()
            assert (found == expected[turn]).all()
        assert not queue.excluded


def test_most_runs_go_on_without_a_device_that_dies(death: Death, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that change their input run again from what they began with, which is still where it came from."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    seed = SystemRandom().randrange(1 << 32)
    print("seed", seed)
    r, recovered = random.Random(seed), 0
    (expected,) = alone(death.devices, 1, 4)
    for _ in range(8):
        with mc.Queue(f"{death.devices}/3", policy="mkmd") as queue, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x, y = arrays(queue)
            enqueue(queue, x, y, 4)
            assert (x.get() == expected).all()
            x, y = arrays(queue)
            enqueue(queue, x, y, 4)
            death.of, death.calls = victim(queue, r.randrange(3)), r.randrange(8)
            try:
                found = x.get()
            except ManyclError:
                with pytest.raises(ResultError):
                    x.get()
            else:
                assert (found == expected).all()
                recovered += bool(queue.excluded)
            death.of = None
    print("recovered", recovered)
