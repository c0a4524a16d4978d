"""Launches and expectations of ``corpus/suites.cl``."""

import numpy as np

from tests.analysis.corpus_case import Buffer, Case, Launch, Local, f32, i32, index, launch, out, table


def case(name: str, split: str, *launches: Launch, **more: object) -> Case:
    return Case(name, "suites", launches, tuple(c == "y" for c in split), **more)  # type: ignore[arg-type]


def o32(count: int) -> Buffer:
    return out(count, "i4")


def bits(count: int) -> Buffer:
    return Buffer("u1", count, 0, 2)


def sorted_keys(items: int, per_item: int) -> tuple[Buffer, Buffer]:
    """Keys below 4, and where each work-item's keys of each value begin in the sorted array."""
    keys = np.random.default_rng(5).integers(0, 4, items * per_item)
    counts = np.array([[(part == b).sum() for part in keys.reshape(items, per_item)] for b in range(4)]).ravel()
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return table(*keys.tolist(), dtype="u4"), table(*starts.tolist(), dtype="u4")


U = np.uint32
# a root of four keys over four leaves of four keys; the leaves' children are the records
KEYS = table(0, 10, 20, 30, *(10 * leaf + k for leaf in range(4) for k in (0, 3, 5, 8)))
CHILDREN = table(1, 2, 3, 4, *range(16))
ROWS = table(0, 3, 3, 5, 9, 10, 14, 15, 18)
ASCENDING = table(*range(0, 60, 3))

CASES = (
    case("closure_product", "yy", launch((6, 6), (2, 2), out(36, "u1"), bits(36), bits(36), 6)),
    case("closure_union", "yy", launch((6, 6), (2, 2), bits(36), bits(36), 6)),
    case("closure_changed", "yy", launch((6, 6), (2, 2), Buffer("i4", 1, 5, 9), bits(36), bits(36), 6), exact=False),
    case("stencil_rows", "y", launch(8, 2, out(96), f32(96), 12, 8, 2)),
    case("stencil_in_slices", "yy", launch((6, 4), (2, 2), out(24 * 5), f32(24 * 5), 6, 4, 5)),
    case("combustion_rates", "y", launch(12, 4, out(50), f32(10), f32(50), 10)),
    case("combustion_fall_off", "y", launch(12, 4, f32(60), f32(12), 12), idempotent=False),
    case("combustion_totals", "y", launch(12, 4, out(48), f32(60), f32(48), 12)),
    case("tree_search", "y", launch(24, 4, o32(6), KEYS, CHILDREN, i32(6, 0, 40), 0, 2, 4)),
    case("tree_search_range", "y", launch(8, 2, o32(8), o32(8), ASCENDING, i32(8, 0, 30), i32(8, 30, 60), 20)),
    case("hash_search", "y", launch(16, 4, out(16, "u4"), o32(16), U(3), 20), exact=False),
    case("transform_step", "y", launch(16, 4, out(64), f32(64), 4, -1.0)),
    case("transform_local", "y", *(launch(16, 4, f32(64), k) for k in (0, 1)), idempotent=False),
    case("reduce_two_per_item", "y", launch(12, 4, out(3), f32(50), U(50), Local(16))),
    case("triad", "y", launch(16, 4, out(16), f32(16), f32(16), 1.75)),
    case("scan_exclusive", "y", launch(12, 4, o32(24), i32(24), Local(32), 8)),
    case("radix_count", "y", launch(16, 4, out(64, "u4"), Buffer("u4", 64, 0, 2**16), 64, 2)),
    case("radix_scatter", "y", launch(8, 2, out(32, "u4"), *sorted_keys(8, 4), 32, 0), exact=False),
    case("pairs_with_cut_off", "y", launch(8, 2, out(32), f32(32), 0.5, 8)),
    case("neighbour_lists", "y", launch(8, 2, out(32), f32(32), index(24, 8), 3, 8)),
    case("spmv_vector_rows", "y", launch(16, 2, out(8), f32(18), index(18, 8), ROWS, f32(8), 8, Local(8))),
    case("hidden_markov_step", "y", launch(8, 2, out(8), f32(8), f32(64), f32(8), 8)),
    case("edges_and_angles", "yy", launch((8, 6), (4, 2), out(48), out(48), Buffer("u1", 48, 0, 256), 8, 6)),
    case("box_blur_rows", "y", launch(4, 1, out(32 * 4, "u1"), Buffer("u1", 32 * 4, 0, 256), 8, 2)),
    case("floyd_block", "yy", launch((6, 6), (2, 2), i32(36), 6, 2), exact=False),
    case("life", "yy", launch((8, 6), (4, 2), out(48, "u1"), bits(48), 8, 6)),
    case("resample", "yy", launch((12, 8), (4, 2), out(96), f32(24), 6, 4, 12)),
    case("lattice_stream", "yy", launch((6, 4), (2, 2), out(120), f32(120), 6, 4)),
    case("wavelet_level", "y", launch(20, 4, out(32), f32(32), 32)),
)
