"""Launches and expectations of ``corpus/vectors.cl``."""

import numpy as np

from tests.analysis.corpus_case import Buffer, Case, Launch, f32, i32, launch, out

HALF = Buffer("f2", 64, 0.5, 2.0)


def case(name: str, split: str, *launches: Launch, **more: object) -> Case:
    return Case(name, "vectors", launches, tuple(c == "y" for c in split), **more)  # type: ignore[arg-type]


def vector(kind: str, *values: float) -> np.ndarray:
    """A vector argument by value."""
    return np.array(values, kind)


CASES = (
    case("float4_copy", "y", launch(16, 4, out(64), f32(64))),
    case("float3_copy", "y", launch(16, 4, Buffer("f4", 64, whole=True, granule=16), f32(64))),
    case("float8_scale", "y", launch(8, 2, f32(64), 3.0), idempotent=False),
    case("write_x_w", "y", launch(16, 4, out(64), f32(16)), writes="the first and last of every four"),
    case("write_lo", "y", launch(16, 4, out(64), f32(32))),
    case("write_odd", "y", launch(8, 2, out(64, "i4"), i32(32))),
    case("write_hexadecimal", "y", launch(8, 2, out(128, "i4"), i32(32))),
    case("write_permuted", "y", launch(8, 2, out(32), f32(32))),
    case("read_even", "y", launch(8, 2, out(16), f32(32))),
    case("element_of_vector", "y", launch(8, 2, out(32), 3)),
    case("load_store_4", "y", launch(8, 2, out(32), f32(32))),
    case("load_store_3", "y", launch(8, 2, out(24, "i4"), i32(24))),
    case("load_unaligned", "y", launch(8, 2, out(40), f32(40), 3)),
    case("store_16", "y", launch(8, 2, out(128, "u1"), Buffer("u1", 128, 1, 200))),
    case("store_half_one", "y", launch(16, 4, out(64, "u2"), f32(16))),
    case("store_half_four", "y", launch(16, 4, out(64, "u2"), f32(64))),
    case("load_half_four", "y", launch(16, 4, out(64), HALF)),
    case("vector_scalar_argument", "y", launch(8, 2, out(48), vector("f4", 1, 2, 3, 4), vector("i4", 1, 3))),
    case("vector_id", "yy", launch((6, 4), (2, 2), out(40, "i4"), 7)),
    case("vector_literal", "y", launch(8, 2, out(32), f32(16))),
    case("packed_bytes", "y", launch(16, 4, out(64, "u1"), f32(64))),
    case("as_bits", "y", launch(16, 4, out(16, "u4"), f32(16))),
    case("shuffled", "y", launch(8, 2, out(32, "i4"), i32(32))),
    case("selected", "y", launch(16, 4, out(16, "i4"), i32(16), i32(16), 16)),
    case("struct_of_vector", "y", launch(8, 2, out(64), f32(9))),
    case("struct_array_loop", "y", launch(8, 2, out(64), 3), launch(8, 2, out(64), 2)),
    case("union_of_bytes", "y", launch(16, 4, out(16, "u4"), Buffer("u4", 16, 1, 2**31))),
    case("double_precision", "y", launch(16, 4, out(16, "f8"), Buffer("f8", 16, 0.5, 2))),
    case("short_and_char", "y", launch(16, 4, out(32, "i2"), Buffer("i1", 16, -90, 90))),
    case("long_elements", "y", launch(16, 4, out(16, "i8"), i32(16))),
    case("two_d_array", "yy", launch((6, 4), (2, 2), out(24, "i4"), i32(6))),
    case("load_store_2", "y", launch(8, 2, out(48, "i2"), Buffer("i2", 48, 0, 99), 3)),
    case("load_store_8", "y", launch(8, 2, out(128, "i4"), i32(67))),
    case("load_store_16", "y", launch(8, 2, out(128, "i1"), Buffer("i1", 44, 0, 99))),
    case("store_3_apart", "y", launch(8, 2, out(33), 2.0)),
    case("load_4_of_3", "y", launch(8, 2, out(8), f32(27))),
    case("load_half_one", "y", launch(16, 4, out(16), HALF)),
    case("load_half_three", "y", launch(16, 4, out(48), HALF)),
    case("load_half_aligned_three", "y", launch(16, 4, out(16), HALF)),
    case("store_half_two", "y", launch(16, 4, out(40, "u2"), f32(32))),
    case("store_half_aligned_three", "y", launch(16, 4, out(64, "u2"), f32(48))),
    case("store_half_eight", "y", launch(8, 2, out(64, "u2"), 1.5)),
    case("write_hi_of_lo", "y", launch(8, 2, out(64), f32(16))),
    case("write_through_pointer", "y", launch(8, 2, out(32), 1.5)),
    case("write_swizzle_loop", "y", launch(8, 2, i32(96), 3), idempotent=False),
    case("swizzled_private", "y", launch(8, 2, out(8, "i4"), i32(32)), exact=False),
    case("vector_of_ids", "yy", launch((4, 4), (2, 2), out(54, "i4"), 9)),
    case("vector_min_max", "yy", launch((8, 4), (2, 2), out(32, "i4"), i32(32), 8, 4)),
    case("vector_condition", "yy", launch((8, 8), (4, 2), out(64, "i4"), 7), exact=False),
    case("vector_shift_mask", "y", launch(16, 4, out(16, "i4"))),
    case("vector_select", "y", launch(8, 2, out(32, "i4"), i32(32), vector("i4", 100, 200, 300, 900))),
    case("converted_vector", "y", launch(8, 2, out(32, "i2"), f32(32))),
    case("as_other_vector", "y", launch(8, 2, out(64, "u1"), i32(16))),
    case("as_wider_subscript", "y", launch(16, 4, out(32, "i4")), exact=False),
    case("vector_array_private", "y", launch(8, 2, out(24), f32(32), 3)),
    case("dot_and_length", "y", launch(8, 2, out(8), f32(32), f32(32))),
    case("bytes_of_vector", "y", launch(8, 2, out(32, "u1"), Buffer("u4", 32, 0, 2**31))),
    case("ternary_vector", "y", launch(8, 2, out(32, "i4"), 5)),
    case("double_vectors", "y", launch(8, 2, out(48, "f8"), Buffer("f8", 8, 0.5, 2))),
    case("vector_increment", "y", launch(8, 2, i32(32)), idempotent=False),
)
