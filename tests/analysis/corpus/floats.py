"""Launches and expectations of ``corpus/floats.cl``."""

import numpy as np

from tests.analysis.corpus_case import Case, Launch, i32, index, launch, out


def case(name: str, split: str, *launches: Launch, **more: object) -> Case:
    return Case(name, "floats", launches, tuple(c == "y" for c in split), **more)  # type: ignore[arg-type]


def o32(count: int) -> object:
    return out(count, "i4")


PLANE = out(96, "u1"), index(6 * 5, 100, dtype="u1"), 6, 5

CASES = (
    case("image_resize", "yy", launch((12, 8), (4, 2), *PLANE, 12, 8), launch((8, 4), (2, 2), *PLANE, 8, 4)),
    case("resize_centred", "y", launch(24, 4, o32(24), i32(8), 8, 24), launch(8, 2, o32(8), i32(8), 8, 8)),
    case("times_one", "y", launch(16, 4, o32(16))),
    case("a_third", "y", launch(32, 4, o32(32), i32(11), 1 / 3), launch(32, 4, o32(32), i32(24), 0.75)),
    case("divided_by_float", "y", launch(32, 4, o32(32), i32(12), 3.0)),
    case("part_of_all", "y", *(launch(32, 4, o32(32), i32(60), f, 32) for f in (0.5, 0.3)), exact=False),
    case("float_compared", "y", *(launch(32, 4, o32(32), f) for f in (0.25, 0.3)), exact=False),
    case("both_signs", "n", launch(16, 4, o32(8))),
    case("odd_forgotten", "n", launch(15, 3, o32(17)), exact=False),
    case("float_pair", "yy", launch((8, 8), (2, 4), o32(64), i32(16), 0.5, 4)),
    case("made_integers", "y", launch(16, 4, o32(16), i32(9))),
    case("saturated_byte", "y", launch(16, 4, o32(16), i32(256))),
    case("by_double", "y", launch(16, 4, o32(34), np.array(2.0)), launch(16, 4, o32(34), np.array(1.1)), exact=False),
    case("fused_float", "y", launch(16, 4, o32(50), 3.0)),
    case("smaller_float", "y", launch(16, 4, o32(32), 0.5), launch(16, 4, o32(34), 2.5)),
    case("counts_in_halves", "y", launch(8, 2, o32(64), 3.0)),
    case("tenths", "y", launch(8, 2, o32(8)), exact=False),
    case("counted_in_float", "y", launch(8, 2, o32(256), index(6, 4), 6), exact=False),
    case("float_by_pointer", "y", launch(8, 2, o32(64), index(4, 4)), exact=False),
    case("bits_of_float", "y", launch(8, 2, o32(64), 2.0), exact=False),
    case("float_by_branch", "y", launch(16, 4, o32(128), index(16, 5), 1.5), exact=False),
    case("not_a_number", "y", launch(16, 4, o32(32), float("nan")), exact=False),
    case("float_by_function", "y", launch(16, 4, o32(16), i32(8))),
)
