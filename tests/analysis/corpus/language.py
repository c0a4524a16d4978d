"""Launches and expectations of ``corpus/language.cl``."""

import numpy as np

from tests.analysis.corpus_case import Buffer, Case, Launch, Local, f32, i32, launch, out


def case(name: str, split: str, *launches: Launch, **more: object) -> Case:
    return Case(name, "language", launches, tuple(c == "y" for c in split), **more)  # type: ignore[arg-type]


def o32(count: int) -> Buffer:
    return out(count, "i4")


def struct(members: str, *values: float) -> np.ndarray:
    """A structure by value: the types of its members, padding included, separated by blanks."""
    return np.array([values], [(f"m{k}", kind) for k, kind in enumerate(members.split())])


BOX = struct("i4 i4 i4 i2 i2", 6, 3, 8, 1, 2)
NESTED = struct("i4 i4 f4 i4 i4 i4", 12, 1, 0.5, 0, 3, 2)

CASES = (
    case("deep_helpers", "y", launch(16, 4, o32(32))),
    case("deep_pointers", "y", launch(8, 2, o32(66))),
    case("nested_out_parameters", "y", launch(16, 4, o32(16), 4)),
    case("swapped_by_helper", "yy", launch((6, 4), (2, 2), o32(28), 7)),
    case("pointer_to_pointer", "y", launch(8, 2, o32(25), 3)),
    case("private_filled_by_helper", "y", launch(8, 2, o32(64))),
    case("searched_by_helper", "y", launch(8, 2, o32(8), i32(40), 5)),
    case("helper_returns_early", "y", launch(16, 4, o32(8))),
    case("helper_returns_vector", "y", launch(16, 4, o32(20), 4, 5)),
    case("helper_returns_struct", "y", launch(8, 2, o32(37), 5, 37)),
    case("local_by_helper", "y", launch(16, 4, o32(16), i32(16), Local(16))),
    case("struct_argument", "y", launch(16, 4, out(33), struct("i4 i4 f4", 11, 3, 0.5))),
    case("struct_array_argument", "yy", launch((8, 4), (2, 2), o32(32), BOX)),
    case("nested_struct_argument", "y", launch(16, 4, out(16), NESTED)),
    case("struct_variable", "y", launch(16, 4, o32(16), 9)),
    case("struct_through_pointer", "y", launch(8, 2, o32(40), 5)),
    case("union_subscript", "y", launch(16, 4, o32(16)), exact=False),
    case("union_vector_array", "y", launch(8, 2, out(32), f32(32))),
    case("pointer_ping_pong", "y", launch(16, 4, i32(16), i32(16), 3), idempotent=False),
    case("pointer_conditional_store", "y", launch(16, 4, o32(16), o32(16), 6)),
    case("pointer_conditional_read", "y", launch(16, 4, o32(16), i32(16), i32(16), 6)),
    case("pointer_difference", "y", launch(16, 4, o32(32), 6)),
    case("pointer_compared", "y", launch(16, 4, o32(48), 30)),
    case("pointer_conditional_step", "y", launch(16, 4, o32(32))),
    case("pointer_inside", "y", launch(16, 4, o32(16))),
    case("pointer_negative", "y", launch(16, 4, o32(20), 20)),
    case("subscript_reversed", "y", launch(16, 4, o32(36))),
    case("rows_of_three", "y", launch(8, 2, o32(96), 3)),
    case("rows_parameter", "y", launch(8, 2, o32(40), 3)),
    case("halves_of_words", "y", launch(16, 4, Buffer("i4", 16, whole=True, granule=2))),
    case("words_of_halves", "y", launch(8, 2, Buffer("i2", 20, whole=True, granule=4))),
    case("cast_chain", "y", launch(8, 2, out(68), 32)),
    case("cast_to_inner_struct", "y", launch(8, 2, o32(18))),
    case("struct_walk", "y", launch(8, 2, out(96), 2)),
    case("struct_copy_member", "y", launch(8, 2, out(48), f32(54))),
    case("pointer_through_integer", "y", launch(8, 2, o32(16)), exact=False),
    case("fallthrough_everywhere", "y", *(launch(8, 2, o32(32), k) for k in (3, 2, 1, 9))),
    case("switch_ranges", "y", launch(16, 4, o32(32))),
    case("switch_nested", "y", *(launch(16, 4, o32(32), k) for k in (1, 2)), launch(16, 4, o32(32), 5)),
    case("switch_unsigned_char", "y", launch(16, 4, o32(32), np.uint8(250))),
    case("volatile_output", "y", launch(16, 4, o32(16), 5)),
    case("restricted", "y", launch(16, 4, o32(16), i32(32), 16)),
    case("old_qualifiers", "y", launch(16, 4, o32(16), i32(16), i32(4))),
    case("macros", "y", launch(8, 2, o32(40), 5)),
    case("generated_square", "y", launch(16, 4, o32(16), i32(16))),
    case("generated_half", "y", launch(16, 4, out(16), f32(16))),
    case(
        "shadowed", "n", launch(16, 4, o32(22), 16), writes="own elements, and all of them one beyond, with one value"
    ),
    case("constant_table_2d", "y", launch(8, 2, o32(96), 4), exact=False),
    case("constant_struct_table", "y", launch(8, 2, o32(64)), exact=False),
    case("constant_scalar", "y", launch(8, 2, o32(24)), exact=False),
    case("private_table", "y", launch(8, 2, o32(32))),
    case("private_plane", "y", launch(8, 2, o32(48))),
    case("private_structs", "y", launch(8, 2, o32(32))),
    case("private_by_id", "y", launch(8, 2, o32(128), 7), exact=False),
    case("comma_subscript", "y", launch(8, 2, o32(20))),
    case("assigned_in_both_conditions", "y", launch(16, 4, o32(21))),
    case("side_effects_in_and", "y", launch(16, 4, o32(64), 10)),
    case("side_effects_in_or", "y", launch(16, 4, o32(32))),
    case("guarded_reads", "y", launch(16, 4, o32(16), i32(16), 16)),
    case("two_guards_one_read", "y", launch(16, 4, o32(14), i32(16), 13)),
    case("increments_in_subscripts", "y", launch(8, 2, o32(24), i32(25))),
    case("chained_assignment", "y", launch(16, 4, o32(20), o32(16), 4)),
    case(
        "group_ids_of_all",
        "yyy",
        launch((4, 4, 4), (2, 2, 1), o32(64)),
        launch((4, 2, 3), (1, 2, 3), o32(24), offset=(4, 2, 3)),
    ),
    case("offsets_of_all", "yy", launch((6, 4), (2, 2), o32(32), 8, offset=(4, 2))),
    case("absent_dimensions", "y", launch(8, 2, o32(10))),
    case("dimension_in_variable", "yy", launch((6, 4), (2, 2), o32(24))),
    case("first_item_of_groups", "yy", launch((6, 4), (3, 2), o32(4))),
    case("alone", "y", launch(8, 8, o32(8)), launch(8, 1, o32(8)), launch(7, 7, o32(7))),
    case("two_kernels_callee", "y", launch(8, 2, o32(10))),
    case("calls_a_kernel", "y", launch(8, 2, o32(11))),
)
