"""Launches: the bytes of scalars against NumPy, and every check of a launch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.analysis.facts import ArgumentFacts, KernelFacts, ProgramFacts
from manycl.errors import LaunchError
from manycl.graph.graph import Buffer, BufferArg, LocalArg
from manycl.graph.launch import (
    LaunchOptions,
    check_element_type,
    check_ndrange,
    make_launch,
    scalar_bytes,
    split_type,
)
from manycl.graph.versions.feasible import beyond
from manycl.machine import Device

NUMPY: dict[str, Any] = {
    "char": np.int8, "uchar": np.uint8, "short": np.int16, "ushort": np.uint16, "int": np.int32,
    "uint": np.uint32, "long": np.int64, "ulong": np.uint64, "half": np.float16, "float": np.float32,
    "double": np.float64,
}  # fmt: skip


def scalar(base: str, lanes: int = 1, size: int = 0, name: str = "x") -> ArgumentFacts:
    element = base + (str(lanes) if lanes > 1 else "")
    return ArgumentFacts(1, name, "scalar", element, base, lanes, size, "private")


def pointer(index: int, name: str, *, reads: bool = False, writes: bool = False, kind: str = "buffer") -> ArgumentFacts:
    space = "local" if kind == "local" else "global"
    return ArgumentFacts(index, name, kind, "float", "float", 1, 4, space, reads=reads, writes=writes)


KERNEL = KernelFacts(
    "scale",
    3,
    (
        pointer(0, "out", writes=True),
        scalar("float", size=4, name="factor"),
        pointer(2, "data", reads=True),
        pointer(3, "tmp", kind="local"),
    ),
)
PROGRAM = ProgramFacts("", (), {"scale": KERNEL}, path="scale.cl")
BUFFERS = {0: Buffer(0, 64, "a"), 1: Buffer(1, 64, "b"), 2: Buffer(2, 10, "odd")}
GOOD = [BufferArg(0), 2.5, BufferArg(1), LocalArg(16)]


@pytest.mark.parametrize("base", [b for b in NUMPY if np.dtype(NUMPY[b]).kind in "iu"])
@given(value=st.integers(-(2**65), 2**65))
def test_integers_fit_or_are_refused(base: str, value: int) -> None:
    limits = np.iinfo(NUMPY[base])
    if limits.min <= value <= limits.max:
        assert scalar_bytes(scalar(base), value) == NUMPY[base](value).tobytes()
    else:
        with pytest.raises(LaunchError, match=r"argument 1 .x. is out of range"):
            scalar_bytes(scalar(base), value)


@given(value=st.floats(width=32) | st.integers(-(2**20), 2**20))
def test_floats_are_converted_by_value(value: float) -> None:
    assert scalar_bytes(scalar("float"), value) == np.float32(value).tobytes()
    assert scalar_bytes(scalar("double"), np.float32(value)) == np.float64(np.float32(value)).tobytes()


def test_numpy_scalars_are_converted_never_reinterpreted() -> None:
    assert scalar_bytes(scalar("float"), np.int32(3)) == np.float32(3).tobytes()
    assert scalar_bytes(scalar("int"), np.int64(7)) == np.int32(7).tobytes()
    assert scalar_bytes(scalar("int"), np.array(7)) == np.int32(7).tobytes()
    assert scalar_bytes(scalar("int"), np.bool_(True)) == np.int32(1).tobytes()
    assert scalar_bytes(scalar("float4"[:5], 4), np.arange(4)) == np.arange(4, dtype=np.float32).tobytes()


@pytest.mark.parametrize("value", [1.5, np.float32(2.0), "3", None, [1], np.arange(2), 1j, {}])
def test_what_is_no_integer_is_refused(value: object) -> None:
    with pytest.raises(LaunchError, match="needs an integer"):
        scalar_bytes(scalar("int"), value)


def test_float_overflow_is_refused() -> None:
    with pytest.raises(LaunchError, match="does not fit float"):
        scalar_bytes(scalar("float"), 1e39)
    with pytest.raises(LaunchError, match="does not fit double"):
        scalar_bytes(scalar("double"), 10**400)


def test_vectors_and_structs() -> None:
    three = scalar_bytes(scalar("float", 3, 16), [1, 2, 3])
    assert three == np.array([1, 2, 3, 0], np.float32).tobytes()
    with pytest.raises(LaunchError, match="needs 4 numbers"):
        scalar_bytes(scalar("int", 4, 16), [1, 2, 3])
    record = np.zeros((), dtype=[("a", "i4"), ("b", "f4")])
    struct_argument = ArgumentFacts(0, "p", "scalar", "struct pair", "", 1, 8, "private")
    assert scalar_bytes(struct_argument, record) == bytes(8)
    assert scalar_bytes(struct_argument, record[()]) == bytes(8)
    assert scalar_bytes(scalar("float", 2, 8), np.zeros((), dtype=[("x", "f4"), ("y", "f4")])) == bytes(8)
    with pytest.raises(LaunchError, match="has 8 bytes, got 3"):
        scalar_bytes(struct_argument, b"abc")
    with pytest.raises(LaunchError, match="needs 8 bytes"):
        scalar_bytes(struct_argument, [1, 2])


def test_launch_reads_and_writes_what_the_kernel_does() -> None:
    launch = make_launch(
        PROGRAM,
        "scale",
        [16, 4],
        (4, 4),
        GOOD,
        buffers=BUFFERS,
        options=LaunchOptions(name="s0", device="gpu", rank=2.0),
    )
    assert (launch.reads, launch.writes) == ((1,), (0,))
    assert launch.args == (BufferArg(0), np.float32(2.5).tobytes(), BufferArg(1), LocalArg(16))
    assert (launch.global_size, launch.local_size, launch.name, launch.device) == (
        (16, 4),
        (4, 4),
        "s0",
        "gpu",
    )
    same = make_launch(PROGRAM, "scale", 8, None, [BufferArg(1), 1, BufferArg(1), LocalArg(4)], buffers=BUFFERS)
    assert (same.reads, same.writes, same.local_size) == ((1,), (1,), None)


@pytest.mark.parametrize(
    ("position", "value", "words"),
    [
        (0, 3, "kernel scale: argument 0 .out. takes a buffer"),
        (0, LocalArg(4), "argument 0 .out. takes a buffer, not local memory"),
        (0, BufferArg(9), "there is no buffer 9"),
        (0, BufferArg(2), "buffer odd of 10 bytes is not a whole number of float"),
        (1, BufferArg(0), "argument 1 .factor. takes a value of type float, not a buffer"),
        (1, LocalArg(4), "not local memory"),
        (1, "two", "argument 1 .factor. needs a number"),
        (3, BufferArg(0), "takes a size of local memory, not a buffer"),
        (3, LocalArg(0), "0 bytes of local memory"),
        (3, LocalArg(6), "6 bytes of local memory"),
    ],
)
def test_a_wrong_argument_is_named(position: int, value: object, words: str) -> None:
    args = list(GOOD)
    args[position] = value
    with pytest.raises(LaunchError, match=words):
        make_launch(PROGRAM, "scale", 8, None, args, buffers=BUFFERS)


def test_wrong_counts_kernels_and_types() -> None:
    with pytest.raises(LaunchError, match=r"takes 4 arguments \(out, factor, data, tmp\), got 3"):
        make_launch(PROGRAM, "scale", 8, None, GOOD[:3], buffers=BUFFERS)
    with pytest.raises(LaunchError, match=r"scale.cl has no kernel 'scala'"):
        make_launch(PROGRAM, "scala", 8, None, GOOD, buffers=BUFFERS)
    with pytest.raises(LaunchError, match=r"argument 0 .out. points to float, but the buffer holds float64"):
        make_launch(PROGRAM, "scale", 8, None, GOOD, buffers=BUFFERS, dtypes={0: "float64"})
    image = KernelFacts("k", 1, (pointer(0, "im", kind="image"),))
    with pytest.raises(LaunchError, match="does not run yet"):
        make_launch(ProgramFacts("", (), {"k": image}), "k", 1, None, [BufferArg(0)], buffers=BUFFERS)


def test_element_types() -> None:
    check_element_type(pointer(0, "p"), "float32")
    check_element_type(pointer(0, "p"), "uint8")
    check_element_type(scalar("uint"), "int32")
    for dtype in ("int32", "float16", "int64"):
        with pytest.raises(LaunchError, match="points to float"):
            check_element_type(pointer(0, "p"), dtype)
    for inner in ("f4", "f8"):
        nested = np.dtype([("x", "f4"), ("members", [("pad", "V4"), ("y", inner, (2, 2))])])
        if inner == "f4":
            check_element_type(pointer(0, "p"), nested)
        else:
            with pytest.raises(LaunchError, match="points to float, but the buffer holds elements of"):
                check_element_type(pointer(0, "p"), nested)


@pytest.mark.parametrize(
    ("size", "local", "words"),
    [
        ((), None, "0 dimensions"),
        ((1, 1, 1, 1), None, "4 dimensions"),
        ((4, 0), None, "must be positive"),
        (-1, None, "must be positive"),
        ((4.0,), None, "not made of integers"),
        ((4, True), None, "not made of integers"),
        ("88", None, "not made of integers"),
        (None, None, "not made of integers"),
        ((8, 8), (4,), "has 1 dimensions"),
        ((8, 10), (4, 4), r"not divisible by its work-group \(4, 4\) in dimension 1 \(10 % 4 = 2\)"),
        ((2**40, 2**40), None, "too many work-items"),
    ],
)
def test_a_wrong_ndrange_is_refused(size: object, local: object, words: str) -> None:
    with pytest.raises(LaunchError, match=words) as caught:
        check_ndrange(KERNEL, size, local)  # type: ignore[arg-type]
    assert "scale" in caught.value.message


def test_required_and_largest_work_groups() -> None:
    kernel = KernelFacts("k", 1, (), required_work_group=(8, 4, 1))
    assert check_ndrange(kernel, (16, 16), None) == ((16, 16), (8, 4))
    assert check_ndrange(kernel, np.array([16, 16]), (8, 4)) == ((16, 16), (8, 4))
    with pytest.raises(LaunchError, match="requires work-groups of"):
        check_ndrange(kernel, (16, 16), (4, 8))
    with pytest.raises(LaunchError, match="requires work-groups of"):
        check_ndrange(kernel, 16, None)
    with pytest.raises(LaunchError, match="not divisible"):
        check_ndrange(kernel, (16, 18), None)


def test_type_names() -> None:
    assert split_type("float16") == ("float", 16)
    assert split_type("unsigned  int") == ("uint", 1)
    assert split_type("unsigned") == ("uint", 1)
    for wrong in ("float5", "", "int*", "4", "image2d_t"):
        with pytest.raises(ValueError, match="not a scalar or vector type"):
            split_type(wrong)


@given(st.lists(st.integers(1, 64), min_size=1, max_size=3), st.integers(-1, 1))
def test_as_many_work_items_as_allowed_and_not_one_more(local: list[int], more: int) -> None:
    """In a work-group, and in all."""
    items, nbytes = int(np.prod(local)), 16 + 4  # of local memory: of an argument, and the kernel's own
    program = replace(PROGRAM, kernels={"scale": replace(KERNEL, local_bytes=4)})
    launch = make_launch(program, "scale", [2 * n for n in local], local, GOOD, buffers=BUFFERS)
    exact = Device("d", "cpu", max_work_group=items, local_memory=nbytes)
    assert not beyond(launch, exact)
    said = beyond(launch, replace(exact, max_work_group=items + more))
    assert said == (f"work-groups of {items} work-items, where d has at most {items - 1}" if more < 0 else "")
    said = beyond(launch, replace(exact, local_memory=nbytes + more))
    assert said == ("20 bytes of local memory, where d has 19" if more < 0 else "")
    assert check_ndrange(KERNEL, (2**63 - 1,), None) == ((2**63 - 1,), None)
    with pytest.raises(LaunchError, match="too many work-items"):
        check_ndrange(KERNEL, (2**62, 2), None)
