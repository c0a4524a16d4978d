"""Launches and expectations of ``corpus/tangles.cl``."""

import numpy as np

from tests.analysis.corpus_case import Case, Launch, i32, launch, out


def case(name: str, split: str, *launches: Launch, **more: object) -> Case:
    return Case(name, "tangles", launches, tuple(c == "y" for c in split), **more)  # type: ignore[arg-type]


def o32(count: int) -> object:
    return out(count, "i4")


U = np.uint32

CASES = (
    case("first_pass_only", "y", launch(8, 2, o32(48), 6)),
    case("first_pass_skipped", "y", launch(8, 2, o32(48), 6)),
    case("two_steps", "y", launch(8, 2, o32(72), 9)),
    case("bound_in_condition", "y", launch(8, 2, o32(72), 7)),
    case("unsigned_down_past_zero", "y", launch(8, 2, o32(40), U(5))),
    case("byte_comes_around", "y", launch(4, 1, o32(1024))),
    case("short_comes_around", "y", launch(8, 2, o32(48)), exact=False),
    case("stepped_by_helper", "y", launch(8, 2, o32(56), 7)),
    case("stepped_twice", "y", launch(8, 2, o32(56), 7)),
    case("returned_from_two_loops", "y", launch(8, 2, o32(128), 4), exact=False),
    case("do_with_continue", "y", launch(8, 2, o32(48), 5), launch(8, 2, o32(16), 0)),
    case("assigned_in_condition", "y", launch(16, 4, o32(36), 18)),
    case("changed_through_pointer", "y", launch(8, 2, o32(64))),
    case("filled_through_pointer", "y", launch(8, 2, o32(80))),
    case("overwritten_table", "y", launch(8, 2, o32(64), 5)),
    case("lanes_in_loop", "y", launch(8, 2, o32(128), 3)),
    case("record_in_loop", "y", launch(8, 2, o32(128), 4)),
    case("break_after_change", "y", launch(8, 2, o32(64), 6)),
    case("break_out_of_switch", "y", launch(8, 2, o32(72), 6)),
    case("nested_breaks", "y", launch(8, 2, o32(200), 5)),
    case("selected_by_nonzero", "y", launch(16, 4, o32(32))),
    case("selected_by_sign", "y", launch(16, 4, o32(64))),
    case("hashed_long", "y", launch(16, 4, o32(32))),
    case("hashed_int", "y", launch(16, 4, o32(32))),
    case("hashed_rounds", "y", launch(16, 4, o32(16), 3)),
    case("negative_division", "n", launch(16, 4, o32(128), 3)),
    case("signed_bytes", "y", launch(16, 4, o32(256))),
    case("mixed_comparison", "y", launch(16, 4, o32(64))),
    case("counted_conditions", "y", launch(16, 4, o32(68), 9)),
    case("short_circuit_effects", "y", launch(8, 2, o32(72), 9)),
    case("conditional_effects", "y", launch(8, 2, o32(64))),
    case("pointer_in_condition", "y", launch(8, 2, o32(8), o32(8), 3)),
    case("triangular_break", "y", launch(8, 2, o32(200), 5)),
    case("minimum_of_unsigned", "n", launch(16, 4, o32(24), U(20))),
    case("loop_on_group", "y", launch(16, 4, o32(12), 10)),
    case("changed_bound", "y", launch(8, 2, o32(64), 8)),
    case("copied_then_changed", "y", launch(8, 2, o32(256), 7)),
    case("returns_in_loop", "y", launch(8, 2, o32(64), 6)),
    case("returns_by_data", "y", launch(8, 2, o32(48), i32(48), 6), exact=False),
    case("zero_trips", "y", launch(8, 2, o32(64), 2), launch(8, 2, o32(64), 6)),
    case("grid_stride_tail", "y", launch(8, 2, o32(24), 19)),
    case("goto_in_loop", "y", launch(4, 1, o32(64), 4), exact=False),
    case("goto_into_loop", "y", launch(8, 2, o32(128), 4), exact=False),
    case("goto_into_block", "y", launch(16, 4, o32(32), 8), exact=False),
)
