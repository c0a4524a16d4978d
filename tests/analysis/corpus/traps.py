"""Launches and expectations of ``corpus/traps.cl``."""

import numpy as np

from tests.analysis.corpus_case import Buffer, Case, Launch, Same, f32, i32, index, launch, out


def case(name: str, split: str, *launches: Launch, **more: object) -> Case:
    return Case(name, "traps", launches, tuple(c == "y" for c in split), **more)  # type: ignore[arg-type]


def o32(count: int) -> Buffer:
    return out(count, "i4")


CASES = (
    case("overlap_at_border", "n", launch(16, 4, o32(16))),
    case("overlap_before_border", "n", launch(16, 4, o32(16))),
    case("overlap_in_last_group", "n", launch(16, 4, o32(16))),
    case("overlap_by_one_item", "n", launch(16, 4, o32(16), 13)),
    case("overlap_in_tail", "n", launch(16, 4, o32(11), 11)),
    case("overlap_of_loops", "n", launch(8, 2, o32(33), 4)),
    case("overlap_of_strides", "n", launch(16, 4, o32(48), 2, 3)),
    case("overlap_of_stored_vectors", "n", launch(8, 2, o32(25))),
    case("overlap_by_modulo", "n", launch(16, 4, o32(15), 15)),
    case("overlap_by_division", "n", launch(16, 4, o32(2))),
    case("overlap_by_byte", "n", launch(20, 4, o32(256))),
    case("overlap_by_wrap", "n", launch(16, 4, o32(16))),
    case("overlap_by_short", "n", launch(16, 4, o32(8), i32(16))),
    case("overlap_by_unsigned_difference", "n", launch(12, 4, o32(8), np.uint32(3))),
    case("overlap_by_mirror", "n", launch(16, 4, o32(8), 8)),
    case("overlap_by_sum", "nn", launch((4, 4), (2, 2), o32(7))),
    case("overlap_along_x", "ny", launch((8, 4), (2, 2), o32(16), 4)),
    case("overlap_of_pitch", "nn", launch((8, 4), (2, 2), o32(26), 6)),
    case("overlap_of_rotated_tiles", "n", launch(16, 4, o32(32), 3)),
    case("bytes_beside_words", "y", launch(16, 4, Buffer("i4", 16, whole=True, granule=1))),
    case("bytes_of_words", "y", launch(16, 4, Buffer("i4", 16, whole=True, granule=1))),
    case("halves_across_words", "y", launch(16, 4, Buffer("i4", 9, whole=True, granule=2))),
    case("words_written_shorts_read", "n", launch(16, 4, i32(16), 16), idempotent=False),
    case("doubles_over_floats", "y", launch(16, 4, out(32)), exact=False),
    case("doubles_over_floats_overlapping", "n", launch(8, 1, out(16))),
    case("reads_next_group", "n", launch(16, 4, i32(16)), idempotent=False),
    case("reads_group_before", "n", launch(16, 4, i32(16))),
    case("reads_first_of_all", "n", launch(16, 4, i32(16)), idempotent=False),
    case("reads_last_of_all", "n", launch(16, 4, i32(16), 16), idempotent=False),
    case("reads_everything", "n", launch(8, 1, i32(8, 1, 9), 8), idempotent=False),
    case("reads_other_half", "n", launch(16, 4, i32(16), 16), idempotent=False),
    case("reads_upper_writes_lower", "y", launch(16, 4, i32(32), 16)),
    case("reads_odd_writes_even", "y", launch(8, 2, i32(18))),
    case("red_black", "yy", launch((8, 8), (4, 2), f32(100), 10, 0), launch((8, 8), (4, 2), f32(100), 10, 1)),
    case("gauss_seidel", "n", launch(16, 1, f32(18), 18), idempotent=False),
    case("transposed_in_place", "nn", launch((6, 6), (1, 1), i32(36), 6)),
    case("transposed_by_swap", "y", launch(8, 2, i32(64), 8), idempotent=False),
    case("swap_halves", "y", launch(16, 4, i32(32), 16), idempotent=False),
    case("swap_from_both_ends", "y", launch(16, 4, i32(32), 32), idempotent=False),
    case("exchanged_neighbours", "n", launch(16, 1, i32(16))),
    case("shifted_copy", "n", launch(16, 4, i32(32), Same(0), 1), idempotent=False),
    case("stencil_of_copy", "n", launch(16, 4, f32(18), Same(0), 18), idempotent=False),
    case("column_in_place", "y", launch(8, 2, i32(40), 5, 1, 3), idempotent=False),
    case("row_in_place", "y", launch(8, 2, i32(40), 8, 1, 3), idempotent=False),
    case("first_group_writes", "y", launch(16, 4, o32(4))),
    case("first_group_writes_all_read", "n", launch(16, 4, i32(4, 10), o32(16))),
    case("one_item_writes_total", "y", launch(16, 4, o32(1), i32(16), 16)),
    case("any_flag", "y", launch(32, 4, Buffer("i4", 1, 3, 9), Buffer("i4", 32, 850, 950)), exact=False),
    case("group_writes_one_cell", "y", launch(16, 4, o32(4))),
    case("twice_apart", "y", launch(16, 4, o32(32), 16)),
    case("even_and_odd_lists", "y", launch(16, 4, o32(16), 8)),
    case("three_way_interleave", "y", launch(8, 2, o32(24), i32(10))),
    case("bits_of_words", "y", launch(16, 4, Buffer("u4", 16, 0, 2**31))),
    case("scatter_data_times_groups", "y", launch(32, 8, o32(32), index(32, 99)), exact=False),
    case("scatter_wraps_out", "n", launch(32, 8, o32(40), index(32, 99)), exact=False),
)
