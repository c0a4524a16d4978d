"""Loops within branches that some work-items take are taken apart, with the results that plain loops have."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from manycl.analysis.reading.frontend import load
from manycl.analysis.reading.options import read_options
from manycl.analysis.work_group.function import work_group_function
from manycl.drivers.driver import Source
from tests.analysis.work_group import natively

ARGUMENTS = "global int *out, global const int *a, int n"
Oracle = Callable[[np.ndarray, int, int], int | None]
"""What work-item ``i`` writes, of ``a``, for ``n``; None: nothing."""


def _last_above(a: np.ndarray, n: int, i: int) -> int | None:
    above = [k for k in range(n) if a[k, i] > 5] if i < n else []
    return above[-1] if above else 0 if i < n else None


def _until(a: np.ndarray, n: int, i: int, end: int) -> int | None:
    return int(a[:end, i].sum()) if i < n else None


def _first_above(a: np.ndarray, n: int, i: int) -> int | None:
    above = [k for k in range(n) if a[k, i] > 7] if i < n else []
    return _until(a, n, i, above[0] if above else n)


def _pairs(a: np.ndarray, n: int, i: int) -> int | None:
    return sum((k - i) * int(a[:, k] @ a[:, i]) for k in range(i, n)) if i < n else None


SUM = "for (int k = 0; k < n; k++) s += a[k * n + i];"
KERNELS: dict[str, tuple[str, Oracle]] = {
    "guarded": (f"if (i < n) {{ int s = 0; {SUM} out[i] = s; }}", lambda a, n, i: _until(a, n, i, n)),
    "in memory": (
        "if (i < n) { out[i] = 0; for (int k = 0; k < n; k++) out[i] += a[k * n + i]; }",
        lambda a, n, i: _until(a, n, i, n),
    ),
    "some of them": (
        f"if (i < n) {{ if (i % 3 == 0) {{ int s = 0; {SUM} out[i] = s; }} else out[i] = -i; }}",
        lambda a, n, i: _until(a, n, i, n) if i % 3 == 0 or i >= n else -i,
    ),
    "assigned by some": (
        "if (i < n) { int s = 0; for (int k = 0; k < n; k++) { if (a[k * n + i] > 5) s = k; } out[i] = s; }",
        _last_above,
    ),
    "turns of their own": (
        "if (i < n) { int s = 0, m = n; if (i & 1) m = n / 2;"
        " for (int k = 0; k < m; k++) s += a[k * n + i]; out[i] = s; }",
        lambda a, n, i: _until(a, n, i, n // 2 if i & 1 else n),
    ),
    "left alike": (
        "if (i < n) { int s = 0, m = n / 3;"
        " for (int k = 0; k < n; k++) { if (k == m) break; s += a[k * n + i]; } out[i] = s; }",
        lambda a, n, i: _until(a, n, i, n // 3 if n // 3 < n else n),
    ),
    "left by some": (
        "if (i < n) { int s = 0;"
        " for (int k = 0; k < n; k++) { if (a[k * n + i] > 7) break; s += a[k * n + i]; } out[i] = s; }",
        _first_above,
    ),
    "changed between loops": (
        f"if (i < n) {{ int s = 0, m = n; {SUM} m = n / 2;"
        " for (int k = 0; k < m; k++) s += a[k * n + i]; out[i] = s; }",
        lambda a, n, i: int(a[:, i].sum() + a[: n // 2, i].sum()) if i < n else None,
    ),
    "within turns of their own": (
        "if (i < n) { int t = 0; for (int j = i; j < n; j++) { int s = 0; for (int k = 0; k < n; k++)"
        " s += a[k * n + i] * a[k * n + j]; t += (j - i) * s; } out[i] = t; }",
        _pairs,
    ),
    "rows": (
        "if (i < n) { int s = 0; for (int k = 0; k < n; k++) s += a[i * n + k]; out[i] = s; }",
        lambda a, n, i: int(a[i].sum()) if i < n else None,
    ),
    "in a switch": (
        f"switch (i % 2) {{ case 0: if (i < n) {{ int s = 0; {SUM} out[i] = s; }} break;"
        " default: if (i < n) out[i] = 5; }",
        lambda a, n, i: (_until(a, n, i, n) if i % 2 == 0 else 5) if i < n else None,
    ),
}


def kernel(name: str) -> str:
    return f"kernel void k({ARGUMENTS}) {{ int i = get_global_id(0); {KERNELS[name][0]} }}"


@pytest.mark.parametrize("n", [1, 7, 130])
@pytest.mark.parametrize("name", KERNELS)
def test_results(name: str, n: int) -> None:
    a = np.random.default_rng(n).integers(0, 9, (n, n), np.int32)
    start = np.arange(1000, 1192, dtype=np.int32)
    driver = natively.device()
    program = driver.kernel(driver.build(Source(kernel(name))), "k")
    assert program.kernel.refused is None  # type: ignore[attr-defined]
    out, given = driver.allocate(start.nbytes), driver.allocate(a.nbytes)
    natively.view(out)[:], natively.view(given)[:] = start.view(np.uint8), a.reshape(-1).view(np.uint8)
    for index, value in enumerate((out, given, np.int32(n).tobytes())):
        program.set(index, value)
    driver.wait(driver.launch(driver.queue(False), program, (192,), (64,), None, None))
    oracle = KERNELS[name][1]
    wanted = [start[i] if (value := oracle(a, n, i)) is None else value for i in range(192)]
    assert natively.view(out).view(np.int32).tolist() == wanted


@pytest.mark.parametrize("name", KERNELS)
def test_which_are_taken_apart(name: str) -> None:
    """Of matrices whose columns work-items read: in vectors of neighbours. Not of rows, which have none."""
    unit = load(kernel(name), "<source>", None, read_options(()), everything=True)
    source = work_group_function(unit, "k", (64, 1, 1)).source
    apart = re.search(r"for \(int k = 0; k < \w+; k\+\+\) \{\s*(if \([^{]*\{\s*break;\s*\}\s*)?\w*ITEMS\b", source)
    assert (apart is None) == (name in ("turns of their own", "left by some", "rows", "in a switch"))
