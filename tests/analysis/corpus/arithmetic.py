"""Launches and expectations of ``corpus/arithmetic.cl``."""

import numpy as np

from tests.analysis.corpus_case import Buffer, Case, Launch, i32, launch, out


def case(name: str, split: str, *launches: Launch, **more: object) -> Case:
    return Case(name, "arithmetic", launches, tuple(c == "y" for c in split), **more)  # type: ignore[arg-type]


def o32(count: int) -> Buffer:
    return out(count, "i4")


U = np.uint32

CASES = (
    case("divide_negative", "y", launch(16, 4, o32(16), i32(8))),
    case("modulo_negative", "y", launch(16, 4, o32(16))),
    case("shift_negative", "y", launch(16, 4, o32(16), i32(8))),
    case("mask_negative", "y", launch(16, 4, o32(16)), writes="an interval that wraps at the end"),
    case("mask_away", "y", launch(16, 4, o32(16))),
    case("or_bits", "y", launch(8, 2, o32(32))),
    case("butterfly", "y", launch(16, 4, o32(16), i32(16))),
    case("multiply_add_24", "yy", launch((6, 4), (2, 2), o32(32), 8)),
    case("multiply_24", "y", launch(8, 2, o32(32), 3)),
    case("multiply_high", "y", launch(16, 4, o32(16), i32(8))),
    case("multiply_high_store", "y", launch(16, 4, o32(16))),
    case("rotated_byte", "y", launch(16, 4, o32(32))),
    case("rotated_word", "y", launch(16, 4, o32(16), i32(16))),
    case("is_less", "y", launch(16, 4, o32(16), 9.5)),
    case("is_greater_equal", "y", launch(16, 4, o32(32), 6.0)),
    case("select_store", "y", launch(16, 4, o32(17), 17), writes="even ones in place, odd ones mirrored"),
    case("absolute_value", "y", launch(16, 4, o32(16), i32(16), 7)),
    case("absolute_store", "y", launch(16, 4, o32(17))),
    case("average", "y", launch(16, 4, o32(16), i32(16), 8)),
    case("leading_zeros", "y", launch(16, 4, o32(16), i32(16))),
    case("set_bits", "y", launch(16, 4, o32(16), i32(8))),
    case("saturated", "y", launch(16, 4, o32(16), i32(16))),
    case("upsampled", "y", launch(16, 4, o32(16)), exact=False),
    case("clamp_in_group", "y", launch(16, 4, o32(16)), writes="the two middle elements of every four"),
    case("min_of_three", "y", launch(16, 4, o32(16), 11, 6)),
    case("short_narrowing", "y", launch(16, 4, o32(16))),
    case("ushort_narrowing", "y", launch(16, 4, o32(16))),
    case("char_narrowing", "y", launch(16, 4, o32(16))),
    case("uchar_wrapping_loop", "y", launch(8, 2, o32(80))),
    case("char_of_letter", "y", launch(16, 4, o32(20), 4)),
    case("interval_by_one_compare", "y", launch(16, 4, o32(16), U(3), U(8))),
    case("interval_by_cast", "y", launch(16, 4, o32(16), 3, 8), launch(16, 4, o32(16), 9, 30)),
    case("outside_by_cast", "y", launch(16, 4, o32(16), 3, 8)),
    case("mixed_signs", "y", launch(16, 4, o32(16)), writes="elements 4 to 11: a negative difference is huge"),
    case("mixed_signs_to_uint", "y", launch(16, 4, o32(16), U(8))),
    case("minus_one_as_size_t", "y", launch(16, 4, o32(16))),
    case("zero_extended", "y", launch(16, 4, o32(16))),
    case("sign_extended", "y", launch(16, 4, o32(16))),
    case("hashed_read", "y", launch(16, 4, o32(16), i32(16))),
    case("permuted_by_multiply", "y", launch(16, 4, o32(16))),
    case("interleaved_bits", "yy", launch((4, 4), (2, 2), o32(16))),
    case("three_from_linear", "y", launch(24, 6, o32(24), 3, 2)),
    case("rotate_in_tiles", "y", launch(16, 4, o32(16), 3)),
    case("rotate_backwards_in_tiles", "y", launch(16, 4, o32(16), 3)),
    case("wide_product", "y", launch(16, 4, o32(32), 100000)),
    case("ulong_quotient", "y", launch(16, 4, o32(16), np.uint64(4)), launch(15, 5, o32(15), np.uint64(3))),
    case("added_comparison", "y", launch(16, 4, o32(32), 6)),
    case("bool_subscript", "y", launch(16, 4, o32(32))),
    case("logical_not", "y", launch(16, 4, o32(32))),
    case("double_not", "y", launch(16, 4, o32(32), 4), launch(16, 4, o32(32), 1)),
    case("shift_by_id", "y", launch(16, 4, o32(64))),
    case("round_up", "y", launch(12, 4, o32(30), 30, 4)),
    case("align_down", "y", launch(16, 4, o32(16), i32(20))),
    case("compound_assignments", "y", launch(16, 4, o32(32))),
    case("ternary_chain", "y", launch(16, 4, o32(32), 5, 9)),
    case("ternary_widths", "y", launch(16, 4, o32(16), i32(16), 6)),
    case("quotient_of_unsigned_minus", "y", launch(16, 4, o32(16), i32(16), U(5))),
    case("float_floor", "y", launch(16, 4, o32(16), i32(16), 0.75)),
    case("size_of_stride", "y", launch(8, 2, o32(32))),
    case("enumerated", "y", launch(8, 2, out(24, "u1"), 1), launch(8, 2, out(24, "u1"), 0)),
    case("enumerated_variable", "y", launch(8, 2, o32(24))),
    case("literals_of_all_bases", "y", launch(8, 2, o32(26))),
    case("character_switch", "y", launch(16, 4, o32(16)), exact=False),
    case("size_of_expression", "y", launch(8, 2, o32(48))),
)
