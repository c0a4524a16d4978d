"""Work-group functions: kernels compiled for native devices leave the bytes that OpenCL implementations leave."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

from manycl.analysis.reading.frontend import load
from manycl.analysis.reading.options import read_options
from manycl.analysis.work_group.function import WorkGroupFunction, work_group_function
from manycl.drivers.driver import DriverError, Source
from tests.analysis import truth
from tests.analysis.corpus_case import Case, Launch, Local, i32, out
from tests.analysis.corpus_case import launch as launched
from tests.analysis.generated.generator import generate
from tests.analysis.kernel_corpus import CASES
from tests.analysis.work_group import natively

SEED = int(os.environ.get("SEED", "1"))
PER_PROGRAM = 4
PROGRAMS = -(-int(os.environ.get("KERNELS", "60")) // PER_PROGRAM)
SPARE = {"float3_copy"}
"""Kernels that may write what lies between elements."""
CORPUS = [case for case in CASES if all(case.split) and case.name not in SPARE]
CANCELS = {"transform_step": 1e-6}
"""Kernels with sums of sines that may nearly vanish: by how much they may differ then."""


def alike(launch: Launch, want: truth.Contents, found: truth.Contents, near: float = 1e-8) -> bool:
    """Bit for bit, but for functions whose last bits the language leaves open."""
    for index, buffer in launch.buffers.items():
        kind = np.dtype(buffer.dtype)
        a, b = want[index], found[index]
        if not np.array_equal(a, b):
            if kind.kind != "f" or kind.itemsize < 4:
                return False
            if not np.allclose(a.view(kind), b.view(kind), rtol=1e-5, atol=near, equal_nan=True):
                return False
    return True


@pytest.mark.parametrize("case", CORPUS if os.environ.get("NIGHTLY") else CORPUS[::2], ids=lambda case: case.name)
def test_the_corpus(case: Case) -> None:
    for launch in case.launches:
        start = truth.contents(launch, 1)
        want = truth.run_range(case, launch, 0, 0, None, start, truth.OCLGRIND)
        assert alike(launch, want, natively.run(case, launch, start), CANCELS.get(case.name, 1e-8)), launch


FORMS = {
    "pointer_to_vector": (i32(64), out(64, "i4")),
    "scopes_of_a_loop": (i32(256), out(16, "i4"), 5),
    "scopes_of_branches": (i32(64), out(16, "i4"), 10),
    "scope_hides_constant": (out(16, "i4"),),
    "scopes_in_braces": (out(16, "i4"),),
    "several_in_the_head_of_a_loop": (out(16, "i4"),),
    "vectors_of_a_scalar": (i32(64),),
    "elements_by_address": (i32(64), out(64, "i4")),
    "strings": (out(16, "i4"),),
    "array_parameters": (i32(32), Local(16)),
    "stray_semicolons": (i32(16),),
    "types_of_a_kernel": (i32(16),),
    "waits_in_expressions": (i32(16), Local(16)),
    "values_that_are_computed": (i32(16),),
    "arrays_in_structures": (i32(16),),
    "vectors_with_subscripts": (i32(64),),
}
"""Kernels of ``corpus/native.cl`` and their arguments."""


@pytest.mark.parametrize("name", FORMS)
def test_forms_that_other_compilers_take(name: str) -> None:
    wanted = launched(16, 4, *FORMS[name])
    case = Case(name, "native", (wanted,), (False,))
    start = truth.contents(wanted, 1)
    want = truth.run_range(case, wanted, 0, 0, None, start, truth.POCL)
    assert alike(wanted, want, natively.run(case, wanted, start))


@pytest.mark.parametrize("seed", range(SEED, SEED + PROGRAMS))
def test_random_kernels(seed: int) -> None:
    for case in generate(seed, PER_PROGRAM).cases:
        launch = case.launches[0]
        start = truth.contents(launch, 1)
        try:
            found = natively.run(case, launch, start)
        except DriverError as error:
            if "a barrier within a switch" not in str(error):
                raise
            continue
        if natively.races(case, launch):
            continue
        want = truth.run_range(case, launch, 0, 0, None, start, truth.OCLGRIND)
        assert alike(launch, want, found), f"{case.name} {launch}\n{case.text}"


@pytest.mark.parametrize("name", ["g3196_1", "g3655_0", "g7_2"])
def test_memory_used_as_several_types_and_ints_that_overflow(name: str) -> None:
    case = next(c for c in generate(int(name[1:].split("_")[0]), PER_PROGRAM).cases if c.name == name)
    launch = case.launches[0]
    start = truth.contents(launch, 1)
    want = truth.run_range(case, launch, 0, 0, None, start, truth.OCLGRIND)
    assert alike(launch, want, natively.run(case, launch, start)), case.text


@pytest.mark.parametrize("name", ["g32724_2"])
def test_a_loop_ends_when_all_its_items_have_returned(name: str) -> None:
    case = next(c for c in generate(int(name[1:6]), PER_PROGRAM).cases if c.name == name)
    natively.run(case, case.launches[0], truth.contents(case.launches[0], 1))  # (its items race)


@pytest.mark.parametrize("leaves", [0, 2, 9])
@pytest.mark.parametrize(
    "loop", ["while (k < n) {%s k++; }", "do {%s k++; } while (k < n);", "for (; k < n;) {%s k++; }"]
)
def test_all_items_return_from_a_loop_that_counts_in_its_body(loop: str, leaves: int) -> None:
    body = """
        y[l] = x[i]; if (k == leaves) return;
        barrier(CLK_LOCAL_MEM_FENCE); x[i] += y[(l + 1) % 8]; barrier(CLK_LOCAL_MEM_FENCE);
    """
    head = "kernel void f(global int *x, int n, int leaves) {"
    head += "int i = get_global_id(0), l = get_local_id(0), k = 0; local int y[8];"
    driver, n = natively.device(), 4
    kernel = driver.kernel(driver.build(Source(head + loop.replace("%s", body) + " x[i] += 1000; }")), "f")
    memory, queue = driver.allocate(4 * 16), driver.queue(False)
    data = natively.view(memory)[:64].view(np.int32)
    data[:] = want = np.arange(16, dtype=np.int32)
    kernel.set(0, memory)
    kernel.set(1, np.int32(n).tobytes())
    kernel.set(2, np.int32(leaves).tobytes())
    driver.wait(driver.launch(queue, kernel, (16,), (8,), None, None))
    for _ in range(min(n, leaves)):
        want = want + np.concatenate([np.roll(half, -1) for half in np.split(want, 2)])
    assert (data == (want + 1000 if leaves >= n else want)).all()


def function(text: str, local_size: tuple[int, int, int] = (8, 1, 1)) -> WorkGroupFunction:
    unit = load(text, "<source>", None, read_options(()), everything=True)
    kernel = next(f.name for f in unit.functions.values() if f.is_kernel)
    return work_group_function(unit, kernel, local_size)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('kernel void k(global int *x) { printf("%d", x[0]); }', "it prints"),
        ("kernel void k(read_only image2d_t x) {}", "its argument x is an image"),
        (
            "kernel void k(global int *x, int n) { switch (n) { case 1: barrier(CLK_GLOBAL_MEM_FENCE); } }",
            "a barrier within a switch",
        ),
        ("kernel void k(global int *x) { x[0] = work_group_any(1); }", "it calls work_group_any"),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    options = ("-cl-std=CL2.0",)
    unit = load(text, "<source>", None, read_options(options), everything=True)
    assert work_group_function(unit, "k", (8, 1, 1)).reason == reason


@pytest.mark.parametrize("everything", [False, True])
def test_functions_that_a_kernel_does_not_reach_are_left_out(everything: bool) -> None:
    text = """
        float clamp(float a); float unused(read_only image2d_t m, float a); float twice(float a);
        __attribute__((overloadable)) float shapes(float a) { return a; }
        __attribute__((overloadable)) float shapes(int a) { return a / 0; }
        float unused(read_only image2d_t m, float a) { float x = a; { float x = a * 3; a += x; } return a; }
        float clamp(float a) { return a; }
        float twice(float a) { float x = a; { float x = a; a += x; } return a; }
        kernel void k(global float *x) {
            int i = get_global_id(0);
            { float i = shapes(1.5f); if (x[0] < 0) x[0] = i; }
            x[i] = twice(x[i]);
        }
        kernel void other(global float *x) { x[0] = clamp(x[0]); }
    """
    unit = load(text, "<source>", None, read_options(()), everything=everything)
    found = work_group_function(unit, "k", (8, 1, 1))
    assert found.reason == ""
    assert "twice" in found.source
    assert not any(word in found.source for word in ("unused", "clamp", "image", "other"))
    driver, data = natively.device(), np.arange(64, dtype=np.float32)
    kernel, memory = driver.kernel(driver.build(Source(text)), "k"), driver.allocate(data.nbytes)
    natively.view(memory).view(np.float32)[:] = data
    kernel.set(0, memory)
    driver.wait(driver.launch(driver.queue(False), kernel, (64,), (8,), None, None))
    assert (natively.view(memory).view(np.float32) == 2 * data).all()


def test_samplers_beside_buffers_are_numbers() -> None:
    text = """
        constant sampler_t SAMPLER = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;
        float at(global float *x, int n, sampler_t how, int i) { return x[clamp(i, 0, n - 1)]; }
        kernel void k(global float *x, global float *y, int n) {
            const sampler_t own = CLK_ADDRESS_CLAMP | CLK_FILTER_LINEAR;
            int i = get_global_id(0);
            y[i] = at(x, n, SAMPLER, i + 1) - at(x, n, own, i - 1);
        }
    """
    driver, n = natively.device(), 64
    kernel, memories = driver.kernel(driver.build(Source(text)), "k"), [driver.allocate(4 * n) for _ in range(2)]
    x, y = (natively.view(memory).view(np.float32) for memory in memories)
    x[:] = np.arange(n) ** 2
    for index, value in enumerate((*memories, np.int32(n).tobytes())):
        kernel.set(index, value)
    driver.wait(driver.launch(driver.queue(False), kernel, (n,), None, None, None))
    wide = np.concatenate([x[:1], x, x[-1:]])
    assert (y == wide[2:] - wide[:-2]).all()


def test_a_kernel_that_asks_for_its_groups_in_groups_of_several_sizes() -> None:
    text = """kernel void f(global int *z, int n) {
        for (int i = get_group_id(0) * get_local_size(0) + get_local_id(0); i < n; i += get_global_size(0)) z[i] += 1;
    }"""
    driver, count = natively.device(), 5000
    kernel = driver.kernel(driver.build(Source(text)), "f")
    memory, queue = driver.allocate(4 * count), driver.queue(False)
    natively.view(memory)[:] = 0
    kernel.set(0, memory)
    kernel.set(1, np.int32(count).tobytes())
    rounds = [(128, 64), (64, 64), (1024, 128), (4096, 2048), (7, 7), (128, 128), (64, 1)]
    for items, group in rounds:
        driver.launch(queue, kernel, (items,), (group,), None, None)
    driver.finish()
    assert (natively.view(memory)[: 4 * count].view(np.int32) == len(rounds)).all()


@pytest.mark.parametrize("between", ["", "barrier(CLK_LOCAL_MEM_FENCE);"])
def test_queries_of_dimensions_that_only_a_loop_knows(between: str) -> None:
    """What is the same for all work-items is asked once, where there is none; dimensions that are not there are 1."""
    text = f"""uint size(uint d) {{ return get_global_size(d); }}
    kernel void f(global uint *z, uint n) {{
        uint sizes = 1, locals = 1, counts = 1, whole = 1, offsets = 0;
        for (uint d = 0; d < n; d++) {{
            sizes *= get_global_size(d); locals *= get_local_size(d); counts *= get_num_groups(d); whole *= size(d);
            offsets += get_global_offset(d);
        }}
        {between}
        size_t i = ((get_global_id(2) * size(1) + get_global_id(1)) * size(0) + get_global_id(0)) * 5;
        z[i] = sizes; z[i + 1] = locals; z[i + 2] = counts; z[i + 3] = whole; z[i + 4] = offsets;
    }}"""
    driver = natively.device()
    kernel = driver.kernel(driver.build(Source(text)), "f")
    memory, queue = driver.allocate(24 * 5 * 4), driver.queue(False)
    kernel.set(0, memory)
    for size, local in [((12,), (4,)), ((6, 4), (3, 2)), ((2, 3, 4), (2, 1, 2))]:
        for n in (0, 1, 2, 3, 5):
            kernel.set(1, np.uint32(n).tobytes())
            natively.view(memory)[:] = 0xAA
            driver.launch(queue, kernel, size, local, None, None)
            driver.finish()
            counts = [g // w for g, w in zip(size, local, strict=True)]
            want = [math.prod(size[:n]), math.prod(local[:n]), math.prod(counts[:n]), math.prod(size[:n]), 0]
            found = natively.view(memory)[: math.prod(size) * 20].view(np.uint32).reshape(-1, 5)
            assert (found == want).all(), (size, n)


def made(body: str, before: str = "") -> str:
    text = f"{before} kernel void f(global int *x, int n) {{ int i = get_global_id(0); local int y[8]; {body} }}"
    found = work_group_function(load(text, "<source>", None, read_options(()), everything=True), "f", (8, 1, 1))
    assert found.reason == ""
    return found.source


@pytest.mark.parametrize(
    ("body", "counted"),
    [
        ("if (i >= n) return; x[i] = 1;", False),
        ("y[i & 7] = x[i]; barrier(1); if (i >= n) return; x[i] = y[7 - (i & 7)];", False),
        ("if (i >= n) return; y[i & 7] = x[i]; barrier(1); x[i] = y[0];", True),
        ("for (int k = 0; k < n; k++) { if (i == k) return; barrier(1); } x[i] = 1;", True),
    ],
)
def test_who_has_returned_is_only_noted_where_others_go_on(body: str, counted: bool) -> None:
    """A kernel whose work-items return at its end, as most do, pays nothing for it."""
    assert ("manycl_alive" in made(body)) == counted


@pytest.mark.parametrize(
    ("parameters", "arguments", "written"),
    [("", "", True), ("int a", "i", True), ("int a, int b[2]", "i, x + n", False)],
)
def test_loops_of_functions_are_written_where_they_are_called(parameters: str, arguments: str, written: bool) -> None:
    """But for those of functions whose parameters say how many elements there are."""
    before = f"int own({parameters.replace('int b', 'global int b')})"
    before += "{ int s = 0; for (int k = 0; k < 9; k++) s += k; return s; }"
    assert (f"own({arguments})" not in made(f"x[i] = own({arguments});", before)) == written


@pytest.mark.parametrize("place", ["x[i * n + 1]", "*(x + (i * n + 1))", "*(i * n + 1 + x)", "*(x + i * n + 1)"])
def test_places_are_computed_in_64_bits_however_they_are_written(place: str) -> None:
    assert "((long)(i)) * ((long)(n))" in made(f"{place} = 1;")


def test_several_variables_in_the_head_of_a_loop() -> None:
    text = """kernel void f(global int *x) {
        int i = get_global_id(0);
        for (int j = 0, k = i; j < 4; j++, k += i) x[i] += k;
        barrier(CLK_GLOBAL_MEM_FENCE);
        for (int j = 0, k = i, v[2] = {i, j}; j < 4; j++) x[i] += v[k & 1];
    }"""
    items = 16
    case = Case("f", "", (launched(items, 8, out(items, "i4")),), (True,), text=text)
    found = natively.run(case, case.launches[0], {0: np.zeros(4 * items, np.uint8)})[0].view(np.int32)
    assert found.tolist() == [10 * i + (0 if i % 2 else 4 * i) for i in range(items)]
