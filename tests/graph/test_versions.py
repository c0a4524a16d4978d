"""Versions of a kernel: which differences are refused, in which words; who may run which; which promises hold."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.analysis import parse_program
from manycl.analysis.annotations import annotation
from manycl.errors import LaunchError
from manycl.graph.graph import Buffer, BufferArg, Version
from manycl.graph.launch import LaunchOptions, make_launch, with_versions
from manycl.graph.versions.versions import check_same_arguments, preferred
from manycl.machine import DEVICE_KINDS

FIRST = parse_program(
    """typedef struct { int a; float b; } pair;
kernel void add(global const float *a, global const float *b, global float *c, int n) {
  int i = get_global_id(0); if (i < n) c[i] = a[i] + b[i]; }
kernel void table(constant float *t, global float *out) { out[get_global_id(0)] = t[0]; }
kernel void pairs(global pair *p, local float *tmp) { p[0].a = 1; tmp[0] = 1; }
kernel void scatter(global const int *to, global float *out, int n) { out[to[get_global_id(0)]] = n; }
""",
    path="first.cl",
)


def second(source: str) -> tuple[Any, Any]:
    program = parse_program(source, path="second.cl")
    return program, next(iter(program.kernels.values()))


REFUSED = [
    (
        "add",
        "kernel void f(global float *a, global float *b, int n) { a[0] = b[0]; }",
        "versions of one step differ in their arguments: kernel add (first.cl:2) has 4 (a, b, c, n),"
        " kernel f (second.cl:1) 3 (a, b, n)",
    ),
    (
        "add",
        "kernel void f() {}",
        "versions of one step differ in their arguments: kernel add (first.cl:2) has 4 (a, b, c, n),"
        " kernel f (second.cl:1) none",
    ),
    (
        "add",
        "\n\nkernel void f(global const float *b, global const float *a, global float *c, int n) { *c = *a + *b + n; }",
        "versions of one step differ in the order of their arguments: argument 0 is a in kernel add (first.cl:2),"
        " b in kernel f (second.cl:3)",
    ),
    (
        "add",
        "kernel void f(global const float *a, global const float *b, global float *c, local int *n) { *c = *a + *b; }",
        "versions of one step differ in argument 3 (n): a value in kernel add (first.cl:2),"
        " local memory in kernel f (second.cl:1)",
    ),
    (
        "add",
        "kernel void f(global const float *a, global const float *b, global float *c, uint n) { c[n] = a[0] + b[0]; }",
        "versions of one step differ in argument 3 (n): type int in kernel add (first.cl:2),"
        " type uint in kernel f (second.cl:1)",
    ),
    (
        "add",
        "kernel void f(global const float *x, global const float4 *y, global float *z, int m) { *z = *x + y[m].x; }",
        "versions of one step differ in argument 1 (b, y): type float in kernel add (first.cl:2),"
        " type float4 in kernel f (second.cl:1)",
    ),
    (
        "add",
        "kernel void f(global const float *a, global const float *b, global float *c, int n) { c[n] += a[0] + b[0]; }",
        "versions of one step differ in argument 2 (c): written in kernel add (first.cl:2),"
        " read and written in kernel f (second.cl:1)",
    ),
    (
        "add",
        "kernel void f(global const float *a, global const float *b, global float *c, int n) { c[n] = a[0]; }",
        "versions of one step differ in argument 1 (b): read in kernel add (first.cl:2),"
        " unused in kernel f (second.cl:1)",
    ),
    (
        "table",
        "kernel void f(global const float *t, global float *out) { out[get_global_id(0)] = t[0]; }",
        "versions of one step differ in argument 0 (t): constant memory in kernel table (first.cl:4),"
        " global memory in kernel f (second.cl:1)",
    ),
    (
        "pairs",
        "typedef struct { int a; float b, c; } pair; kernel void f(global pair *p, local float *tmp) { p[0].a = 1; }",
        "versions of one step differ in argument 0 (p): type pair of 8 bytes in kernel pairs (first.cl:5),"
        " type pair of 12 bytes in kernel f (second.cl:1)",
    ),
]


@pytest.mark.parametrize(("name", "source", "words"), REFUSED, ids=[r[2][20:90] for r in REFUSED])
def test_differences_are_refused(name: str, source: str, words: str) -> None:
    program, kernel = second(source)
    with pytest.raises(LaunchError) as caught:
        check_same_arguments(FIRST, FIRST.kernels[name], program, kernel)
    assert caught.value.message == words
    with pytest.raises(LaunchError, match="versions of one step differ"):
        check_same_arguments(program, kernel, FIRST, FIRST.kernels[name])


def test_a_widened_direction_is_refused_with_its_reason() -> None:
    program, kernel = second(
        "kernel void f(global const float *a, global const float *b, global float *c, int n)"
        " { *(global float *)(ulong)c = a[0] + b[0] + n; }"
    )
    fact = kernel.arguments[0]
    assert fact.reads
    assert fact.reason
    with pytest.raises(LaunchError) as caught:
        check_same_arguments(FIRST, FIRST.kernels["add"], program, kernel)
    assert f"read and written ({fact.reason}) in kernel f (second.cl:1)" in caught.value.message


def test_what_may_differ() -> None:
    """Names, constness and the spelling of a type say nothing about what a kernel does."""
    program, kernel = second(
        "typedef int index; kernel void f(global float *x, const global float *restrict y, global float *z,"
        " const index m) { z[m] = x[0] + y[0]; }"
    )
    check_same_arguments(FIRST, FIRST.kernels["add"], program, kernel)
    for each in FIRST.kernels.values():
        check_same_arguments(FIRST, each, FIRST, each)


@given(st.lists(st.sets(st.sampled_from(DEVICE_KINDS)), max_size=6), st.sampled_from(DEVICE_KINDS))
def test_the_order_of_preference(kinds: list[set[str]], kind: str) -> None:
    kernel = FIRST.kernels["add"]
    versions = [Version(FIRST, kernel, (1,), None, tuple(sorted(k))) for k in ({*()}, *kinds)]
    order = preferred(versions, kind)
    assert set(order) == {i for i, v in enumerate(versions) if kind in v.kinds or not v.kinds}
    assert len(order) == len(set(order))
    for before, after in pairwise(order):
        assert (not versions[before].kinds, before) < (not versions[after].kinds, after)
    assert 0 in order  # the kernel itself runs anywhere


def test_promises_about_data_hold_for_all_versions() -> None:
    own = FIRST.kernels["scatter"]
    program, kernel = second(
        "kernel void f(global const int *t, global float *o, int n) { o[t[2 * get_global_id(0)]] = n; }"
    )
    promised = (
        annotation(own, "to", values=(0, "n"), distinct=True),
        annotation(own, "out", within=("gid0", "gid0 + 1")),
    )
    theirs = (annotation(kernel, "t", within=("2 * gid0", "2 * gid0 + 2")),)
    buffers = {0: Buffer(0, 64), 1: Buffer(1, 64)}
    args = [BufferArg(0), BufferArg(1), 16]
    alone = make_launch(FIRST, "scatter", 16, None, args, buffers=buffers, options=LaunchOptions(annotations=promised))
    others = [Version(program, kernel, (8,), (8,), ("gpu",), theirs), Version(FIRST, own, (16,), (4,))]
    launch = with_versions(alone, others)
    assert launch.annotations == launch.versions[0].annotations == promised
    said = [[a.to_json() for a in v.annotations] for v in launch.versions]
    values = {"argument": 0, "name": "to", "values": ["0", "n"], "distinct": True}
    assert said[1] == [{**values, "name": "t", "within": {"reads": ["2 * gid0", "2 * gid0 + 2"]}}]
    assert said[2] == [values]
    assert [(v.global_size, v.local_size) for v in launch.versions] == [((16,), None), ((8,), (8,)), ((16,), (4,))]


def test_a_launch_checks_its_versions() -> None:
    kernel = FIRST.kernels["add"]
    buffers = {k: Buffer(k, 64) for k in range(3)}
    args = [BufferArg(0), BufferArg(1), BufferArg(2), 16]
    launch = make_launch(FIRST, "add", 16, None, args, buffers=buffers)
    moved = make_launch(FIRST, "add", 16, None, args, buffers=buffers, options=LaunchOptions(global_offset=(0,)))
    assert launch.versions == ()
    plane = Version(FIRST, kernel, (4, 4), None)
    assert with_versions(launch, [plane]).versions[1] is plane
    with pytest.raises(LaunchError, match=r"kernel add \(first.cl:2\): global offset \(0,\) does not fit .* \(4, 4\)"):
        with_versions(moved, [plane])
    with pytest.raises(LaunchError, match="not divisible by its work-group"):
        with_versions(launch, [Version(FIRST, kernel, (16,), (5,))])
    with pytest.raises(LaunchError, match="versions of one step differ"):
        with_versions(launch, [Version(FIRST, FIRST.kernels["table"], (1,), None)])
