"""Signatures: what batches have in common whose plans are each other's."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import manycl as mc
from manycl.graph.dependences import Batch, GraphBuilder
from manycl.graph.graph import Buffer, BufferArg, HostTask, Launch
from manycl.graph.signature import signature

PROGRAM = mc.Program("""
kernel void copy(global const int *x, global int *y) { int i = get_global_id(0); y[i] = x[i]; }
kernel void add(global int *x, int n) { int i = get_global_id(0); x[i] += n; }
""")


def batch(names: list[int], changed: dict[str, Any] | None = None, extra: int | None = None) -> Batch:
    """A kernel on two of some buffers and another one on one of them; buffer i has the key ``names[i]``."""
    builder = GraphBuilder()
    for key in names:
        builder.adopt(made(key))
    copy, add = PROGRAM.copy.facts, PROGRAM.add.facts
    a, b = names
    first = Launch("copy", PROGRAM.facts, copy, (64,), (8,), (BufferArg(a), BufferArg(b)), (a,), (b,))
    second = Launch("add", PROGRAM.facts, add, (64,), (8,), (BufferArg(b), bytes(4)), (b,), (b,))
    builder.add(first)
    builder.add(replace(second, **(changed or {})), () if extra is None else (extra,))
    return builder.batch()


def made(key: int, nbytes: int = 256) -> Buffer:
    return Buffer(key, nbytes, f"b{key}")


def test_signatures_know_buffers_by_their_places_only() -> None:
    one, other = signature(batch([3, 9])), signature(batch([70, 1]))
    assert one is not None
    assert other is not None
    assert one[0] == other[0]
    assert hash(one[0]) == hash(other[0])
    assert (one.keys, other.keys) == ((3, 9), (70, 1))


def test_whatever_differs_is_another_signature() -> None:
    plain = signature(batch([0, 1]))
    assert plain is not None
    other = mc.Program("kernel void add(global int *x, int n) { x[get_global_id(0)] += n; }")
    changes: dict[str, Any] = {
        "program": other.facts,
        "kernel": other.add.facts,
        "global_size": (32,),
        "local_size": (4,),
        "args": (BufferArg(1), b"\1\0\0\0"),
        "reads": (0, 1),
        "writes": (1, 0),
        "global_offset": (8,),
        "device": "gpu",
        "rank": 2.0,
        "annotations": PROGRAM_ANNOTATIONS,
        "versions": (),
        "overwrites": (1,),
        "partition": 3,
    }
    names = {f.name for f in fields(Launch)} - {"name"}
    assert names == set(changes), "each field of a launch is part of its signature"
    for name, value in changes.items():
        if name == "versions":
            continue
        found = signature(batch([0, 1], {name: value}))
        assert found is not None
        assert found[:2] != plain[:2], name
    views = [signature(batch([0, 1], {"args": (BufferArg(1, low, 64), bytes(4))})) for low in (0, 128)]
    assert len({plain[0], *(v[0] for v in views if v is not None)}) == 3
    swapped = signature(batch([0, 1], {"args": (BufferArg(0), bytes(4)), "reads": (0,), "writes": (0,)}))
    assert swapped is not None
    assert swapped[:2] != plain[:2]
    larger = batch([0, 1])
    assert signature(replace(larger, buffers={**larger.buffers, 1: made(1, 512)})) != plain
    assert signature(replace(larger, after={1: (0,)})) != plain
    assert signature(replace(larger, components=((0, 1),))) != plain
    assert signature(replace(larger, buffers={**larger.buffers, 2: made(2)})) is None
    assert signature(replace(larger, nodes=(larger.nodes[0], HostTask("h", print, (), (), ())))) is None


def _annotations() -> Any:
    program = mc.Program("kernel void add(global int *x, int n) { x[get_global_id(0)] += n; }")
    program.annotate("add", "x", within=("gid0", "gid0 + 1"))
    return program.add.annotations


PROGRAM_ANNOTATIONS = _annotations()


def test_a_launch_that_comes_again_counts_as_one_that_is_equal() -> None:
    given = batch([3, 9])
    again = Batch(given.nodes * 5, given.buffers, {})
    copies = Batch(tuple(replace(node) for node in again.nodes), given.buffers, {})
    assert len({id(node) for node in copies.nodes}) == 10
    found = signature(again)
    assert found is not None
    assert found == signature(copies)
    assert found.scalars == (bytes(4),) * 5
