"""The difference merge against NumPy, on PoCL and Oclgrind."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from manycl.analysis.texts.difference import OPERATIONS, DifferenceMerge, difference_merge
from tests.analysis import truth

cl = truth.cl
DEVICES = (truth.OCLGRIND, truth.POCL)

# what two devices did to a buffer, both at once
TOGETHER: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": lambda a, b: a + b,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
KINDS = {"uchar": "u1", "ushort": "u2", "int": "i4", "uint": "u4", "long": "i8", "ulong": "u8"}
MERGES = (
    *(
        difference_merge(how, element)
        for how in ("copy", "checked")
        for element in ("uchar", "ushort", "uint", "ulong")
    ),
    difference_merge("restore"),
    *(difference_merge(operation, element) for operation in TOGETHER for element in ("int", "uint", "long", "ulong")),
)


@functools.cache
def program(name: str) -> Any:
    """All merges in one program."""
    text = "".join(merge.source for merge in MERGES)
    found, context, _ = truth.device(name)
    return cl.Program(context, text).build(devices=[found])


def run(
    name: str,
    merge: DifferenceMerge,
    copies: list[np.ndarray],
    count: int,
    shift: int = 0,
    more: int = 0,
    told: np.ndarray | None = None,
) -> Any:
    """The bytes of dst afterwards; the copies begin ``shift`` bytes inside of their buffers. ``told``: conflicts."""
    _, context, queue = truth.device(name)
    inside = [np.concatenate([np.full(shift, 77, np.uint8), copy.view(np.uint8)]) for copy in copies]
    buffers = [cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=data) for data in inside]
    compiled = cl.Kernel(program(name), merge.kernel)
    flags = [] if told is None else [cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=told)]
    compiled.set_args(*buffers, np.uint64(shift), np.uint64(count), *flags)
    cl.enqueue_nd_range_kernel(queue, compiled, (merge.work_items(count) + more,), None)
    after, others = np.empty_like(inside[0]), [np.empty_like(data) for data in inside[1:]]
    for found, buffer in zip([after, *others], buffers, strict=True):
        cl.enqueue_copy(queue, found, buffer)
        buffer.release()
    for flag in flags:
        cl.enqueue_copy(queue, told, flag)
    assert all(np.array_equal(a, b) for a, b in zip(others, inside[1:], strict=True))
    assert (after[:shift] == 77).all()
    return after[shift:]


def two_copies(random: np.random.Generator, kind: str, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(dst, src, old): each device changed elements of its own; small changes leave most bytes of an element alone."""
    old = random.integers(0, 256, count * np.dtype(kind).itemsize, np.uint8).view(kind)
    owner = random.integers(0, 3, count)  # of whom an element is: of neither, of dst, of src
    small = random.integers(1, 200, count).astype(kind)
    large = random.integers(0, 256, old.nbytes, np.uint8).view(kind)
    new = np.where(random.random(count) < 0.5, old ^ small, large).astype(kind)
    return np.where(owner == 1, new, old), np.where(owner == 2, new, old), old


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("element", ["uchar", "ushort", "uint", "ulong"])
def test_elements_of_two_devices_come_together(name: str, element: str) -> None:
    random, kind = np.random.default_rng(5), KINDS[element]
    merge = difference_merge("copy", element)
    for count in (1, 2, 3, 7, 8, 15, 16, 17, 33, 100):
        dst, src, old = two_copies(random, kind, count)
        expected = np.where(src != old, src, dst)
        for shift, more in ((0, 0), (16, 5), (np.dtype(kind).itemsize, 0)):
            after = run(name, merge, [dst, src, old], dst.nbytes, shift, more)
            assert np.array_equal(after.view(kind), expected)


@pytest.mark.parametrize("name", DEVICES)
def test_an_element_that_both_wrote_is_that_of_one_of_them(name: str) -> None:
    old = np.zeros(11, np.uint32)
    dst, src = np.full(11, 0x01020304, np.uint32), np.full(11, 0x0A000C00, np.uint32)
    assert np.array_equal(run(name, difference_merge("copy", "uint"), [dst, src, old], 44).view("u4"), src)
    bytewise = run(name, difference_merge("copy", "uchar"), [dst, src, old], 44).view("u4")
    assert (bytewise == 0x0A020C04).all()


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("element", ["uchar", "ushort", "uint", "ulong"])
def test_elements_that_both_changed_to_different_values_are_told(name: str, element: str) -> None:
    random, kind = np.random.default_rng(9), KINDS[element]
    merge, seen = difference_merge("checked", element), set()
    for count in (1, 2, 5, 16, 17, 40) * 3:
        dst, src, old = two_copies(random, kind, count)
        both = random.random(count) < random.choice([0.0, 0.5])
        dst, src = (np.where(both, old + random.integers(0, 3, count).astype(kind), each) for each in (dst, src))
        for shift in (0, 16, np.dtype(kind).itemsize):
            told = np.zeros(1, np.uint32)
            after = run(name, merge, [dst, src, old], dst.nbytes, shift, told=told)
            s, d, o = (each.view(np.uint8) for each in (src, dst, old))
            assert np.array_equal(after, np.where(s != o, s, d))
            expected = ((dst != old) & (src != old) & (dst != src)).any()
            assert bool(told[0]) == expected
            seen.add(bool(expected))
    assert seen == {False, True}


@pytest.mark.parametrize("name", DEVICES)
def test_old_contents_come_back_where_the_flag_is_set(name: str) -> None:
    dst, src = (np.random.default_rng(n).integers(0, 256, 41, np.uint8) for n in range(2))
    for flag, expected in ((0, dst), (1, src)):
        told = np.full(1, flag, np.uint32)
        assert np.array_equal(run(name, difference_merge("restore"), [dst, src, dst], 41, told=told), expected)


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("count", [0, 1, 5, 16, 21, 48, 50])
def test_what_lies_behind_is_left_alone(name: str, count: int) -> None:
    random = np.random.default_rng(count)
    dst, src, old = (random.integers(0, 256, 64, np.uint8) for _ in range(3))
    for element in ("uchar", "uint"):
        after = run(name, difference_merge("copy", element), [dst, src, old], count, more=3)
        assert np.array_equal(after[count:], dst[count:])
        whole = count - count % np.dtype(KINDS[element]).itemsize
        s, d, o = (each[:whole].view(KINDS[element]) for each in (src, dst, old))
        assert np.array_equal(after[:whole].view(KINDS[element]), np.where(s != o, s, d))
        rest = slice(whole, count)
        assert np.array_equal(after[rest], (src if (src[rest] != old[rest]).any() else dst)[rest])


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("element", ["int", "uint", "long", "ulong"])
@pytest.mark.parametrize("operation", TOGETHER)
def test_atomics_of_two_devices_come_together(name: str, operation: str, element: str) -> None:
    random, kind = np.random.default_rng(9), KINDS[element]
    merge, together = difference_merge(operation, element), TOGETHER[operation]
    neutral = np.frombuffer(merge.neutral, kind)
    for count in (1, 2, 5, 31):
        dst, theirs = (random.integers(0, 256, count * np.dtype(kind).itemsize, np.uint8).view(kind) for _ in range(2))
        with np.errstate(over="ignore"):
            src = together(neutral, theirs)
            src[::4] = neutral  # not touched there
            expected = together(dst, theirs)
        assert np.array_equal(src[1:2], theirs[1:2])
        expected[::4] = dst[::4]
        for shift, more in ((0, 5), (np.dtype(kind).itemsize, 0)):
            after = run(name, merge, [dst, src], dst.nbytes, shift, more)
            assert np.array_equal(after.view(kind), expected)


def test_what_cannot_be_merged() -> None:
    with pytest.raises(ValueError, match="no operation"):
        difference_merge("multiply", "uint")
    with pytest.raises(ValueError, match="uchar cannot be merged by add"):
        difference_merge("add", "uchar")
    with pytest.raises(ValueError, match="float cannot"):
        difference_merge("copy", "float")
    assert set(OPERATIONS) == {"copy", "checked", "restore", *TOGETHER}
