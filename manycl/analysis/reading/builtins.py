"""Effects of OpenCL C's built-in functions on the memory behind their pointer arguments (OpenCL C 3.0, 6.15). An
effect is ``r`` (reads), ``w`` (writes), ``rw`` or ``-`` (neither). A function that is not listed here and takes a
pointer counts as reading and writing through it."""

from __future__ import annotations

import functools
import re

_LEGACY = r"atom(ic)?_(add|sub|xchg|inc|dec|cmpxchg|min|max|and|or|xor)"
_VECTOR = "(2|3|4|8|16)"
_ROUNDING = "(_rte|_rtz|_rtp|_rtn)?"

# name -> effect on the argument at each position; positions beyond the end, and "-" on a pointer, are not touched
_EFFECTS: tuple[tuple[str, dict[int, str]], ...] = (
    (rf"vload(a?_half)?{_VECTOR}?", {1: "r"}),
    (rf"vstore(a?_half)?{_VECTOR}?{_ROUNDING}", {2: "w"}),
    (r"async_work_group_(strided_)?copy", {0: "w", 1: "r"}),
    (r"async_work_group_copy_(2D2D|3D3D)", {0: "w", 2: "r"}),
    (r"wait_group_events", {1: "r"}),
    (r"prefetch", {0: "r"}),
    (_LEGACY, {0: "rw"}),
    (r"atomic_load(_explicit)?", {0: "r"}),
    (r"atomic_(store|init)(_explicit)?", {0: "w"}),
    (r"atomic_exchange(_explicit)?", {0: "rw"}),
    (r"atomic_compare_exchange_(strong|weak)(_explicit)?", {0: "rw", 1: "rw"}),
    (r"atomic_fetch_(add|sub|or|xor|and|min|max)(_explicit)?", {0: "rw"}),
    (r"atomic_flag_test_and_set(_explicit)?", {0: "rw"}),
    (r"atomic_flag_clear(_explicit)?", {0: "w"}),
    (r"(fract|modf|sincos|frexp|lgamma_r)", {1: "w"}),
    (r"remquo", {2: "w"}),
    (r"printf", dict.fromkeys(range(64), "r")),
    (r"read_image(f|i|ui|h)", {0: "r"}),
    (r"write_image(f|i|ui|h)", {0: "w"}),
    (
        r"get_image_(width|height|depth|dim|array_size|channel_data_type|channel_order|num_mip_levels|num_samples)",
        {0: "-"},
    ),
    # a packet that is read is gone, and whether one can be written depends on what is there: both change the pipe
    (r"(read|write)_pipe", {0: "rw"}),
    (r"(work_group_|sub_group_)?(reserve|commit)_(read|write)_pipe", {0: "rw"}),
    (r"get_pipe_num_packets", {0: "r"}),
    (r"get_pipe_max_packets", {0: "-"}),
    (r"get_fence", {0: "-"}),
    (r"intel_sub_group_block_read(_u[csil])?(2|4|8|16)?", {0: "r"}),
    (r"intel_sub_group_block_write(_u[csil])?(2|4|8|16)?", {0: "w"}),
    (r"__builtin_nontemporal_load", {0: "r"}),
    (r"__builtin_nontemporal_store", {1: "w"}),
    (r"__builtin_prefetch", {0: "r"}),
)

_ID_QUERY = re.compile(
    r"get_(global|local|group|enqueued_local)_(id|size|offset)|get_num_groups|get_(global|enqueued_local)_size"
)
_BARRIER = re.compile(r"barrier|(work|sub)_group_barrier|(work|sub)_group_(all|any|broadcast|reduce|scan)\w*")
_GROUPS = re.compile(r"local|group|barrier|enqueue|_block|async_|wait_")

#: Pointer casts between address spaces: the result points where the argument does.
POINTER_CASTS = ("to_global", "to_local", "to_private", "__to_global", "__to_local", "__to_private")


@functools.cache
def effects(name: str, count: int) -> dict[int, str] | None:
    """The effect by argument position of a call with ``count`` arguments; None: an unknown function."""
    for pattern, table in _EFFECTS:
        if re.fullmatch(pattern, name):
            if name in ("read_pipe", "write_pipe"):  # the packet is the last argument
                return table | {count - 1: "w" if name == "read_pipe" else "r"}
            return table
    return None


def sees_groups(name: str) -> bool:
    """Return whether what the function does may depend on which work-items form a group, or on how large groups are."""
    return _GROUPS.search(name) is not None


def asks_dimension(name: str) -> bool:
    """Return whether the function takes a dimension of the NDRange."""
    return _ID_QUERY.fullmatch(name) is not None


def synchronises(name: str) -> bool:
    """Return whether the function is a barrier, or a group function, which works like one."""
    return _BARRIER.fullmatch(name) is not None
