"""Launches that certainly leave their buffers are refused, and no others: every subscript is computed to see."""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis import parse_program, service
from manycl.analysis.facts import ProgramFacts
from manycl.analysis.regions.enclosure import Enclosure
from manycl.errors import LaunchError
from manycl.graph import bounds
from manycl.graph.bounds import check
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Buffer, BufferArg, Graph, Launch, LocalArg
from manycl.graph.launch import make_launch

SOURCE = """
kernel void shifted(global int *a, int by, int add, int low, int high) {
    int i = get_global_id(0);
    if (i >= low && i < high) a[by * i + add] = 1;
}
kernel void rows(global const int *a, global int *b, int width, int add) {
    int i = get_global_id(0), j = get_global_id(1);
    b[0] = a[i * width + j + add];
}
kernel void summed(global const int *a, global int *b, int first, int count, int step) {
    int s = 0;
    for (int k = 0; k < count; k++) s += a[first + step * k + get_global_id(0)];
    b[get_global_id(0)] = s;
}
kernel void grouped(global int *a, int add) { a[get_group_id(0) * 8 + get_local_id(0) + add] = 1; }
kernel void paired(global int *a, int with) {
    int i = get_global_id(0), other = i ^ with;
    if (other > i) a[other] = 1;
}
kernel void butterfly(global int *a, int stride) {
    int i = get_global_id(0), k = i & (stride - 1), j = 2 * (i - k) + k;
    a[j] = 1;
    a[j + stride] = 2;
}
kernel void triangle(global int *a, int add) {
    int i = get_global_id(0);
    for (int k = 0; k <= i; k++) a[i * (i + 1) / 2 + k + add] = 1;
}
int far(global int *a, int i) { return a[i]; }
kernel void called(global int *a, global int *b, int add) { b[get_global_id(0)] = far(a, get_global_id(0) + add); }
kernel void unknown(global int *a, global const int *at, int add) {
    int i = get_global_id(0);
    if (at[i]) a[i + add] = 1;
    if (at[0] > 3) return;
    a[at[i] + add] = 2;
    a[i + add] = 3;
}
kernel void large(global int *a) { int x[1 << 28]; int i = get_global_id(0); x[a[i]] = i; a[i] = x[a[i] + 1]; }
"""


@pytest.fixture(scope="module")
def program() -> ProgramFacts:
    return parse_program(SOURCE)


@pytest.fixture(autouse=True)
def _all_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_LOOKED", 1 << 40)
    monkeypatch.setattr(bounds, "MOST_ASKED", 1 << 40)
    monkeypatch.setattr(bounds, "_checked", bounds._Checked())
    monkeypatch.delenv("MANYCL_BOUNDS", raising=False)


def launched(
    program: ProgramFacts, kernel: str, size: Any, local: Any, sizes: list[int], *scalars: int | LocalArg
) -> Graph:
    """``sizes``: ints in each buffer argument."""
    builder = GraphBuilder()
    keys = [builder.buffer(4 * n, f"buffer{i}") for i, n in enumerate(sizes)]
    buffers = {key: Buffer(key, 4 * n, f"buffer{i}") for i, (key, n) in enumerate(zip(keys, sizes, strict=True))}
    args = [*map(BufferArg, keys), *scalars]
    builder.add(make_launch(program, kernel, size, local, args, buffers=buffers))
    return builder.build()


def refused(graph: Graph) -> str:
    try:
        bounds.check(graph)
    except LaunchError as error:
        return str(error)
    return ""


SMALL = st.integers(-3, 20)
CASES = {
    "shifted": lambda n, m, by, add, low, high: ([by * i + add for i in range(n) if low <= i < high]),
    "rows": lambda n, m, width, add: [i * width + j + add for i, j in itertools.product(range(n), range(m))],
    "summed": lambda n, m, first, count, step: [first + step * k + i for k in range(count) for i in range(n)],
    "grouped": lambda n, m, add: [i + add for i in range(n)],
    "paired": lambda n, m, w: [i ^ w for i in range(n) if i ^ w > i],
    "called": lambda n, m, add: [i + add for i in range(n)],
}


@pytest.mark.parametrize("kernel", CASES)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_what_leaves_is_refused_and_nothing_else(program: ProgramFacts, kernel: str, data: st.DataObject) -> None:
    groups, m = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    n = 8 * groups
    items = data.draw(st.integers(1, 60))
    facts = program.kernels[kernel].arguments
    scalars = [data.draw(SMALL) for a in facts if a.kind == "scalar"]
    places = CASES[kernel](n, m, *scalars)
    size, local = ((n, m), (8, 1)) if kernel == "rows" else ((n,), (8,))
    sizes = [items, 64][: sum(a.kind == "buffer" for a in facts)]
    message = refused(launched(program, kernel, size, local, sizes, *scalars))
    outside = sorted(p for p in places if not 0 <= p < items)
    assert bool(message) == bool(outside)
    if outside:
        assert f"kernel {kernel} would " in message
        assert f" (bytes {4 * outside[0]} to {4 * outside[-1] + 3}) of argument 0 (a) (buffer buffer0)" in message
        assert f"which has {items} elements, {4 * items} bytes" in message
        line = next(i for i, text in enumerate(SOURCE.split("\n"), 1) if re.search(r"\ba\[", text) and _in(kernel, i))
        assert f"line {line}:" in message
        wanted = f"{outside[-1] + 1} elements" if outside[0] >= 0 else "no size of a would do"
        assert wanted in message
        sizes[0] = outside[-1] + 1
        if outside[0] >= 0 and sizes[0] < 4096:
            assert refused(launched(program, kernel, size, local, sizes, *scalars)) == ""


def _in(kernel: str, line: int) -> bool:
    """Whether a line belongs to the kernel, or to the function that it calls."""
    heads = [i for i, text in enumerate(SOURCE.split("\n"), 1) if re.match(r"kernel void|int far", text)]
    head = max(h for h in heads if h <= line)
    name = "far(" if kernel == "called" else f" {kernel}("
    return name in SOURCE.split("\n")[head - 1]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 6), st.integers(1, 40), st.integers(-2, 3))
def test_where_it_is_not_linear_it_is_never_refused_wrongly(
    program: ProgramFacts, n: int, items: int, add: int
) -> None:
    places = [i * (i + 1) // 2 + k + add for i in range(n) for k in range(i + 1)]
    message = refused(launched(program, "triangle", (n,), (1,), [items], add))
    assert not message or any(not 0 <= p < items for p in places)


@pytest.mark.parametrize("add", [0, 100, 1 << 20])
def test_what_cannot_be_proved_runs(program: ProgramFacts, add: int) -> None:
    assert refused(launched(program, "unknown", (64,), (8,), [64, 64], add)) == ""


def test_without_a_local_size(program: ProgramFacts) -> None:
    alone = parse_program("kernel void f(global int *a) { a[get_global_id(0)] = 1; }")
    assert "a[64]" in refused(launched(alone, "f", (65,), None, [64]))
    assert refused(launched(alone, "f", (64,), None, [64])) == ""
    assert refused(launched(program, "grouped", (64,), None, [4], 0)) == ""  # who knows what the groups are


def test_private_memory_that_no_device_has(program: ProgramFacts) -> None:
    message = refused(launched(program, "large", (8,), (8,), [64]))
    line = next(i for i, text in enumerate(SOURCE.split("\n"), 1) if "void large" in text)
    assert f":{line}: x needs 1073741824 bytes of private memory" in message


def test_whoever_insists_may(program: ProgramFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = launched(program, "grouped", (64,), (8,), [4], 0)
    assert "MANYCL_BOUNDS=off" in refused(graph)
    monkeypatch.setenv("MANYCL_BOUNDS", "off")
    assert refused(graph) == ""


def test_an_analysis_that_fails_stops_nothing(program: ProgramFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(bounds.service, "interpreted", fails)
    assert refused(launched(program, "grouped", (64,), (8,), [4], 0)) == ""


def test_where_intervals_do_not_tell_loops_with_other_scalars_do_not_pay_each_time(
    program: ProgramFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_LOOKED", 8)
    monkeypatch.setattr(service, "enclosed", lambda *_: None)
    real, looked = bounds.service.interpreted, []
    monkeypatch.setattr(bounds.service, "interpreted", lambda *words: looked.append(1) or real(*words))
    for turn in range(100):
        for _ in range(2):  # what is known is not looked at again
            assert refused(launched(program, "grouped", (16,), (8,), [200], turn)) == ""
    assert len(looked) == 8 + 3  # and 16, 32, 64


@pytest.mark.parametrize(("kernel", "scalars"), [("paired", range(1, 512)), ("butterfly", [1 << s for s in range(9)])])
def test_ever_new_scalars_are_not_looked_at_where_intervals_tell(
    program: ProgramFacts, monkeypatch: pytest.MonkeyPatch, kernel: str, scalars: Sequence[int]
) -> None:
    interpreted, looked = service.interpreted, []
    monkeypatch.setattr(service, "interpreted", lambda *words: looked.append(1) or interpreted(*words))
    size = 512 if kernel == "paired" else 256
    for scalar in scalars:
        assert refused(launched(program, kernel, (size,), (8,), [512], scalar)) == ""
    assert not looked
    assert "a[512]" in refused(launched(program, kernel, (size,), (8,), [512], 512))


@pytest.mark.parametrize("start", ["0", "-1"])  # intervals tell; they do not
def test_intervals_are_asked_once_for_scalars_that_decide_nothing(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = parse_program(f"""kernel void step(global float *a, int t, int n) {{
        int i = get_global_id(0) + {start};
        if (i < n && i != -1) a[i] += t;
    }}""")
    keeps, asked = Enclosure.keeps, []
    monkeypatch.setattr(Enclosure, "keeps", lambda *words: asked.append(1) or keeps(*words))
    for step in range(20):
        assert refused(launched(facts, "step", (64,), (8,), [64], step, 64)) == ""
    assert len(asked) == 1
    assert "a[64]" in refused(launched(facts, "step", (72,), (8,), [64], 3, 72))


def test_what_shares_memory_is_looked_at_closer(program: ProgramFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreted, looked = service.interpreted, []
    monkeypatch.setattr(service, "interpreted", lambda *words: looked.append(1) or interpreted(*words))
    for add in range(4):
        builder = GraphBuilder()
        a = builder.buffer(256, "a")
        args, buffers = [BufferArg(a), BufferArg(a), add], {a: Buffer(a, 256, "a")}
        builder.add(make_launch(program, "called", (8,), (8,), args, buffers=buffers))
        assert refused(builder.build()) == ""
    assert len(looked) == 4


def test_scalars_that_decide_nothing_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed, say; but what decides where a kernel writes is looked at each time, where intervals do not tell."""
    monkeypatch.setattr(service, "enclosed", lambda *_: None)
    source = """kernel void noise(global uint *x, uint seed, uint n, float scale) {
        uint i = get_global_id(0), state = seed ^ (i * 747796405u);
        for (uint k = 0; k < 4; k++) state = state * 2891336453u + seed;
        if (i < n) x[i] = state * scale;
    }"""
    looked: list[object] = []
    interpreted = service.interpreted

    def noted(*args: Any) -> Any:
        looked.append(args)
        return interpreted(*args)

    monkeypatch.setattr(service, "interpreted", noted)
    facts = parse_program(source)

    def run(seed: int, n: int) -> None:
        builder = GraphBuilder()
        x = builder.buffer(256, "x")
        args = (BufferArg(x), *(v.to_bytes(4, "little") for v in (seed, n)), struct.pack("f", 0.5))
        builder.add(Launch("noise", facts, facts.kernels["noise"], (128,), (8,), args, (), (x,)))
        check(builder.build())

    for seed in range(9):
        run(seed, 64)
    assert len(looked) == 2, "the first, and one for all the others"
    for n in (63, 62):
        run(0, n)
    assert len(looked) == 4
    for seed in range(9, 12):
        with pytest.raises(LaunchError, match="outside of a buffer"):
            run(seed, 65)


OWN = """
kernel void kept(global int *out, local int *t, int by, int add, int low, int high) {
    int u[24], l = get_local_id(0);
    if (l >= low && l < high) u[by * l + add] = 1;
    out[0] = u[l];
}
kernel void looped(global int *out, local int *t, int by, int add, int low, int high) {
    struct { int a[24]; } v; int u[3][8], l = get_local_id(0);
    v.a[l] = l;
    for (int k = low; k < high; k++) u[0][by * k + add] = k;
    out[0] = u[2][l] + v.a[l];
}
kernel void shared(global int *out, local int *t, int by, int add, int low, int high) {
    local int s[24]; int l = get_local_id(0);
    s[l] = l;
    barrier(CLK_LOCAL_MEM_FENCE);
    out[0] = l >= low && l < high ? s[by * l + add] : 0;
}
void put(local int *p, int at) { p[at] = 1; }
kernel void given(global int *out, local int *t, int by, int add, int low, int high) {
    int l = get_local_id(0);
    if (l >= low) { if (l < high) put(t + add, by * l); }
}
kernel void stored(global int *out, local int *t, int by, int add, int low, int high) {
    int l = get_local_id(0);
    if (l >= low && l < high) *(local int2 *)&t[by * l + add] = (int2)(l);
    local int *end = t + 24;
    for (local int *p = t; p != end; p++) *p = 1;
}
"""
"""Kernels that leave 24 ints of local or private memory where ``by * l + add`` does, for ``low <= l < high``."""


@pytest.mark.parametrize("kernel", ["kept", "looped", "shared", "given", "stored"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_local_and_private_arrays_are_not_left_either(kernel: str, data: st.DataObject) -> None:
    numbers = [data.draw(st.integers(*ends)) for ends in ((-3, 4), (-2, 25), (-1, 8), (0, 9))]
    by, add, low, high = numbers
    items = range(low, high) if kernel == "looped" else range(max(low, 0), min(high, 8))
    last = 22 if kernel == "stored" else 23
    left = [by * i + add for i in items if not 0 <= by * i + add <= last]
    program = parse_program(OWN)
    words = refused(launched(program, kernel, (16,), (8,), [1], LocalArg(96), *numbers))
    assert bool(words) == bool(left), (words, left)
    array = {"kept": "u", "looped": "u", "shared": "s"}.get(kernel, "t")
    assert not left or (f" {array}[" in words and "24 elements, 96 bytes" in words), words


def test_local_memory_that_is_too_little_is_told_with_what_would_do() -> None:
    program = parse_program("kernel void f(global int *x, local int *t) {\n  t[get_local_id(0)] = 1;\n}", path="k.cl")
    for nbytes, count in ((4, 1), (28, 7), (32, 0)):
        words = refused(launched(program, "f", (16,), (8,), [1], LocalArg(nbytes)))
        assert bool(words) == bool(count)
        if count:
            assert "kernel f would write outside of its memory in k.cl, line 2: t[" in words
            assert "argument 1 (t)" in words
            assert "8 elements (32 bytes) would do" in words
