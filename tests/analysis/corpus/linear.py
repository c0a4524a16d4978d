"""Launches and expectations of ``corpus/linear.cl``."""

import numpy as np

from tests.analysis.corpus_case import Case, Launch, Local, f32, launch, out


def case(name: str, split: str, *launches: Launch, **more: object) -> Case:
    return Case(name, "linear", launches, tuple(c == "y" for c in split), **more)  # type: ignore[arg-type]


CASES = (
    case("matrix_add", "yy", launch((8, 8), (4, 2), out(49), f32(49), f32(49), 2.0, 0.5, 7)),
    case("matrix_transpose", "yy", launch((8, 8), (4, 2), out(42), f32(42), 7, 6)),
    case("transposed_multiply", "yy", launch((6, 6), (2, 2), out(36), f32(36), f32(36), 6)),
    case("multiply_by_transposed", "yy", launch((6, 6), (2, 2), out(36), f32(36), f32(36), 6)),
    case("multiply_diagonal", "yy", launch((6, 4), (2, 2), out(24), f32(24), f32(6), 4, 6)),
    case("matrix_vector", "y", launch(12, 4, out(10), f32(70), f32(7), 10, 7)),
    case("vector_matrix", "y", launch(8, 4, out(7), f32(70), f32(10), 10, 7)),
    case("axpy", "y", launch(16, 4, f32(14), f32(14), 2.0, np.uint32(14)), idempotent=False),
    case("three_vectors", "y", launch(16, 4, f32(14), f32(14), f32(14), 0.5, 0.25, 14), idempotent=False),
    case("dot_partial", "y", launch(16, 4, out(4), f32(30), f32(30), 30, Local(16))),
    case("jacobi_invert_diagonal", "y", launch(8, 2, out(8), f32(64), 8)),
    case("jacobi_off_diagonal", "yy", launch((6, 6), (2, 2), out(36), f32(36), 6)),
    case(
        "gemm_alpha_beta", "yy", launch((8, 8), (4, 2), f32(42), f32(35), f32(30), 2.0, 0.5, 7, 6, 5), idempotent=False
    ),
    case("gemm_tiled", "yy", launch((8, 8), (4, 4), out(64), f32(64), f32(64), 8)),
    case("gemm_registers", "yy", launch((4, 4), (2, 1), out(64), f32(64), f32(64), 8)),
    case("gemm_vectors", "yy", launch((2, 8), (1, 2), out(64), f32(64), f32(64), 8)),
    case("two_mm_first", "yy", launch((8, 8), (4, 2), out(42), f32(35), f32(30), 2.0, 7, 6, 5)),
    case("two_mm_second", "yy", launch((8, 8), (4, 2), f32(35), f32(42), f32(30), 0.5, 7, 6, 5), idempotent=False),
    case("three_mm_step", "yy", launch((8, 8), (4, 2), out(42), f32(35), f32(30), 7, 6, 5)),
    case("atax_first", "y", launch(8, 4, out(7), f32(35), f32(5), 7, 5)),
    case("atax_second", "y", launch(8, 4, out(5), f32(35), f32(7), 7, 5)),
    case("bicg_q", "y", launch(8, 4, out(7), f32(35), f32(5), 7, 5)),
    case("bicg_s", "y", launch(8, 2, out(5), f32(35), f32(7), 7, 5)),
    case("gesummv", "y", launch(8, 4, out(7), out(7), f32(49), f32(49), f32(7), 2.0, 0.5, 7)),
    case("mvt_first", "y", launch(8, 4, f32(7), f32(49), f32(7), 7), idempotent=False),
    case("mvt_second", "y", launch(8, 4, f32(7), f32(49), f32(7), 7), idempotent=False),
    case("syrk", "yy", launch((8, 8), (2, 2), f32(49), f32(35), 2.0, 0.5, 7, 5), idempotent=False),
    case("syr2k", "yy", launch((8, 8), (2, 2), f32(49), f32(35), f32(35), 2.0, 0.5, 7, 5), idempotent=False),
    case("column_mean", "y", launch(8, 4, out(5), f32(35), 7, 5)),
    case("column_deviation", "y", launch(8, 4, out(5), f32(5), f32(35), 7, 5, 0.1)),
    case("centre_and_scale", "yy", launch((8, 8), (4, 2), f32(35), f32(5), f32(5), 7, 5), idempotent=False),
    case("centre", "yy", launch((8, 8), (4, 2), f32(35), f32(5), 7, 5), idempotent=False),
    case("correlation", "y", launch(8, 2, out(49), f32(42), 6, 7), writes="a row's upper and a column's lower part"),
    case("covariance", "y", launch(8, 2, out(49), f32(42), 6, 7)),
    case("fdtd_2d_ey", "yy", launch((8, 8), (4, 2), f32(42), f32(42), f32(4), 2, 7, 6), idempotent=False),
    case("fdtd_2d_ex", "yy", launch((8, 8), (4, 2), f32(49), f32(42), 7, 6), idempotent=False),
    case("fdtd_2d_hz", "yy", launch((8, 8), (4, 2), f32(42), f32(49), f32(48), 7, 6), idempotent=False),
    case("convolution_2d", "yy", launch((8, 8), (4, 2), out(42), f32(42), 7, 6)),
    case("convolution_3d", "yy", launch((8, 8), (4, 2), out(210), f32(210), 5, 6, 7, 2)),
    case("jacobi_1d", "y", launch(16, 4, out(14), f32(14), 14)),
    case("jacobi_1d_copy", "y", launch(16, 4, f32(14), f32(14), 14)),
    case("jacobi_2d", "yy", launch((8, 8), (4, 2), out(49), f32(49), 7)),
    case("jacobi_2d_copy", "yy", launch((8, 8), (4, 2), f32(49), f32(49), 7)),
    case("attention_scores", "yy", launch((6, 6), (2, 2), out(36), f32(36), f32(36), 6, 0.4)),
    case("softmax_row_each", "y", launch(6, 2, out(36), f32(36), 6)),
    case("cholesky_column", "y", launch(8, 2, f32(64), 8, 2), idempotent=False),
    case("cholesky_trailing", "yy", launch((8, 8), (2, 2), f32(64), 8, 2), idempotent=False),
    case("forward_substitution", "y", launch(8, 2, f32(8), f32(64), 8, 2), idempotent=False),
    case("gaussian_multipliers", "y", launch(8, 2, out(64), f32(64), 8, 2)),
)
