"""Buffers: contents, parts, maps, transfers, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

F = cl.mem_flags
BYTES = np.arange(256, dtype=np.uint8)


def filled(ctx: Any, data: Any = BYTES) -> Any:
    return cl.Buffer(ctx, F.READ_WRITE | F.COPY_HOST_PTR, hostbuf=data)


def contents(queue: Any, buffer: Any) -> list[int]:
    out = np.empty(buffer.size, np.uint8)
    cl.enqueue_copy(queue, out, buffer)
    return out.tolist()


def case_copied_when_made(ctx, queue):
    mine = BYTES.copy()
    buffer = filled(ctx, mine)
    mine[:] = 0
    return contents(queue, buffer)


def case_fortran_and_structured_host_memory(ctx, queue):
    table = np.asfortranarray(np.arange(12, dtype=np.int16).reshape(3, 4))
    pairs = np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")])
    back = np.empty_like(pairs)
    cl.enqueue_copy(queue, back, filled(ctx, pairs))
    return contents(queue, filled(ctx, table)), back.tolist()


def case_host_memory_with_gaps(ctx, queue):
    return contents(queue, filled(ctx, BYTES[::2]))


def case_read_only_host_memory(ctx, queue):
    out = np.empty(256, np.uint8)
    out.flags.writeable = False
    cl.enqueue_copy(queue, out, filled(ctx))


def case_writes_at_an_offset(ctx, queue):
    buffer = filled(ctx)
    cl.enqueue_copy(queue, buffer, np.full(10, 7, np.uint8), dst_offset=100)
    cl.enqueue_copy(queue, buffer, bytes(3), dst_offset=253)
    return contents(queue, buffer)


def case_reads_at_an_offset(ctx, queue):
    out = np.empty(16, np.uint8)
    cl.enqueue_copy(queue, out, filled(ctx), src_offset=200)
    return out.tolist()


def case_write_takes_what_is_there_at_the_call(ctx, queue):
    buffer, data = filled(ctx), np.full(256, 3, np.uint8)
    cl.enqueue_copy(queue, buffer, data)
    data[:] = 9
    return contents(queue, buffer)


def case_beyond_the_end(ctx, queue):
    cl.enqueue_copy(queue, np.empty(257, np.uint8), filled(ctx))


def case_write_beyond_the_end(ctx, queue):
    cl.enqueue_copy(queue, filled(ctx), np.empty(10, np.uint8), dst_offset=250)


def case_nothing_is_read(ctx, queue):
    cl.enqueue_copy(queue, np.empty(0, np.uint8), filled(ctx))


def case_copies(ctx, queue):
    one, other = filled(ctx), filled(ctx, BYTES[::-1].copy())
    cl.enqueue_copy(queue, other, one, byte_count=20, src_offset=10, dst_offset=30)
    cl.enqueue_copy(queue, one, one, byte_count=8, src_offset=0, dst_offset=8)
    return contents(queue, one), contents(queue, other)


def case_copy_that_overlaps(ctx, queue):
    buffer = filled(ctx)
    cl.enqueue_copy(queue, buffer, buffer, byte_count=20, src_offset=0, dst_offset=8)


def case_copy_beyond_the_end(ctx, queue):
    cl.enqueue_copy(queue, filled(ctx), filled(ctx), byte_count=20, src_offset=250)


def case_copy_of_all_to_a_smaller_one(ctx, queue):
    cl.enqueue_copy(queue, filled(ctx, BYTES[:8].copy()), filled(ctx))


def case_fills(ctx, queue):
    buffer = filled(ctx)
    cl.enqueue_fill_buffer(queue, buffer, np.uint8(5), 3, 7)
    cl.enqueue_fill_buffer(queue, buffer, np.float32(1.5), 64, 32)
    cl.enqueue_fill_buffer(queue, buffer, np.arange(4, dtype=np.int32), 128, 32)
    return contents(queue, buffer)


def case_fill_of_no_whole_patterns(ctx, queue):
    cl.enqueue_fill_buffer(queue, filled(ctx), np.float32(1.5), 2, 32)


def case_fill_by_three_bytes(ctx, queue):
    cl.enqueue_fill_buffer(queue, filled(ctx), bytes(3), 0, 30)


def case_sizes(ctx, queue):
    return cl.Buffer(ctx, F.READ_ONLY, 0)


def case_larger_than_the_host_memory(ctx, queue):
    return cl.Buffer(ctx, F.COPY_HOST_PTR, 300, hostbuf=BYTES)


def case_flags_without_memory(ctx, queue):
    return cl.Buffer(ctx, F.COPY_HOST_PTR, 300)


def case_flags_that_exclude_one_another(ctx, queue):
    return cl.Buffer(ctx, F.READ_ONLY | F.WRITE_ONLY, 300)


def case_information(ctx, queue):
    buffer = cl.Buffer(ctx, F.READ_ONLY | F.ALLOC_HOST_PTR, 300)
    part = filled(ctx, np.zeros(1024, np.uint8))[256:512]
    told = [(b.size, b.flags, b.type, b.offset, b.map_count) for b in (buffer, part)]
    return told, buffer.context == ctx, part.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT) is None


def case_parts(ctx, queue):
    whole = filled(ctx, np.arange(1024, dtype=np.uint16))
    part, other = whole[256:768], whole.get_sub_region(1024, 512)
    cl.enqueue_copy(queue, part, np.full(4, 255, np.uint8), dst_offset=4)
    cl.enqueue_fill_buffer(queue, other, np.uint8(9), 100, 10)
    cl.enqueue_copy(queue, other, part, byte_count=16, dst_offset=200)
    return contents(queue, whole), contents(queue, part)


def case_part_that_begins_nowhere(ctx, queue):
    return filled(ctx)[3:10]


def case_part_with_steps(ctx, queue):
    return filled(ctx)[0:100:2]


def case_part_of_nothing(ctx, queue):
    return filled(ctx)[128:128]


def case_part_of_a_part(ctx, queue):
    return filled(ctx)[128:256].get_sub_region(0, 16)


def case_part_beyond_the_end(ctx, queue):
    return filled(ctx).get_sub_region(128, 200)


def case_released(ctx, queue):
    buffer = filled(ctx)
    buffer.release()
    buffer.release()


def case_map_for_reading(ctx, queue):
    array, event = cl.enqueue_map_buffer(queue, filled(ctx), cl.map_flags.READ, 16, (3, 4), np.int16)
    found = array.tolist(), array.shape, event.command_execution_status
    array.base.release(queue)
    return found


def case_map_for_writing(ctx, queue):
    buffer = filled(ctx)
    array, _ = cl.enqueue_map_buffer(queue, buffer, cl.map_flags.WRITE, 8, (2, 3), np.int32, order="F")
    array[:] = [[1, 2, 3], [4, 5, 6]]
    array.base.release(queue)
    array, _ = cl.enqueue_map_buffer(queue, buffer, cl.map_flags.WRITE_INVALIDATE_REGION, 200, (8,), np.uint8)
    with array.base:
        array[:] = 1
    return contents(queue, buffer)


def case_unmapped_twice(ctx, queue):
    array, _ = cl.enqueue_map_buffer(queue, filled(ctx), cl.map_flags.READ, 0, (3,), np.int16)
    array.base.release()
    return contents(queue, filled(ctx))


def case_map_beyond_the_end(ctx, queue):
    cl.enqueue_map_buffer(queue, filled(ctx), cl.map_flags.READ, 250, (10,), np.uint8)


def case_memory_of_the_host(ctx, queue):
    """On a CPU, buffers on the host's memory are that memory."""
    mine = BYTES.copy()
    buffer = cl.Buffer(ctx, F.READ_WRITE | F.USE_HOST_PTR, hostbuf=mine)
    cl.enqueue_fill_buffer(queue, buffer, np.uint8(5), 0, 7)
    queue.finish()
    first = mine.tolist()
    mine[10] = 99
    shown = buffer.get_host_array((4,), np.uint8)
    return first, contents(queue, buffer), shown.tolist(), shown.base is buffer, buffer.hostbuf is mine


def case_no_memory_of_the_host(ctx, queue):
    filled(ctx).get_host_array((4,), np.uint8)


def case_rectangles(ctx, queue):
    table = np.arange(12 * 8, dtype=np.uint8).reshape(12, 8)
    one, other = filled(ctx, table), filled(ctx, np.zeros(240, np.uint8))
    kinds: Any = {"src_origin": (2, 3), "dst_origin": (1, 1, 1), "region": (4, 5), "src_pitches": (8,)}
    cl.enqueue_copy(queue, other, one, **kinds, dst_pitches=(10, 60))
    written = np.full((4, 6), 200, np.uint8)
    where: Any = {"buffer_origin": (1, 2), "host_origin": (1, 0), "region": (3, 2)}
    cl.enqueue_copy(queue, other, written, **where, buffer_pitches=(10,), host_pitches=(6,))
    read = np.zeros((5, 9), np.uint8)
    cl.enqueue_copy(
        queue,
        read,
        one,
        buffer_origin=(1, 4),
        host_origin=(2, 1),
        region=(3, 4),
        buffer_pitches=(8,),
        host_pitches=(9,),
    )
    return contents(queue, other), read.tolist()


def case_rectangle_beyond_the_end(ctx, queue):
    one, other = filled(ctx), filled(ctx)
    cl.enqueue_copy(queue, other, one, src_origin=(0, 250), dst_origin=(0, 0), region=(2, 20), src_pitches=(2,))


def case_rectangles_that_overlap(ctx, queue):
    one = filled(ctx)
    pitches: Any = {"src_pitches": (16,), "dst_pitches": (16,)}
    cl.enqueue_copy(queue, one, one, src_origin=(0, 0), dst_origin=(2, 1), region=(4, 4), **pitches)


def case_rectangles_within_a_buffer(ctx, queue):
    one = filled(ctx)
    pitches: Any = {"src_pitches": (16,), "dst_pitches": (16,)}
    cl.enqueue_copy(queue, one, one, src_origin=(0, 0), dst_origin=(4, 1), region=(4, 4), **pitches)
    return contents(queue, one)


def case_migration(ctx, queue):
    buffer = filled(ctx)
    cl.enqueue_migrate_mem_objects(queue, [buffer]).wait()
    return contents(queue, buffer)


def case_pools(ctx, queue):
    from pyopencl.tools import ImmediateAllocator, MemoryPool

    pool = MemoryPool(ImmediateAllocator(queue))
    kept = [pool.allocate(n) for n in (1, 15, 16, 17, 1000, 1 << 20)]
    before = pool.held_blocks, pool.active_blocks, pool.active_bytes, pool.managed_bytes
    del kept[2:4]
    between = pool.held_blocks, pool.active_blocks, pool.active_bytes, pool.managed_bytes
    again = pool.allocate(16)
    cl.enqueue_copy(queue, again, bytes(range(16)))
    out = np.empty(16, np.uint8)
    cl.enqueue_copy(queue, out, again)
    pool.stop_holding()
    bins = [(pool.bin_number(n), pool.alloc_size(pool.bin_number(n))) for n in (0, 1, 2, 31, 32, 33, 12345, 1 << 33)]
    return before, between, out.tolist(), (pool.held_blocks, pool.managed_bytes), bins


def case_released_to_its_pool_twice(ctx, queue):
    from pyopencl.tools import ImmediateAllocator, MemoryPool

    block = MemoryPool(ImmediateAllocator(queue)).allocate(16)
    block.release()
    block.release()


def refused(call: Any) -> list[Any]:
    """How a call ends."""
    try:
        call()
    except cl.Error as error:
        return [type(error).__name__, error.code, error.routine]
    return ["accepted"]


def case_what_cannot_be(ctx, queue):
    """Calls that ask for bytes, memory and patterns that there are not; contents stay as they are."""
    buffer, other, read_only = filled(ctx), filled(ctx), cl.Buffer(ctx, F.READ_ONLY, 256)
    host, four, read = np.zeros(256, np.uint8), np.int32(1), cl.map_flags.READ
    rows = {"buffer_origin": (0, 0), "host_origin": (0, 0), "host_pitches": (16,)}
    calls = [
        lambda: cl.enqueue_copy(queue, np.empty(257, np.uint8), buffer),
        lambda: cl.enqueue_copy(queue, host, buffer, src_offset=1),
        lambda: cl.enqueue_copy(queue, buffer, np.empty(257, np.uint8)),
        lambda: cl.enqueue_copy(queue, buffer, host, dst_offset=1),
        lambda: cl.enqueue_copy(queue, other, buffer, byte_count=257),
        lambda: cl.enqueue_copy(queue, other, buffer, byte_count=256, src_offset=1),
        lambda: cl.enqueue_copy(queue, other, buffer, byte_count=256, dst_offset=1),
        lambda: cl.enqueue_copy(queue, other, buffer, byte_count=0),
        lambda: cl.enqueue_copy(queue, buffer, buffer, byte_count=16, dst_offset=4),
        lambda: cl.enqueue_copy(queue, host, buffer, region=(16, 17), buffer_pitches=(16,), **rows),
        lambda: cl.enqueue_copy(queue, host, buffer, region=(16, 2), buffer_pitches=(8,), **rows),
        *(
            lambda pattern=pattern, low=low, size=size: cl.enqueue_fill_buffer(queue, buffer, pattern, low, size)
            for pattern, low, size in ((b"abc", 0, 3), (b"", 0, 4), (four, 0, 6), (four, 2, 8), (four, 0, 260))
        ),
        lambda: cl.enqueue_fill_buffer(queue, buffer, host, 0, 256),
        lambda: cl.enqueue_map_buffer(queue, buffer, read, 0, (257,), np.uint8),
        lambda: cl.enqueue_map_buffer(queue, buffer, read, 8, (256,), np.uint8),
        lambda: cl.enqueue_map_buffer(queue, buffer, read, 0, (0,), np.uint8),
        lambda: buffer.get_sub_region(4, 16),
        lambda: buffer.get_sub_region(0, 257),
        lambda: buffer.get_sub_region(0, 0),
        lambda: buffer.get_sub_region(0, 128).get_sub_region(0, 64),
        lambda: read_only.get_sub_region(0, 64, F.WRITE_ONLY),
        lambda: read_only.get_sub_region(0, 64, F.READ_WRITE),
        lambda: read_only.get_sub_region(0, 64, F.READ_ONLY),
        lambda: cl.Buffer(ctx, F.READ_WRITE, 0),
        lambda: cl.Buffer(ctx, F.READ_WRITE, 1 << 45),
        lambda: cl.Buffer(ctx, F.READ_ONLY | F.WRITE_ONLY, 64),
        lambda: cl.Buffer(ctx, F.USE_HOST_PTR | F.COPY_HOST_PTR, hostbuf=host),
        lambda: cl.Buffer(ctx, F.USE_HOST_PTR, 64),
        lambda: cl.Buffer(ctx, F.COPY_HOST_PTR, 257, hostbuf=host),
        lambda: cl.CommandQueue(ctx, properties=1 << 40),
        lambda: cl.UserEvent(ctx).set_status(7),
    ]
    return [refused(call) for call in calls], contents(queue, buffer), contents(queue, other)
