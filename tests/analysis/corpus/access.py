"""Launches and expectations of ``corpus/access.cl``."""

from tests.analysis.corpus_case import Buffer, Case, Launch, Same, f32, i32, launch, out, table


def case(name: str, split: str, *launches: Launch, **more: object) -> Case:
    return Case(name, "access", launches, tuple(c == "y" for c in split), **more)  # type: ignore[arg-type]


def o32(count: int) -> Buffer:
    return out(count, "i4")


CASES = (
    case("copy_all", "y", launch(64, 8, out(64), f32(64)), writes="the items' elements"),
    case(
        "add_guarded", "y", launch(64, 8, out(64), f32(64), f32(64), 50), launch(32, 4, out(64), f32(64), f32(64), 99)
    ),
    case("early_return", "y", launch(64, 8, out(64), f32(64), 61)),
    case("scale_in_place", "y", launch(64, 8, f32(64), 3.0), idempotent=False),
    case("increment", "y", launch(64, 8, i32(64)), idempotent=False),
    case("reversed", "y", launch(64, 8, o32(64), i32(64), 64), writes="an interval, counted from the end"),
    case("strided", "y", launch(32, 4, o32(100), i32(100), 3), launch(32, 4, o32(64), i32(64), 1, offset=8)),
    case("shifted_down", "y", launch(32, 4, o32(32), i32(40), 8)),
    case("alias_offset", "y", launch(32, 4, o32(80), i32(32), 40)),
    case("alias_of_two", "y", launch(32, 4, o32(32), o32(32), i32(32)), writes="every other element of both"),
    case("alias_by_if", "y", launch(32, 4, o32(32), o32(32), i32(32), 0), launch(32, 4, o32(32), o32(32), i32(32), 1)),
    case("walk_pointers", "y", launch(16, 4, o32(80), i32(80), 5)),
    case("walk_backwards", "y", launch(16, 4, o32(80), i32(80), 5)),
    case("pointer_bound", "y", launch(16, 4, o32(96), 6), launch(16, 4, o32(96), 5)),
    case("cast_to_vector", "y", launch(16, 4, out(64), f32(64))),
    case("cast_to_bytes", "y", launch(16, 4, Buffer("i4", 16, whole=True, granule=1), i32(16))),
    case("cast_pitch", "yy", launch((8, 6), (4, 2), out(60), f32(60), 40)),
    case("cast_to_rows", "y", launch(16, 4, o32(128), i32(16)), writes="columns 2 and 5 of the rows"),
    case("struct_members", "y", launch(16, 4, f32(64), 0.5), idempotent=False),
    case("struct_whole", "y", launch(16, 4, out(64), f32(64))),
    case("cast_to_struct", "y", launch(16, 4, out(64), f32(16))),
    # the bounds come from memory: what is written cannot be exact without looking
    case("struct_by_pointer", "y", launch(16, 4, out(64), table(13, 3, 1065353216)), exact=False),
    case("through_helpers", "y", launch(8, 2, out(48), f32(48), 6)),
    case("helper_returns", "y", launch(32, 4, out(32), f32(32), 32)),
    case("helper_out_parameters", "y", launch(16, 4, o32(64), 4), launch(12, 4, o32(64), 5)),
    case("helper_returns_pointer", "y", launch(16, 4, o32(80), i32(16), 5)),
    case("pointer_in_struct", "y", launch(16, 4, o32(32), i32(16), 14)),
    case("pointer_in_array", "y", launch(16, 4, o32(16), o32(16), i32(16))),
    case("pointer_from_memory", "y", launch(32, 8, o32(32), i32(32)), exact=False),
    case("same_buffer_twice", "y", launch(16, 4, f32(64), Same(0), 16), launch(16, 4, out(32), f32(32), 16)),
    case("neighbour_in_place", "n", launch(32, 1, f32(32), 32), idempotent=False),
    case("all_write_first", "n", launch(32, 4, o32(8))),
    case("all_write_same", "y", launch(32, 4, o32(8)), writes="element 0: groups overlap, though with one value"),
    case("groups_overlap", "n", launch(16, 1, o32(17))),
    case("reads_first_writes_own", "y", launch(16, 4, i32(16)), writes="own elements; element 0 is only read"),
    case("group_result", "y", launch(32, 8, o32(8), i32(32))),
    case("id_queries", "y", launch(32, 8, o32(32)), launch(32, 8, o32(32), offset=16)),
    case("second_half_groups", "y", launch(32, 4, o32(32))),
    case("last_group_only", "y", launch(32, 8, o32(16))),
    case("nothing_written", "y", launch(16, 4, Buffer("i4", 16, 0, 100), o32(4)), writes="nothing", exact=False),
)
