"""Launches and expectations of ``corpus/published.cl``."""

import numpy as np

from tests.analysis.corpus_case import Buffer, Case, Launch, Local, f32, i32, index, launch, out, table


def case(name: str, split: str, *launches: Launch, **more: object) -> Case:
    return Case(name, "published", launches, tuple(c == "y" for c in split), **more)  # type: ignore[arg-type]


def o32(count: int) -> Buffer:
    return out(count, "i4")


def bits(count: int) -> Buffer:
    return Buffer("u1", count, 0, 2)


U = np.uint32
ROWS = table(0, 3, 3, 5, 9, 10, 14, 15, 18)
EDGES = index(18, 8)
FRONTIER = table(1, 0, 0, 1, 0, 1, 0, 0, dtype="u1")
SEEN = table(1, 0, 0, 1, 0, 1, 0, 0, dtype="u1")

CASES = (
    case("black_scholes", "y", launch(16, 4, out(40), out(40), f32(40), f32(40), f32(40), 0.02, 0.3, U(40))),
    case("n_body", "y", launch(16, 4, out(64), out(64), f32(64), f32(64), Local(64), 0.01, 0.1, 16)),
    case("matrix_multiply", "yy", launch((8, 8), (4, 2), out(49), f32(42), f32(42), 7, 7, 6)),
    case("fdtd_3d", "yy", launch((8, 4), (4, 2), out(9 * 8 * 7), f32(9 * 8 * 7), f32(3), 5, 4, 3)),
    case("sobel", "yy", launch((12, 8), (4, 2), out(96, "u1"), Buffer("u1", 96, 0, 256), 12, 8)),
    case("median_filter", "yy", launch((8, 6), (4, 2), o32(48), i32(48), 8, 6)),
    case("k_means_assign", "y", launch(16, 4, o32(14), f32(42), f32(12), 4, 3, 14)),
    case("stencil_2d", "yy", launch((8, 8), (4, 2), out(64), f32(64), 8, 8)),
    case("stencil_3d", "yyy", launch((4, 4, 4), (2, 2, 2), out(150), f32(150), 6, 5, 5)),
    case("stencil_border", "yy", launch((8, 6), (4, 2), out(48), f32(48), 8, 6)),
    case("jacobi", "y", launch(12, 4, out(10), f32(10), f32(100), f32(10), 10)),
    case("hotspot", "yy", launch((8, 8), (4, 4), out(56), f32(56), f32(56), 8, 7, 0.1)),
    case("pathfinder_row", "y", launch(16, 4, o32(14), i32(14), i32(42), 14, 2)),
    # row k and column k are read by all; they may be rewritten with what they hold
    case("closure_step", "nn", launch((8, 8), (4, 4), bits(64), 8, 3), exact=False),
    case("closure_out_of_place", "yy", launch((8, 8), (4, 4), out(64, "u1"), bits(64), 8, 3)),
    case("lud_column", "y", launch(8, 2, f32(64), 8, 2), idempotent=False),
    case("lud_update", "yy", launch((8, 8), (2, 2), f32(64), 8, 2), idempotent=False),
    case("bitonic_step", "y", launch(16, 4, i32(32), 4, 8), launch(16, 4, i32(32), 1, 2)),
    case("odd_even_step", "y", launch(16, 4, i32(32), 32, 0), launch(16, 4, i32(32), 32, 1), exact=False),
    case("spmv_csr", "y", launch(8, 2, out(8), ROWS, index(18, 8), f32(18), f32(8), 8)),
    case("spmv_ell", "y", launch(8, 2, out(8), index(24, 8), f32(24), f32(8), 8, 3)),
    case("csr_scale_rows", "y", launch(8, 2, f32(18), ROWS, f32(8, 3, 5)), idempotent=False, exact=False),
    case(
        "bfs_expand",
        "n",
        launch(8, 2, ROWS, EDGES, FRONTIER, bits(8), SEEN, i32(8), 8),
        idempotent=False,
        exact=False,
    ),
    case("bfs_update", "y", launch(16, 4, bits(14), bits(14), bits(14), o32(1), 14), exact=False),
    case("cipher_rounds", "y", launch(8, 2, out(32, "u4"), Buffer("u4", 32, 0, 2**32), out(256, "u1"), i32(6), 6)),
    case("random_pairs", "y", launch(8, 2, out(8), out(8), out(32, "u4"), U(77), 5)),
    case("monte_carlo", "y", launch(8, 2, out(8), f32(8), U(77), 5)),
    case("mandelbrot", "yy", launch((8, 8), (4, 2), o32(64), 8, 0.3, 12)),
    case("nearest_neighbour", "y", launch(16, 4, out(14), f32(28), 14, 0.5, 0.25)),
    case("convolution_rows", "yy", launch((8, 4), (4, 2), out(32), f32(32), f32(5), 8, 2)),
    case("wave_diagonal", "y", launch(8, 2, i32(64), i32(64, 1, 9), 8, 9)),
    case("reaction_rates", "y", launch(8, 2, out(32), f32(8), f32(32), 8, 4)),
    case("gray_image", "yy", launch((8, 4), (4, 2), out(32, "u1"), Buffer("u1", 128, 0, 256), 8)),
)
