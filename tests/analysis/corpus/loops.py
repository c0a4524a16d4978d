"""Launches and expectations of ``corpus/loops.cl``."""

import numpy as np

from tests.analysis.corpus_case import Buffer, Case, Launch, Local, f32, i32, launch, out, table


def case(name: str, split: str, *launches: Launch, **more: object) -> Case:
    return Case(name, "loops", launches, tuple(c == "y" for c in split), **more)  # type: ignore[arg-type]


def o32(count: int) -> Buffer:
    return out(count, "i4")


U = np.uint32

CASES = (
    case("unrolled_by_four", "y", launch(8, 2, o32(88), 11), launch(8, 2, o32(24), 3)),
    case("down_by_three", "y", launch(8, 2, o32(64), 8)),
    case("not_equal_down", "y", launch(8, 2, o32(40), 5)),
    case("not_equal_by_two", "y", launch(8, 2, o32(96), 6)),
    case("not_equal_by_minus_five", "y", launch(4, 1, o32(60), 3)),
    case("while_before", "y", launch(8, 2, o32(40), U(5)), launch(8, 2, o32(40), U(0)), writes="or nothing"),
    case("while_after", "y", launch(8, 2, o32(40), np.uint64(5))),
    case("while_counts_up", "y", launch(8, 2, o32(40), 5)),
    case("do_down", "y", launch(8, 2, o32(40), 5)),
    case("do_by_two", "y", launch(8, 2, o32(48), 6), launch(8, 4, o32(10), 1)),
    case("unsigned_until_wrap", "y", launch(8, 2, o32(40), U(5))),
    case("countdown_by_two", "y", launch(8, 2, o32(56), U(7)), launch(8, 2, o32(64), U(8))),
    case("halving", "y", launch(8, 2, o32(128), 16), launch(4, 2, o32(52), 13)),
    case("tripling", "y", launch(8, 2, o32(160), U(20))),
    case("shifting_up", "y", launch(8, 2, o32(128), 16)),
    case("shifting_down_by_two", "y", launch(4, 1, o32(80), U(20))),
    case("halving_with_inner", "y", launch(8, 2, o32(64), 8)),
    case("lower_triangle_of_triangle", "y", launch(6, 2, o32(216), 6)),
    case("upper_triangle", "y", launch(8, 2, out(64), 8)),
    case("band", "y", launch(8, 2, out(64), f32(64), 8, 2)),
    case("tiled_loops", "y", launch(4, 2, o32(44), 11, 4)),
    case("skewed_loops", "y", launch(4, 1, o32(100), 5)),
    case("return_in_loop", "y", launch(4, 2, o32(28), 6, 4), launch(4, 2, o32(28), 6, 9)),
    case("return_by_id", "y", launch(8, 2, o32(96), 4)),
    case("break_inner", "y", launch(4, 1, o32(64), 4)),
    case("break_by_id", "y", launch(8, 2, o32(40), 5)),
    case("break_on_data", "y", launch(8, 2, o32(40), Buffer("i4", 40, 1, 1000, steers=True), 5), exact=False),
    case("continue_in_while", "y", launch(8, 2, o32(64), 8)),
    case("continue_by_id", "y", launch(8, 2, o32(48), 6)),
    case("continue_in_do", "y", launch(8, 2, o32(48), 5)),
    case("no_iteration", "y", launch(8, 2, o32(8), 6, 3), launch(8, 2, o32(8), 0, 0)),
    case("group_strided_rows", "y", launch(16, 4, o32(44), 11), launch(16, 4, o32(12), 3)),
    case("grid_stride_plane", "yy", launch((4, 4), (2, 2), o32(63), 9, 7)),
    case("grid_stride_down", "y", launch(8, 2, o32(30), 30)),
    case("grid_stride_while", "y", launch(8, 2, o32(30), i32(30), U(30))),
    case("carried_index", "y", launch(8, 2, o32(120), 5, 3)),
    case("carried_ring", "y", launch(8, 2, o32(40), 5)),
    case("carried_pair", "y", launch(8, 2, o32(128), 16), exact=False),
    case("carried_square", "y", launch(8, 2, o32(160), 20), exact=False),
    case("while_flag", "y", launch(8, 2, o32(56), 7)),
    case("both_conditions", "y", launch(8, 2, o32(64), 8, 3)),
    case("either_condition", "n", launch(8, 2, o32(24), 2, 3), exact=False, writes="rows that grow into the next ones"),
    case("counter_after_loop", "y", launch(8, 2, o32(80), 7)),
    case("counter_assigned_inside", "y", launch(8, 2, o32(64), 8)),
    case("pointer_loop", "y", launch(8, 2, o32(40), 5)),
    case("pointer_loop_down", "y", launch(8, 2, o32(40), 5)),
    case("uchar_counter", "y", launch(8, 2, o32(40), 5)),
    case("short_counter", "y", launch(8, 2, o32(40), np.int16(5))),
    case("long_counter", "y", launch(8, 2, o32(40), np.int64(5))),
    case("float_counter", "y", launch(8, 2, o32(32)), exact=False),
    case("bound_from_memory", "y", launch(8, 2, o32(48), table(4)), exact=False),
    case("switch_in_loop", "y", launch(8, 2, i32(56), 7), idempotent=False),
    case("goto_out_of_loops", "y", launch(8, 2, o32(72), 3), exact=False),
    case("barrier_loop", "y", launch(16, 4, o32(16), i32(16), 5, Local(16))),
)
