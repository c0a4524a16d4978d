"""Launches and expectations of ``corpus/jumps.cl``."""

from tests.analysis.corpus_case import Buffer, Case, Launch, i32, index, launch, out


def case(name: str, split: str, *launches: Launch, **more: object) -> Case:
    return Case(name, "jumps", launches, tuple(c == "y" for c in split), **more)  # type: ignore[arg-type]


def o32(count: int) -> Buffer:
    return out(count, "i4")


CASES = (
    case("goto_as_do", "y", launch(8, 2, o32(8), i32(40), 5), launch(8, 2, o32(8), i32(1600), 200)),
    case("goto_as_while", "y", launch(8, 2, o32(40), 5), launch(8, 2, o32(1600), 200)),
    case("goto_skips", "y", launch(16, 4, o32(48), 16)),
    case("goto_goes_on_outside", "y", launch(4, 1, o32(64), 4)),
    case("goto_nested", "y", launch(4, 1, o32(64), 4)),
    case("goto_crossed", "y", launch(8, 2, o32(128), 4)),
    case("goto_by_data", "y", launch(8, 2, o32(64), index(8, 5), 8), exact=False),
    case("goto_in_function", "y", launch(8, 2, o32(48), index(6, 9), 6), exact=False),
    case("goto_keeps", "y", launch(8, 2, o32(128), 8)),
    case("goto_out_of_switch", "y", launch(16, 4, o32(64), 1)),
    case(
        "goto_leaves_many",
        "y",
        launch(4, 1, o32(64), index(9, 6), 3),
        launch(2, 1, o32(9522), index(4624, 6), 68),
        exact=False,
    ),
)
