"""The four kernels of four.cl, with what NumPy does for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from manycl.api.arrays.host_arrays import AnyArray
from manycl_bench.libsplit.application import Application, Contents, Step, uniform

SIDE, ACROSS, BODIES = 16, 64, 64
MAD = ("-cl-mad-enable",)


def product(kernel: str, size: int) -> Application:
    def reference(c: Contents) -> None:
        c["c"] = (c["a"].astype(np.float64) @ c["b"].astype(np.float64)).astype(np.float32)

    arrays = {name: uniform(i, size, size) for i, name in enumerate("abc")}
    step = Step(kernel, (size, size), (SIDE, SIDE), ("a", "b", "c", size))
    return Application(kernel, "four.cl", (step,), arrays, ("c",), reference)


def five_points(size: int) -> Application:
    def reference(c: Contents) -> None:
        c["b"] = _five_points(c["a"])

    arrays = {name: uniform(i, size, size) for i, name in enumerate("ab")}
    step = Step("five_points", (size, size), (ACROSS, 4), ("a", "b", size))
    return Application("five_points", "four.cl", (step,), arrays, ("b",), reference)


def bodies(size: int) -> Application:
    def reference(c: Contents) -> None:
        c["force"] = _bodies(c["body"].astype(np.float64)).astype(np.float32)

    arrays = {"body": uniform(1, size, 4), "force": np.zeros((size, 4), np.float32)}
    step = Step("bodies", (size,), (BODIES,), ("body", "force", size))
    return Application("bodies", "four.cl", (step,), arrays, ("force",), reference, 1e-3)


def _five_points(a: AnyArray) -> AnyArray:
    b = a.copy()
    middle = b[1:-1, 1:-1]
    np.add(a[1:-1, 1:-1], a[1:-1, :-2], out=middle)
    for other in (a[1:-1, 2:], a[:-2, 1:-1], a[2:, 1:-1]):
        middle += other
    middle *= np.float32(0.2)
    return b


def _bodies(body: AnyArray) -> AnyArray:
    out = np.zeros_like(body)
    for start in range(0, len(body), 128):
        d = body[None, :, :3] - body[start : start + 128, None, :3]
        d2 = np.einsum("ijk,ijk->ij", d, d) + body.dtype.type(1e-4)
        near = 1 / np.sqrt(d2)
        out[start : start + 128, :3] = np.einsum("ij,ijk->ik", body[:, 3] * near * near * near, d)
    return out


NUMPY: dict[str, Callable[[Contents], object]] = {
    "product_naive": lambda c: np.matmul(c["a"], c["b"], out=c["c"]),
    "product_tiled": lambda c: np.matmul(c["a"], c["b"], out=c["c"]),
    "five_points": lambda c: _five_points(c["a"]),
    "bodies": lambda c: _bodies(c["body"]),
}
"""In single precision, as OpenCL has it."""


def groups(kernel: str, size: int) -> int:
    """Of the loops in hand_cut.cl."""
    return {"five_points": size, "bodies": size // BODIES}.get(kernel, (size // SIDE) ** 2)
