"""The kernels of polybench.cl on arrays, and what they compute in NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from manycl.api.arrays.host_arrays import AnyArray
from manycl_bench.libsplit.application import Application, Contents, Step, around, uniform

FLAT, LINE = (32, 8), 64
"""Work-groups of kernels on matrices, and of those with a work-item for a row or column."""
ALPHA, BETA = 1.5, 0.7


def _flat(kernel: str, size: int, *args: str | float) -> Step:
    return Step(kernel, (around(size, FLAT[0]), around(size, FLAT[1])), FLAT, (*args, size))


def _line(kernel: str, size: int, *args: str | float) -> Step:
    return Step(kernel, (around(size, LINE),), (LINE,), (*args, size))


def _arrays(size: int, matrices: str = "", vectors: str = "") -> dict[str, AnyArray]:
    found = {name: uniform(20 + i, size, size) for i, name in enumerate(matrices.split())}
    return found | {name: uniform(40 + i, size) for i, name in enumerate(vectors.split())}


def _made(
    name: str,
    steps: tuple[Step, ...],
    arrays: dict[str, AnyArray],
    results: str,
    compute: Callable[..., tuple[AnyArray, ...]],
    tolerance: float = 1e-4,
) -> Application:
    """``compute`` has all arrays in double precision, by name, and returns the results."""
    names = tuple(results.split())

    def reference(c: Contents) -> None:
        found = compute(**{key: value.astype(np.float64) for key, value in c.items()})
        c.update({key: value.astype(np.float32) for key, value in zip(names, found, strict=True)})

    return Application(name, "polybench.cl", steps, arrays, names, reference, tolerance)


def gemm(n: int) -> Application:
    def compute(a: AnyArray, b: AnyArray, c: AnyArray) -> tuple[AnyArray, ...]:
        return (ALPHA / n * a @ b + BETA * c,)

    return _made("gemm", (_flat("gemm", n, "c", "a", "b", ALPHA / n, BETA),), _arrays(n, "a b c"), "c", compute)


def two_products(n: int) -> Application:
    def compute(a: AnyArray, b: AnyArray, c: AnyArray, t: AnyArray, d: AnyArray) -> tuple[AnyArray, ...]:
        return (a @ b @ c / n**2,)

    steps = (_flat("product", n, "t", "a", "b", 1 / n), _flat("product", n, "d", "t", "c", 1 / n))
    return _made("2mm", steps, _arrays(n, "a b c t d"), "d", compute)


def three_products(n: int) -> Application:
    def compute(a: AnyArray, b: AnyArray, c: AnyArray, d: AnyArray, **_: AnyArray) -> tuple[AnyArray, ...]:
        return ((a @ b) @ (c @ d) / n**3,)

    steps = tuple(_flat("product", n, *args, 1 / n) for args in (("e", "a", "b"), ("f", "c", "d"), ("g", "e", "f")))
    return _made("3mm", steps, _arrays(n, "a b c d e f g"), "g", compute)


def syrk(n: int) -> Application:
    def compute(a: AnyArray, c: AnyArray) -> tuple[AnyArray, ...]:
        return (ALPHA / n * a @ a.T + BETA * c,)

    return _made("syrk", (_flat("syrk", n, "c", "a", ALPHA / n, BETA),), _arrays(n, "a c"), "c", compute)


def syr2k(n: int) -> Application:
    def compute(a: AnyArray, b: AnyArray, c: AnyArray) -> tuple[AnyArray, ...]:
        return (ALPHA / n * (a @ b.T + b @ a.T) + BETA * c,)

    return _made("syr2k", (_flat("syr2k", n, "c", "a", "b", ALPHA / n, BETA),), _arrays(n, "a b c"), "c", compute)


def atax(n: int) -> Application:
    def compute(a: AnyArray, x: AnyArray, t: AnyArray, y: AnyArray) -> tuple[AnyArray, ...]:
        return (y + a.T @ (t + a @ x),)

    steps = (_line("by_rows", n, "t", "a", "x"), _line("by_columns", n, "y", "a", "t"))
    return _made("atax", steps, _arrays(n, "a", "x t y"), "y", compute)


def bicg(n: int) -> Application:
    def compute(a: AnyArray, p: AnyArray, q: AnyArray, r: AnyArray, s: AnyArray) -> tuple[AnyArray, ...]:
        return q + a @ p, s + a.T @ r

    steps = (_line("by_rows", n, "q", "a", "p"), _line("by_columns", n, "s", "a", "r"))
    return _made("bicg", steps, _arrays(n, "a", "p q r s"), "q s", compute)


def mvt(n: int) -> Application:
    def compute(a: AnyArray, x1: AnyArray, x2: AnyArray, y1: AnyArray, y2: AnyArray) -> tuple[AnyArray, ...]:
        return x1 + a @ y1, x2 + a.T @ y2

    steps = (_line("by_rows", n, "x1", "a", "y1"), _line("by_columns", n, "x2", "a", "y2"))
    return _made("mvt", steps, _arrays(n, "a", "x1 x2 y1 y2"), "x1 x2", compute)


def gesummv(n: int) -> Application:
    def compute(a: AnyArray, b: AnyArray, x: AnyArray, **_: AnyArray) -> tuple[AnyArray, ...]:
        return (ALPHA * a @ x + BETA * b @ x,)

    step = _line("gesummv", n, "y", "t", "a", "b", "x", ALPHA, BETA)
    return _made("gesummv", (step,), _arrays(n, "a b", "x y t"), "y", compute)


def gemver(n: int) -> Application:
    def compute(a: AnyArray, x: AnyArray, y: AnyArray, z: AnyArray, w: AnyArray, **v: AnyArray) -> tuple[AnyArray, ...]:
        a = a + np.outer(v["u1"], v["v1"]) + np.outer(v["u2"], v["v2"])
        x = x + BETA / n * a.T @ y + z
        return a, x, w + ALPHA / n * a @ x

    steps = (
        _flat("rank_two", n, "a", "u1", "v1", "u2", "v2"),
        _line("gemver_columns", n, "x", "a", "y", "z", BETA / n),
        _line("gemver_rows", n, "w", "a", "x", ALPHA / n),
    )
    return _made("gemver", steps, _arrays(n, "a", "x y z w u1 v1 u2 v2"), "a x w", compute)


def covariance(n: int) -> Application:
    def compute(data: AnyArray, **_: AnyArray) -> tuple[AnyArray, ...]:
        middle = data - data.mean(0)
        return (middle.T @ middle,)

    steps = (_line("means", n, "m", "data"), _flat("centred", n, "t", "data", "m"), _line("pairs", n, "out", "t"))
    return _made("covariance", steps, _arrays(n, "data t out", "m"), "out", compute, 1e-3)


def correlation(n: int) -> Application:
    def compute(data: AnyArray, **_: AnyArray) -> tuple[AnyArray, ...]:
        standard = (data - data.mean(0)) / data.std(0)
        return (standard.T @ standard / n,)

    steps = (
        _line("means", n, "m", "data"),
        _line("deviations", n, "s", "data", "m"),
        _flat("standard", n, "t", "data", "m", "s"),
        _line("pairs", n, "out", "t"),
    )
    return _made("correlation", steps, _arrays(n, "data t out", "m s"), "out", compute, 1e-3)


def fdtd2d(n: int) -> Application:
    def compute(ex: AnyArray, ey: AnyArray, hz: AnyArray, source: AnyArray) -> tuple[AnyArray, ...]:
        ey[1:] -= 0.5 * np.diff(hz, axis=0)
        ey[0] = source[0]
        ex[:, 1:] -= 0.5 * np.diff(hz, axis=1)
        hz[:-1, :-1] -= 0.7 * (np.diff(ex, axis=1)[:-1] + np.diff(ey, axis=0)[:, :-1])
        return ex, ey, hz

    steps = (
        _flat("fdtd_y", n, "ey", "hz", "source", 0),
        _flat("fdtd_x", n, "ex", "hz"),
        _flat("fdtd_z", n, "hz", "ex", "ey"),
    )
    return _made("fdtd-2d", steps, _arrays(n, "ex ey hz", "source"), "ex ey hz", compute)


def jacobi2d(n: int) -> Application:
    def compute(a: AnyArray, b: AnyArray) -> tuple[AnyArray, ...]:
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[:-2, 1:-1] + a[2:, 1:-1])
        return (b,)

    return _made("jacobi-2d", (_flat("jacobi2d", n, "b", "a"),), _arrays(n, "a b"), "b", compute)


def conv2d(n: int) -> Application:
    weights = np.array([[0.2, -0.3, 0.4], [0.5, 0.6, 0.7], [-0.8, -0.9, 0.1]])

    def compute(a: AnyArray, b: AnyArray) -> tuple[AnyArray, ...]:
        windows = np.lib.stride_tricks.sliding_window_view(a, (3, 3))
        b[1:-1, 1:-1] = np.einsum("ijyx,yx->ij", windows, weights)
        return (b,)

    return _made("conv2d", (_flat("conv2d", n, "b", "a"),), _arrays(n, "a b"), "b", compute)


def conv3d(n: int) -> Application:
    def compute(a: AnyArray, b: AnyArray) -> tuple[AnyArray, ...]:
        m = slice(1, -1)
        b[m, m, m] = 0.5 * a[m, m, m] + 0.2 * (a[:-2, m, m] + a[2:, m, m]) - 0.3 * (a[m, :-2, m] + a[m, 2:, m])
        b[m, m, m] += 0.4 * (a[m, m, :-2] + a[m, m, 2:])
        return (b,)

    arrays = {"a": uniform(20, n, n, n), "b": uniform(21, n, n, n)}
    return _made("conv3d", (_flat("conv3d", n, "b", "a"),), arrays, "b", compute)


def gramschmidt(n: int) -> Application:
    def compute(a: AnyArray, r: AnyArray, q: AnyArray) -> tuple[AnyArray, ...]:
        for k in range(n):
            r[k, k] = np.sqrt((a[:, k] ** 2).sum())
            q[:, k] = a[:, k] / r[k, k]
            r[k, k + 1 :] = q[:, k] @ a[:, k + 1 :]
            a[:, k + 1 :] -= np.outer(q[:, k], r[k, k + 1 :])
        return a, r, q

    steps = tuple(
        step
        for k in range(n)
        for step in (
            Step("column_length", (1,), (1,), ("r", "a", k, n)),
            _line("direction", n, "q", "a", "r", k),
            _line("remove_direction", n, "a", "r", "q", k),
        )
    )
    arrays = _arrays(n, "a r q")
    arrays["a"] += np.eye(n, dtype=np.float32) * n  # far from singular: nothing is lost by rounding
    return _made("gramschmidt", steps, arrays, "a r q", compute, 1e-3)


def doitgen(n: int) -> Application:
    def compute(a: AnyArray, c: AnyArray, **_: AnyArray) -> tuple[AnyArray, ...]:
        return (a @ c,)

    arrays = {"a": uniform(20, n, n, n), "c": uniform(21, n, n), "sum": uniform(22, n, n, n)}
    size = around(n, FLAT[0]), around(n, FLAT[1]), n
    step = Step("doitgen", size, (*FLAT, 1), ("sum", "a", "c", n))
    return _made("doitgen", (step,), arrays, "sum", compute)


KERNELS: dict[str, tuple[Callable[[int], Application], int, int]] = {
    "gemm": (gemm, 40, 384),
    "2mm": (two_products, 40, 256),
    "3mm": (three_products, 40, 256),
    "atax": (atax, 70, 2048),
    "bicg": (bicg, 70, 2048),
    "mvt": (mvt, 70, 2048),
    "gesummv": (gesummv, 70, 2048),
    "gemver": (gemver, 70, 2048),
    "syrk": (syrk, 40, 320),
    "syr2k": (syr2k, 40, 256),
    "correlation": (correlation, 70, 320),
    "covariance": (covariance, 70, 320),
    "fdtd-2d": (fdtd2d, 70, 2048),
    "jacobi-2d": (jacobi2d, 70, 2048),
    "conv2d": (conv2d, 70, 2048),
    "conv3d": (conv3d, 20, 160),
    "gramschmidt": (gramschmidt, 20, 320),
    "doitgen": (doitgen, 20, 96),
}
"""How an application is made, its size for tests, and else."""
