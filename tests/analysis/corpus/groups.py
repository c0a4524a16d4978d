"""Launches and expectations of ``corpus/groups.cl``."""

from tests.analysis.corpus_case import Buffer, Case, Launch, Local, f32, i32, launch, out, table


def case(name: str, split: str, *launches: Launch, **more: object) -> Case:
    return Case(name, "groups", launches, tuple(c == "y" for c in split), **more)  # type: ignore[arg-type]


def o32(count: int) -> Buffer:
    return out(count, "i4")


BYTES = Buffer("u1", 64, 0, 256)
BINS = Buffer("u4", 16, 0, 1000)

CASES = (
    case("reduce_tree", "y", launch(32, 8, out(4), f32(32), Local(32)), writes="one element per group"),
    case("reduce_strided", "y", launch(16, 4, out(4), f32(50), 50, Local(16))),
    case("reverse_in_group", "y", launch(32, 8, o32(32), i32(32))),
    case("rotate_in_place", "y", launch(32, 8, i32(32)), idempotent=False),
    case("scan_group", "y", launch(32, 8, o32(32), o32(4), i32(32), Local(32))),
    case("scan_add_sums", "y", launch(32, 8, i32(32), i32(4)), idempotent=False),
    case("async_in_out", "y", launch(32, 8, o32(32), i32(32), Local(32))),
    case("async_strided", "y", launch(32, 8, o32(32), i32(96), Local(32), 3)),
    case("halo_in_local", "y", launch(32, 8, out(32), f32(32), 32, Local(40))),
    # merging counts is possible, running the groups on copies is not: no group owns the counter
    case("sum_atomic", "n", launch(16, 4, i32(2), i32(16)), idempotent=False),
    case("max_atomic", "n", launch(16, 4, Buffer("i4", 4, 1, 10), i32(16))),
    case("atomic_private_cell", "y", launch(16, 4, i32(16)), idempotent=False),
    case("ticket", "n", launch(16, 4, Buffer("i4", 1, 0, 1), o32(32)), idempotent=False, exact=False),
    case("atomic_or_bits", "n", launch(64, 8, Buffer("u4", 2, 0, 1))),
    case("exchange", "n", launch(16, 4, i32(1))),
    case("compare_exchange", "y", launch(16, 4, Buffer("i4", 4, 5, 6)), exact=False),
    case("local_atomic", "y", launch(32, 8, o32(4), i32(32))),
    case("histogram_local", "y", launch(16, 4, out(64, "u4"), BYTES, 60)),
    case("histogram_global", "n", launch(64, 8, BINS, BYTES), idempotent=False, exact=False),
    case("histogram_merge", "y", launch(16, 4, out(16, "u4"), Buffer("u4", 64, 0, 99), 4)),
    case("transpose_local", "yy", launch((12, 8), (4, 4), out(96), f32(96), 12, 8)),
    case("bitonic_local", "y", launch(24, 8, i32(48))),
    case("softmax_rows", "y", launch(24, 4, out(60), f32(60), 10, Local(16)), writes="one row per group"),
    case("prefetched", "y", launch(16, 4, o32(16), i32(16))),
    case("async_strided_out", "y", launch(16, 4, o32(60), i32(16), Local(16), 3)),
    case("async_rows", "y", launch(16, 4, o32(12), i32(12 * 8), 8, 3, Local(48))),
    case("async_vectors", "y", launch(16, 4, out(64), f32(80), Local(128))),
    case("local_plane", "yy", launch((8, 8), (4, 4), o32(64), i32(100), 10)),
    case("local_struct", "y", launch(16, 4, o32(16), i32(16))),
    case("fenced_neighbour", "y", launch(16, 4, o32(16), o32(16))),
    case("barrier_then_other", "y", launch(16, 4, o32(16))),
    case("barrier_in_grid_stride", "y", launch(12, 4, o32(7), i32(28), 7, Local(16))),
    case("every_atomic", "n", launch(16, 4, i32(6), Buffer("u4", 3, 0, 2**16), 3), idempotent=False),
    case("every_old_atomic", "n", launch(16, 4, i32(6), Buffer("u4", 3, 0, 2**16)), idempotent=False),
    case("idempotent_atomics", "n", launch(16, 4, i32(2), Buffer("u4", 2, 0, 2**16))),
    case("add_result_used", "n", launch(16, 4, i32(1), o32(16)), idempotent=False),
    case("sub_result_in_condition", "n", launch(16, 4, table(14), o32(16)), idempotent=False, exact=False),
    case("max_result_used", "n", launch(16, 4, Buffer("i4", 1, 2, 9), o32(16)), idempotent=False),
    case("xchg_result_used", "n", launch(16, 4, i32(1, 50), o32(16)), idempotent=False),
    case("own_cell_result_used", "y", launch(16, 4, Buffer("i4", 16, 0, 8), o32(16)), idempotent=False),
    case("group_cell_atomic", "y", launch(16, 4, i32(4), i32(16)), idempotent=False),
    case("atomic_then_plain", "n", launch(16, 1, i32(16), o32(16)), idempotent=False),
    case("float_add_by_exchange", "n", launch(16, 4, f32(1), f32(16)), idempotent=False, exact=False),
    case("float_exchange", "y", launch(16, 4, out(16))),
    case("local_counters", "n", launch(16, 4, i32(2), i32(16)), idempotent=False),
    case("long_atomic", "n", launch(16, 4, Buffer("i8", 2, 0, 9)), idempotent=False),
    case("compact_in_group", "y", launch(16, 4, o32(16), o32(4), i32(16)), exact=False),
    case("own_arrays_alike", "y", launch(16, 4, o32(16), 3)),
)
