"""All applications of Libsplit's Figure 6, by name, with sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from manycl_bench.libsplit import own, polybench
from manycl_bench.libsplit.application import Application


class Entry(NamedTuple):
    """``small``: for tests; ``quick``: some milliseconds to tens of them a repetition on two CPU cores, their
    arrays larger than a processor's caches where memory bounds the kernels (else these are several times as fast if
    the host has done little in between); ``large``: for GPUs (up to 2 GiB of arrays), and on the simulated
    machines. ``regular``: all work-groups of a kernel do the same work."""

    make: Callable[[int], Application]
    small: int
    quick: int
    large: int
    regular: bool = True


APPLICATIONS: dict[str, Entry] = {
    "AESEncrypt": Entry(own.aes, 500, 60_000, 1 << 22),
    "EP": Entry(own.ep, 300, 40_000, 1 << 20),
    "MonteCarlo": Entry(own.monte_carlo, 300, 8_000, 1 << 19),
    "NBody": Entry(own.nbody, 1000, 24_000, 1 << 17, False),
    "SPMV": Entry(own.spmv, 2000, 600_000, 1 << 22, False),
    "2MM": Entry(polybench.two_products, 96, 256, 2048),
    "3MM": Entry(polybench.three_products, 96, 256, 2048),
    "ATAX": Entry(polybench.atax, 200, 2048, 8192),
    "BICG": Entry(polybench.bicg, 200, 2048, 8192),
    "GEMM": Entry(polybench.gemm, 96, 320, 2048),
    "GESUMMV": Entry(polybench.gesummv, 200, 4096, 8192),
    "MVT": Entry(polybench.mvt, 200, 2048, 8192),
    "SYRK": Entry(polybench.syrk, 96, 320, 2048),
    "SYR2K": Entry(polybench.syr2k, 96, 320, 2048),
    "CORR": Entry(polybench.correlation, 96, 320, 2048, False),
    "COVAR": Entry(polybench.covariance, 96, 320, 2048, False),
    "FDTD-2D": Entry(polybench.fdtd2d, 100, 2560, 4096),
    "2DCONV": Entry(polybench.conv2d, 100, 4096, 8192),
    "3DCONV": Entry(polybench.conv3d, 24, 256, 384),
    "Jacobi1D": Entry(polybench.jacobi1d, 5000, 12_000_000, 1 << 24),
    "Jacobi2D": Entry(polybench.jacobi2d, 100, 3072, 16384),
}
