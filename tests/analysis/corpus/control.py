"""Launches and expectations of ``corpus/control.cl``."""

import numpy as np

from tests.analysis.corpus_case import Buffer, Case, Launch, f32, i32, index, launch, out, table


def case(name: str, split: str, *launches: Launch, **more: object) -> Case:
    return Case(name, "control", launches, tuple(c == "y" for c in split), **more)  # type: ignore[arg-type]


def o32(count: int) -> Buffer:
    return out(count, "i4")


REVERSED = tuple(reversed(range(16)))

CASES = (
    case("nested_guards", "y", launch(32, 4, o32(32), 5, 21)),
    case("or_guard", "y", launch(32, 4, o32(32), 20)),
    case("ternary_index", "y", launch(16, 4, o32(32), i32(16), 9)),
    case("two_returns", "yy", launch((12, 12), (4, 3), o32(100), 10)),
    case("for_down", "y", launch(8, 2, o32(40), 5)),
    case("for_step", "y", launch(8, 2, o32(56), 7)),
    case("for_not_equal", "y", launch(8, 2, o32(40), 5)),
    case("while_loop", "y", launch(8, 2, o32(40), 5)),
    case("do_loop", "y", launch(8, 2, o32(64), 5), launch(8, 2, o32(64), -3)),
    case("count_down_post", "y", launch(8, 2, o32(40), np.uint32(5))),
    case("grid_stride", "y", launch(16, 4, out(100), f32(100), 90)),
    case("grid_stride_groups", "y", launch(16, 4, out(44), 11)),
    case("geometric_up", "y", launch(8, 2, o32(128), 16)),
    case("geometric_down", "y", launch(8, 2, o32(128), 16), launch(4, 2, o32(52), 13)),
    case("break_at", "y", launch(8, 2, o32(56), 7, 4), launch(8, 2, o32(56), 7, 9)),
    case("continue_odd", "y", launch(8, 2, o32(56), 7)),
    case("flag_carried", "y", launch(32, 4, o32(32), i32(32), 6, 3)),
    case("triangular", "y", launch(12, 3, out(144), 12)),
    case("packed_triangle", "y", launch(8, 2, out(36), 8), exact=False, writes="a quadratic interval"),
    case("nested_loops", "y", launch(6, 2, o32(6 * 3 * 7), 3, 7)),
    case("two_counters", "y", launch(6, 2, o32(42), 7)),
    case("loop_from_id", "y", launch(12, 3, o32(40), 32)),
    case("infinite_with_break", "y", launch(8, 2, o32(40), 5)),
    case("data_dependent_loop", "y", launch(8, 2, o32(64), index(8, 8), 8), exact=False),
    case("divide_modulo", "y", launch(40, 8, o32(40), i32(40), 5)),
    case("shift_mask", "y", launch(32, 8, o32(32), i32(32))),
    case("exclusive_or", "y", launch(32, 8, o32(32), i32(32), 5)),
    case("minimum_maximum", "y", launch(32, 8, o32(32), i32(32), 32)),
    case("clamped_write", "y", launch(16, 4, o32(16), 9), writes="both ends by several groups, with one value"),
    case("unsigned_wrap", "y", launch(16, 4, o32(16), np.uint32(14))),
    case("unsigned_offset", "y", launch(16, 4, o32(16), np.uint32(4), offset=4)),
    case("uchar_narrowing", "y", launch(32, 4, o32(32))),
    case("absolute_difference", "y", launch(16, 4, o32(16), 7), writes="mirrored: two groups meet, with one value"),
    case("remainder_of_negative", "y", launch(16, 4, o32(16), i32(16), 6)),
    case("bit_reversal", "y", launch(32, 8, o32(32), i32(32))),
    case(
        "switch_cases",
        "y",
        *(launch(16, 4, o32(32), i32(16), mode) for mode in (0, 1, 2)),
    ),
    case("switch_on_id", "y", launch(16, 4, o32(16))),
    case("goto_forward", "y", launch(16, 4, o32(16), 11), exact=False),
    case("goto_backward", "y", launch(8, 2, o32(40), 5), exact=False),
    case("private_array_index", "yy", launch((8, 6), (4, 2), o32(48), i32(48), 8)),
    case("private_window", "y", launch(16, 4, o32(16), i32(16), 16)),
    case("constant_table", "y", launch(16, 4, o32(16)), exact=False),
    case("scatter", "n", launch(16, 4, o32(16), index(16, 8), i32(16)), exact=False),
    case("gather", "y", launch(16, 4, o32(16), index(16, 16), i32(16))),
    case("scatter_permutation", "y", launch(16, 4, o32(16), table(*REVERSED)), exact=False),
    case("conditional_on_data", "y", launch(16, 4, o32(16), i32(16)), exact=False),
    case("logic_reads", "y", launch(16, 4, o32(16), i32(16, 1, 9), i32(16, 1, 4), 9)),
    case("comma_and_chain", "y", launch(16, 4, o32(32), o32(32), 5)),
    case("long_subscripts", "y", launch(16, 4, o32(64), np.int64(20))),
    case("by_size_t", "y", launch(8, 2, o32(40), np.uint64(5))),
    case("float_to_subscript", "y", launch(16, 4, o32(32), 3.5), exact=False),
    case("three_dimensions", "yyy", launch((8, 4, 4), (4, 2, 2), o32(8 * 4 * 3), 8, 4, 3)),
    case("linear_from_three", "yyy", launch((4, 4, 4), (2, 2, 2), o32(64))),
    case("only_column_splits", "yy", launch((4, 8), (2, 2), o32(8), 6), writes="every column group the same elements"),
    case("diagonal", "yy", launch((8, 8), (2, 2), o32(64), 8)),
)
