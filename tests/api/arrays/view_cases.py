"""Kernels that views are given to, and sessions whose devices hold them in several ways."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pytest

import manycl as mc
from manycl.run.session.session import Session

Numbers = npt.NDArray[np.int32]
N = 192  # elements of an array; parts begin at multiples of 32 elements with PoCL
PROGRAM = mc.Program("""
kernel void add(global int *x, global const int *y) { int i = get_global_id(0); x[i] += 3 * y[i]; }
kernel void make(global int *x, int s) { x[get_global_id(0)] = get_global_id(0) * s + get_num_groups(0); }
kernel void pairs(global int *x, global const int *y, global const int *z) {
    int i = get_global_id(0); x[i] = y[i] - 5 * z[i];
}
kernel void some(global int *x, global const int *y) { int i = get_global_id(0); if (y[i] & 1) x[i] = y[i] * 7; }
kernel void bins(global int *x, global const int *y) { atomic_add(&x[(uint)y[get_global_id(0)] % 3], 1); }
kernel void halves(global int *x, global const int *y) {
    int i = get_global_id(0), n = get_global_size(0); x[i / 2 + (i & 1) * (n / 2)] = y[i];
}
kernel void constants(global int *x, constant int *y) { int i = get_global_id(0); x[i] ^= y[i]; }
kernel void looks(global int *x, global const int *y) {
    if (x != y) x[get_global_id(0)] = y[get_global_id(0)] | 1;
}
kernel void serial(global int *x, global const int *y, int n) { for (int i = 0; i < n; i++) x[i] = y[i] + 1; }
""")
LITTLE = {"MANYCL_ZERO_COPY": "0", "MANYCL_DEVICE_MEMORY": str(2 * 4 * N + 64)}
MEMORIES: dict[str, tuple[str, dict[str, str]]] = {
    "shared": ("native/2", {"MANYCL_ZERO_COPY": "1"}),
    "own": ("native/2", {"MANYCL_ZERO_COPY": "0"}),
    "little": ("native/2", LITTLE),
    "opencl shared": ("opencl/2", {"MANYCL_ZERO_COPY": "1"}),
    "opencl own": ("opencl/2", {"MANYCL_ZERO_COPY": "0"}),
    "opencl little": ("opencl/2", LITTLE),
}


@contextmanager
def session_with(memories: str) -> Iterator[Session]:
    """A session on two halves of the processor, with one of ``MEMORIES``."""
    with pytest.MonkeyPatch.context() as patch:
        devices, settings = MEMORIES[memories]
        for name, value in settings.items():
            patch.setenv(name, value)
        queue = mc.Queue(devices)
    yield queue.session
    queue.session.close()
