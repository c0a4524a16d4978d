"""What a region is where isl gives up, where accesses are lost, and where they leave their memory; bytes of regions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import islpy as isl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.launched import LaunchFacts
from manycl.analysis.reading import frontend, kernels
from manycl.analysis.reading.options import read_options
from manycl.analysis.regions import regions, shapes
from manycl.analysis.regions.regions import Footprint, Regions, TooComplexError
from manycl.group_range import GroupRange
from manycl.region import Rectangle, Region

SOURCE = """
kernel void plain(global const int *a, global int *b) { b[get_global_id(0)] = a[2 * get_global_id(0)]; }
kernel void shifted(global const int *a, global int *b, int by) { b[(int)get_global_id(0) + by] = a[0]; }
kernel void chosen(global const int *a, global int *b, int n) {
    for (int i = 0; i < n; i++) if (a[i]) b[3 * i + get_global_id(0) / 3] = i;
}
kernel void table(global const int *a, global int *b) { b[a[get_global_id(0)]] = 1; }
kernel void lost(global int *a, global int *b, int n) { global int *p = (global int *)(long)n; *p = 1; a[0] = b[0]; }
"""
UNIT = frontend.load(SOURCE, "<source>", None, read_options(()))
FACTS = kernels.kernel_facts(UNIT)


def regions_of(name: str, items: int = 8, nbytes: int = 64, scalar: int = 4, **more: Any) -> Regions:
    sizes = {0: nbytes, 1: nbytes}
    launch = KnownLaunch((items,), (2,), (), {2: scalar.to_bytes(4, "little", signed=True)}, sizes, **more)
    return LaunchFacts(UNIT, FACTS[name], launch).regions


def test_why_isl_gave_up_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not how: that it had enough operations is no error of isl's."""
    known = regions_of("plain")

    def why(function: Any, *arguments: Any) -> str:
        with pytest.raises(TooComplexError) as caught:
            known.limited(function, *arguments)
        return str(caught.value)

    assert known.limited(isl.Set, "{ [i] : 0 <= i < 4 }").is_bounded()
    assert why(isl.Set, "{ [i] : ").startswith(" (isl: ")

    def nothing() -> None:
        raise TypeError("no result")

    assert why(nothing) == " (isl: no result)"
    monkeypatch.setattr(regions, "MOST_OPERATIONS", 1)
    words = "{ [i] -> [j] : exists k, l : 7k <= i < 5l and 3l - k = j and i % 3 = j % 5 }"
    heavy = [isl.Map(words), isl.Map(words.replace("7", "11"))]
    assert why(lambda: heavy[0].apply_range(heavy[1]).lexmin().is_empty()) == ""
    monkeypatch.setattr(known, "spent", regions.MOST_SPENT)
    assert why(lambda: 1 / 0 if known.spent > regions.MOST_SPENT else nothing()) == " (isl: no result)"
    monkeypatch.setattr(known, "spent", regions.MOST_SPENT + 1)
    assert why(nothing) == f" (more than {regions.MOST_SPENT} operations)"
    known.isl_here, known.absent = False, " (it is elsewhere)"
    assert why(nothing) == " (it is elsewhere)"


@given(st.integers(0, 10), st.integers(0, 10), st.integers(1, 12))
def test_brief_questions_are_not_counted(before: int, more: int, brief: int) -> None:
    known = regions_of("plain")
    known.spent = before + more
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regions, "BRIEF", brief)
        known.answered(before)
    assert known.spent == (before if more < brief else before + more)


def test_regions_that_isl_does_not_find_are_what_bounds_of_subscripts_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "the region is too complex"
    for name, end in (("chosen", 48), ("table", 64)):
        free = regions_of(name).region(1, "write")
        known = regions_of(name)
        relations = known.relations(1, "write")
        assert relations
        monkeypatch.setattr(known, "_exact_region", lambda *given: 1 / 0 if not given else isl.Set("{ [i"))
        found = known.region(1, "write")
        assert found.rectangles == (Rectangle(0, end),)
        assert found.reason.startswith(words)
        assert not found.exact
        assert found.tight
        assert (free.mask(64) <= found.mask(64)).all()
        known = regions_of(name)
        monkeypatch.setattr(known, "_relation", lambda *given: isl.Set("{ [i"))
        found = known.region(1, "write")
        assert found.rectangles == (Rectangle(0, 64),)
        assert "is too complex (isl:" in found.reason
        assert not found.exact


def test_what_a_lost_pointer_may_touch_is_everything() -> None:
    known = regions_of("lost")
    for argument, kind in ((0, "write"), (1, "write"), (1, "read")):
        found = known.region(argument, kind)
        assert found.rectangles == (Rectangle(0, 64),)
        assert not found.exact
        assert found.reason == "a pointer that was lost, line 8"
    nothing = regions_of("plain").region(0, "write")
    assert (nothing.rectangles, nothing.exact, nothing.reason) == ((), True, ""), "the kernel may not write it at all"


@pytest.mark.parametrize("by", range(-3, 12))
@pytest.mark.parametrize("items", [2, 8])
def test_what_leaves_its_memory_is_told_to_the_byte(by: int, items: int) -> None:
    """Of sixteen elements."""
    known = regions_of("shifted", items, 64, by)
    outside = [i for i in range(by, by + items) if not 0 <= i < 16]
    found = known.outside()
    assert len(found) == len(known.out_of_bounds()) == (1 if outside else 0)
    inside = [i for i in range(by, by + items) if 0 <= i < 16]
    mask = np.zeros(64, bool)
    for i in inside:
        mask[4 * i : 4 * i + 4] = True
    assert (known.region(1, "write").mask(64) == mask).all()
    assert all(rect.offset >= 0 and rect.end <= 64 for rect in known.region(1, "write").rectangles)
    if outside:
        (one,) = found
        assert (one.argument, one.name, one.kind, one.line, one.nbytes) == (1, "b", "write", 3, 64)
        assert (one.low, one.high) == (4 * min(outside), 4 * max(outside) + 4)


@pytest.mark.parametrize(
    ("statement", "read", "written"),
    [
        ("b[i] = !a[i];", 64, 64),
        ("b[i] = -a[i] + ~a[i];", 64, 64),
        ("int4 v = (int4)(0); ((int *)&v)[a[0].x & 3] = 1; b[v.x] = v;", 4, 64),
    ],
)
def test_vectors_are_followed(statement: str, read: int, written: int) -> None:
    """What operators read, and elements that data choose."""
    text = f"kernel void f(global const int4 *a, global int4 *b) {{ int i = get_global_id(0); {statement} }}"
    unit = frontend.load(text, "<source>", None, read_options(()))
    launch = KnownLaunch((4,), (2,), (), {}, {0: 64, 1: 64})
    found = LaunchFacts(unit, kernels.kernel_facts(unit)["f"], launch).regions
    assert found.region(0, "read").nbytes == read
    assert found.region(1, "write").nbytes == written


@pytest.mark.parametrize(
    ("body", "element"),
    [
        # of large factors: those of what is divided, not only multiples of what divides
        ("x[(long)i * 200001 / 100000] = 1;", lambda i, _: i * 200001 // 100000),
        ("x[((long)i * 200001 - 900000) / 100000 + 10] = 1;", lambda i, _: int((i * 200001 - 900000) / 100000) + 10),
        # of variables that grow by what differs among work-items, beside a counter that does not
        ("for (int j = i, k = 0; k < 4; k++) { x[j] = 1; j += i; }", lambda i, k: i + k * i),
        ("for (int j = 0, k = 0; k < 4; k++) { j += i; x[j] = 1; }", lambda i, k: i + k * i),
    ],
)
def test_just_what_is_written_is_found(body: str, element: Callable[[int, int], int]) -> None:
    text = f"kernel void f(global int *x) {{ int i = get_global_id(0); {body} }}"
    unit = frontend.load(text, "<source>", None, read_options(()))
    launch = KnownLaunch((8,), (2,), (), {}, {0: 256})
    found = LaunchFacts(unit, kernels.kernel_facts(unit)["f"], launch).regions.region(0, "write")
    assert found.exact
    assert {*np.flatnonzero(found.mask(256)) // 4} == {element(i, k) for i in range(8) for k in range(4)}


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        ("int t[3] = {5, 9, 7}; x[t[d[i]]] = 1;", 5, 10),
        ("int t[3], u[3] = {5, 9, 7}, *p = d[0] ? t : u; x[p[d[i]]] = 1;", 0, 64),
        ("int t[3], u[3] = {5, 9, 7}, *p = d[0] ? u : t; x[p[d[i]]] = 1;", 0, 64),
        ("int t[8] = {[5] = 3}; x[t[5] + i] = 1;", 0, 64),
        ("struct pair { int a, b; } p = {3, 4}, *r = &p, q = *r; x[q.b + i] = 1;", 4, 12),
        # of what a loop changes whose iterations data count
        ("int t[2] = {0, 0}; for (int k = 0; k < d[0]; k++) t[d[k] & 1] = k; t[0] = 2; x[t[0] + i] = 1;", 2, 10),
        ("for (int s = 16; d[s] > 0; s /= 3) x[s + i] = 1;", 0, 24),
        ("x[mul24(1 << 25, i / 8)] = 1;", 0, 64),  # what has more than 24 bits may have any product
        # pointers that the analysis has lost may be equal, or not
        (
            "global const int *p = d, *q = d; for (int k = 0; k < d[0]; k++) { p += d[k]; q += d[k] / 2; }"
            "if (p == q) x[i] = 1; else x[8 + i] = 1;",
            0,
            16,
        ),
    ],
)
def test_elements_of_tables_and_records_are_bounded(body: str, low: int, high: int) -> None:
    text = f"kernel void f(global int *x, global const int *d) {{ int i = get_global_id(0); {body} }}"
    unit = frontend.load(text, "<source>", None, read_options(()))
    launch = KnownLaunch((8,), (2,), (), {}, {0: 256, 1: 256})
    found = LaunchFacts(unit, kernels.kernel_facts(unit)["f"], launch).regions.region(0, "write")
    assert found.rectangles == (Rectangle(4 * low, 4 * (high - low)),)


@pytest.mark.parametrize("limit", ["d[0]", "5000"])
def test_what_an_earlier_return_may_leave_out_is_not_certain(limit: str) -> None:
    body = f"for (int k = i; k < {limit}; k++) if (k * d[k] == i) return; x[i] = 1;"
    text = f"kernel void f(global int *x, global const int *d) {{ int i = get_global_id(0); {body} }}"
    unit = frontend.load(text, "<source>", None, read_options(()))
    known = LaunchFacts(unit, kernels.kernel_facts(unit)["f"], KnownLaunch((8,), (2,), (), {}, {0: 256, 1: 256}))
    found = known.regions.region(0, "write")
    assert (found.rectangles, found.exact) == ((Rectangle(0, 32),), False)
    assert "whether the loop in line 1 is left" in found.reason


def test_what_pointers_change_in_ever_more_turns_of_a_loop_is_given_up() -> None:
    """Each round of the analysis finds one more of the variables that a loop changes."""
    held = "".join(f"int v{k} = 0, *p{k} = &v{k}; " for k in range(10))
    chain = "".join(f"if (v{k - 1}) *p{k} = 1; " for k in range(9, 0, -1))
    body = f"{held} for (int k = 0; k < x[9]; k++) {{ {chain} *p0 = 1; }} x[v9 + i] = 1;"
    unit = frontend.load(f"kernel void f(global int *x) {{ int i = 0; {body} }}", "<source>", None, read_options(()))
    found = LaunchFacts(unit, kernels.kernel_facts(unit)["f"], KnownLaunch((8,), (2,), (), {}, {0: 256}))
    region = found.regions.region(0, "write")
    assert (region.rectangles, region.exact) == ((Rectangle(0, 256),), False)
    assert region.reason == "what the loop in line 1 changes is not found out"


def test_a_call_of_nobody_knows_what_is_a_hazard() -> None:
    text = """#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
    int one(int a) { return a; }
    kernel void f(global int *x) { int i = get_global_id(0); x[i] = (i > 3 ? one : one)(i); }"""
    unit = frontend.load(text, "<source>", None, read_options(()))
    found = LaunchFacts(unit, kernels.kernel_facts(unit)["f"], KnownLaunch((8,), (2,), (), {}, {0: 256}))
    assert found.split(0).reasons == ("calls a function pointer, of which nothing is known, line 3",)


RECTANGLES = st.builds(
    Rectangle,
    *[st.integers(0, 20), st.integers(1, 6), st.integers(6, 9), st.integers(1, 3)],
    *[st.integers(30, 32), st.integers(1, 2)],
)


@settings(max_examples=30)
@given(RECTANGLES)
def test_a_set_of_rows_and_slices_is_found_to_be_one_rectangle(rect: Rectangle) -> None:
    counts = f"0 <= s < {rect.slices} and 0 <= r < {rect.rows} and 0 <= b < {rect.width}"
    place = f"{rect.offset} + {rect.slice_pitch} s + {rect.pitch} r + b"
    (found,), tight = shapes.rectangles(isl.Set(f"{{ [x] : exists s, r, b : {counts} and x = {place} }}"))
    assert tight
    assert Region.of_rectangles((found,)).intervals == Region.of_rectangles((rect,)).intervals


@given(st.lists(RECTANGLES, max_size=4))
def test_bytes_of_a_region_are_counted_once(rectangles: list[Rectangle]) -> None:
    made = [rect if rect.rows > 1 or rect.slices > 1 else Rectangle(rect.offset, rect.width) for rect in rectangles]
    region = Footprint(0, "read", 1, tuple(made), True, True, "")
    mask = np.zeros(200, bool)
    for rect in made:
        for start in rect.starts():
            mask[start : start + rect.width] = True
    assert (region.mask(200) == mask).all()
    assert region.nbytes == mask.sum()
    kinds = [rect.kind for rect in made]
    assert region.shape == ("nothing" if not kinds else kinds[0] if len(kinds) == 1 else "several")


@given(st.lists(RECTANGLES, min_size=2, max_size=3), st.integers(1, 20), st.booleans())
def test_too_many_rows_are_taken_for_all_between_them(rectangles: list[Rectangle], most: int, tight: bool) -> None:
    """Then the region is larger than the footprint is, and says so."""
    found = Footprint(0, "read", 1, tuple(rectangles), tight, True, "", "{ [i] : i = 0 }")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("manycl.analysis.regions.regions.MOST_ROWS", most)
        region, just = found.around()
    rows = {start + i for rect in rectangles for start in rect.starts().tolist() for i in range(rect.width)}
    touched = {i for low, high in region.intervals for i in range(low, high)}
    few = sum(rect.rows * rect.slices for rect in rectangles) <= most
    assert just == (few and tight)
    assert touched == (rows if few else set(range(min(rows), max(rect.end for rect in rectangles))))


@pytest.mark.parametrize("unit", [1, 4])
def test_elements_of_a_region_that_is_no_rectangles(unit: int) -> None:
    region = Footprint(
        0, "read", unit, (Rectangle(0, 10 * unit),), False, True, "", "{ [i] : 0 <= i < 10 and i % 3 = 1 }"
    )
    assert np.flatnonzero(region.mask(8 * unit)).tolist() == [u * unit + b for u in (1, 4, 7) for b in range(unit)]
    assert region.mask(0).size == 0


def test_questions_that_are_none() -> None:
    known = regions_of("plain")
    for wrong in (
        (0, "atomic"),
        (0, "read", GroupRange(0, -1, 1)),
        (0, "read", GroupRange(0, 0, 0)),
        (0, "read", GroupRange(0, 3, 2)),
        (0, "read", GroupRange(3, 0, 1)),
    ):
        with pytest.raises(ValueError, match=r"region is read or written|no range of"):
            known.region(*wrong)
    assert known.region(0, "read", GroupRange(0, 3, 1)).rectangles
    assert known.region(0, "read", GroupRange(2, 0, 1)).rectangles
    with pytest.raises(KeyError):
        known.region(5, "read")
