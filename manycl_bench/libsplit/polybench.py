"""Kernels like those of PolyBench, which Libsplit measures: what they compute is the suite's, the code is our own.

``size`` is the number of rows of the (square) matrices, or of points of a side of the grid.
"""

from __future__ import annotations

import numpy as np

from manycl.api.arrays.host_arrays import AnyArray
from manycl_bench.libsplit.application import Application, Contents, Step, around, uniform

ROW = (64, 1)
"""Work-groups of kernels on matrices: a part of one row, so that ranges of rows can be of any length."""
LINE = 32
"""Of kernels with a work-item for a row or column, of which there are few."""
ALPHA, BETA = 1.5, 0.7


def _flat(size: int) -> tuple[int, ...]:
    return (around(size, ROW[0]), size)


def _on_rows(kernel: str, size: int, *args: str | float) -> Step:
    return Step(kernel, _flat(size), ROW, (*args, size))


def _on_line(kernel: str, size: int, *args: str | float) -> Step:
    return Step(kernel, (around(size, LINE),), (LINE,), (*args, size))


def _matrices(size: int, *names: str) -> dict[str, AnyArray]:
    return {name: uniform(20 + i, size, size) for i, name in enumerate(names)}


def _vectors(size: int, *names: str) -> dict[str, AnyArray]:
    return {name: uniform(40 + i, size) for i, name in enumerate(names)}


def _wide(contents: Contents, *names: str) -> list[AnyArray]:
    return [contents[name].astype(np.float64) for name in names]


def _single(data: AnyArray) -> AnyArray:
    return data.astype(np.float32)


# matrices


def gemm(size: int) -> Application:
    """C := alpha A B + beta C."""

    def reference(c: Contents) -> None:
        a, b, old = _wide(c, "a", "b", "c")
        c["c"] = _single(ALPHA / size * a @ b + BETA * old)

    step = _on_rows("gemm", size, "c", "a", "b", ALPHA / size, BETA)
    return Application("GEMM", "matrices.cl", (step,), _matrices(size, "a", "b", "c"), ("c",), reference)


def two_products(size: int) -> Application:
    """D := alpha A B C."""

    def reference(c: Contents) -> None:
        a, b, d = _wide(c, "a", "b", "c")
        c["t"] = _single(a @ b / size)
        c["d"] = _single(c["t"].astype(np.float64) @ d / size)

    steps = (
        _on_rows("product", size, "t", "a", "b", 1.0 / size),
        _on_rows("product", size, "d", "t", "c", 1.0 / size),
    )
    return Application("2MM", "matrices.cl", steps, _matrices(size, "a", "b", "c", "t", "d"), ("d",), reference)


def three_products(size: int) -> Application:
    """G := (A B) (C D)."""

    def reference(c: Contents) -> None:
        a, b, d, e = _wide(c, "a", "b", "c", "d")
        c["e"], c["f"] = _single(a @ b / size), _single(d @ e / size)
        left, right = _wide(c, "e", "f")
        c["g"] = _single(left @ right / size)

    steps = tuple(
        _on_rows("product", size, *args, 1.0 / size) for args in (("e", "a", "b"), ("f", "c", "d"), ("g", "e", "f"))
    )
    names = ("a", "b", "c", "d", "e", "f", "g")
    return Application("3MM", "matrices.cl", steps, _matrices(size, *names), ("g",), reference)


def syrk(size: int) -> Application:
    """C := alpha A A^T + beta C."""

    def reference(c: Contents) -> None:
        a, old = _wide(c, "a", "c")
        c["c"] = _single(ALPHA / size * a @ a.T + BETA * old)

    step = _on_rows("syrk", size, "c", "a", ALPHA / size, BETA)
    return Application("SYRK", "matrices.cl", (step,), _matrices(size, "a", "c"), ("c",), reference)


def syr2k(size: int) -> Application:
    """C := alpha (A B^T + B A^T) + beta C."""

    def reference(c: Contents) -> None:
        a, b, old = _wide(c, "a", "b", "c")
        c["c"] = _single(ALPHA / size * (a @ b.T + b @ a.T) + BETA * old)

    step = _on_rows("syr2k", size, "c", "a", "b", ALPHA / size, BETA)
    return Application("SYR2K", "matrices.cl", (step,), _matrices(size, "a", "b", "c"), ("c",), reference)


def covariance(size: int) -> Application:
    """The upper triangle of the covariances of ``size`` variables."""

    def reference(c: Contents) -> None:
        (data,) = _wide(c, "data")
        c["mean"] = _single(data.mean(0))
        c["centred"] = _single(data - data.mean(0))
        out = np.triu(c["centred"].astype(np.float64).T @ c["centred"] / size)
        c["out"] = _single(np.tril(c["out"], -1) + out)

    steps = (
        _on_line("means", size, "mean", "data"),
        _on_rows("centre", size, "centred", "data", "mean"),
        _on_rows("triangle", size, "out", "centred"),
    )
    arrays = {**_matrices(size, "data", "centred", "out"), **_vectors(size, "mean")}
    return Application("COVAR", "matrices.cl", steps, arrays, ("out",), reference, 1e-3)


def correlation(size: int) -> Application:
    """The upper triangle of the correlations of ``size`` variables."""

    def reference(c: Contents) -> None:
        (data,) = _wide(c, "data")
        c["mean"], c["deviation"] = _single(data.mean(0)), _single(data.std(0))
        c["standard"] = _single((data - data.mean(0)) / data.std(0))
        out = np.triu(c["standard"].astype(np.float64).T @ c["standard"] / size)
        c["out"] = _single(np.tril(c["out"], -1) + out)

    steps = (
        _on_line("means", size, "mean", "data"),
        _on_line("deviations", size, "deviation", "data", "mean"),
        _on_rows("standardise", size, "standard", "data", "mean", "deviation"),
        _on_rows("triangle", size, "out", "standard"),
    )
    arrays = {**_matrices(size, "data", "standard", "out"), **_vectors(size, "mean", "deviation")}
    return Application("CORR", "matrices.cl", steps, arrays, ("out",), reference, 1e-3)


# vectors


def atax(size: int) -> Application:
    """y := A^T (A x)."""

    def reference(c: Contents) -> None:
        a, x = _wide(c, "a", "x")
        c["t"] = _single(a @ x)
        c["y"] = _single(a.T @ (a @ x))

    steps = (_on_line("rows_times", size, "t", "a", "x"), _on_line("columns_times", size, "y", "a", "t"))
    arrays = {**_matrices(size, "a"), **_vectors(size, "x", "t", "y")}
    return Application("ATAX", "vectors.cl", steps, arrays, ("y",), reference)


def bicg(size: int) -> Application:
    """q := A p and s := A^T r."""

    def reference(c: Contents) -> None:
        a, p, r = _wide(c, "a", "p", "r")
        c["q"], c["s"] = _single(a @ p), _single(a.T @ r)

    steps = (_on_line("rows_times", size, "q", "a", "p"), _on_line("columns_times", size, "s", "a", "r"))
    arrays = {**_matrices(size, "a"), **_vectors(size, "p", "q", "r", "s")}
    return Application("BICG", "vectors.cl", steps, arrays, ("q", "s"), reference)


def gesummv(size: int) -> Application:
    """y := alpha A x + beta B x."""

    def reference(c: Contents) -> None:
        a, b, x = _wide(c, "a", "b", "x")
        c["y"] = _single(ALPHA * a @ x + BETA * b @ x)

    step = _on_line("gesummv", size, "y", "a", "b", "x", ALPHA, BETA)
    arrays = {**_matrices(size, "a", "b"), **_vectors(size, "x", "y")}
    return Application("GESUMMV", "vectors.cl", (step,), arrays, ("y",), reference)


def mvt(size: int) -> Application:
    """x1 := x1 + A y1 and x2 := x2 + A^T y2."""

    def reference(c: Contents) -> None:
        a, x1, x2, y1, y2 = _wide(c, "a", "x1", "x2", "y1", "y2")
        c["x1"], c["x2"] = _single(x1 + a @ y1), _single(x2 + a.T @ y2)

    steps = (_on_line("mvt_rows", size, "x1", "a", "y1"), _on_line("mvt_columns", size, "x2", "a", "y2"))
    arrays = {**_matrices(size, "a"), **_vectors(size, "x1", "x2", "y1", "y2")}
    return Application("MVT", "vectors.cl", steps, arrays, ("x1", "x2"), reference)


# stencils


def conv2d(size: int) -> Application:
    """A stencil of nine points."""
    weights = np.array([[0.2, -0.3, 0.4], [0.5, 0.6, 0.7], [-0.8, -0.9, 0.1]])

    def reference(c: Contents) -> None:
        (a,) = _wide(c, "a")
        n = size
        total = sum(weights[i, j] * a[i : n - 2 + i, j : n - 2 + j] for i in range(3) for j in range(3))
        c["b"][1:-1, 1:-1] = total

    step = _on_rows("conv2d", size, "b", "a")
    return Application("2DCONV", "stencils.cl", (step,), _matrices(size, "a", "b"), ("b",), reference)


def conv3d(size: int) -> Application:
    """A stencil of nine points in three dimensions."""

    def reference(c: Contents) -> None:
        (a,) = _wide(c, "a")
        m = slice(1, -1)
        total = 0.5 * a[m, m, m] + 0.2 * (a[:-2, m, m] + a[2:, m, m]) - 0.3 * (a[m, :-2, m] + a[m, 2:, m])
        total += 0.4 * (a[m, m, :-2] + a[m, m, 2:]) + 0.1 * (a[:-2, :-2, :-2] + a[2:, 2:, 2:])
        c["b"][m, m, m] = total

    arrays = {"a": uniform(20, size, size, size), "b": uniform(21, size, size, size)}
    step = Step("conv3d", (around(size, 32), size, size), (32, 1, 1), ("b", "a", size))
    return Application("3DCONV", "stencils.cl", (step,), arrays, ("b",), reference)


def fdtd2d(size: int) -> Application:
    """One time step of a wave: two electric fields from the magnetic one, and that from both."""

    def reference(c: Contents) -> None:
        ex, ey, hz, source = _wide(c, "ex", "ey", "hz", "source")
        ey[1:] -= 0.5 * (hz[1:] - hz[:-1])
        ey[0] = source[0]
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
        c["ex"], c["ey"], c["hz"] = _single(ex), _single(ey), _single(hz)

    steps = (
        Step("fdtd_y", _flat(size), ROW, ("ey", "hz", "source", 0, size)),
        _on_rows("fdtd_x", size, "ex", "hz"),
        _on_rows("fdtd_z", size, "hz", "ex", "ey"),
    )
    arrays = {**_matrices(size, "ex", "ey", "hz"), **_vectors(size, "source")}
    return Application("FDTD-2D", "stencils.cl", steps, arrays, ("ex", "ey", "hz"), reference)


def jacobi1d(size: int) -> Application:
    """A stencil of three points, and the copy back."""

    def reference(c: Contents) -> None:
        (a,) = _wide(c, "a")
        c["b"][1:-1] = 0.33333 * (a[:-2] + a[1:-1] + a[2:])
        c["a"][1:-1] = c["b"][1:-1]

    steps = (_on_line("jacobi1d", size, "b", "a"), _on_line("copy1d", size, "a", "b"))
    return Application("Jacobi1D", "stencils.cl", steps, _vectors(size, "a", "b"), ("a",), reference)


def jacobi2d(size: int) -> Application:
    """A stencil of five points, and the copy back."""

    def reference(c: Contents) -> None:
        (a,) = _wide(c, "a")
        c["b"][1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[:-2, 1:-1] + a[2:, 1:-1])
        c["a"][1:-1, 1:-1] = c["b"][1:-1, 1:-1]

    steps = (_on_rows("jacobi2d", size, "b", "a"), _on_rows("copy2d", size, "a", "b"))
    return Application("Jacobi2D", "stencils.cl", steps, _matrices(size, "a", "b"), ("a",), reference)
