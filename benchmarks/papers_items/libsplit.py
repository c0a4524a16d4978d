"""Libsplit's items."""

from __future__ import annotations

import numpy as np

import manycl as mc
from manycl.analysis import parse_program, service
from manycl.analysis.known_launch import KnownLaunch
from manycl.group_range import GroupRange
from manycl.machine_file import load_machine, shipped_machines
from manycl.region import Region
from manycl_bench.libsplit import experiments, granularity
from papers_items.item import Found, elsewhere, item, page

FLOATS = {
    "conv": "int i = get_global_id(0); o[i] = a[(int)(i * s)];",
    "conv2": "int i = get_global_id(0); o[i] = a[(int)(i * 0.5f)];",
    "conv3": "int i = get_global_id(0); o[i] = a[(int)floor(i * 0.5f)];",
    "conv4": "int i = get_global_id(0); o[i] = a[clamp((int)(i * 0.5f), 0, n - 1)];",
    "conv5": "int i = get_global_id(0); int p = (int)(n * s); if (i < p) o[i] = a[i + p];",
}
GOTO = """kernel void f(global float *o, global const float *a, int n, float s) {
    int i = get_global_id(0), j = 0; float t = 0;
again: t += a[i * 16 + j]; j++;
    if (j < 16) goto again;
    o[i] = t; }"""
IMAGES = """constant sampler_t edge = CLK_ADDRESS_CLAMP_TO_EDGE;
kernel void f(read_only image2d_t im, write_only image2d_t out) {
    int2 p = (int2)(get_global_id(0), get_global_id(1)); uint4 t = 0;
    for (int j = -2; j < 3; j++) for (int i = -2; i < 3; i++) t += read_imageui(im, edge, p + (int2)(i, j));
    write_imageui(out, p, t / 25); }"""


def _read(body: str, needed: int) -> bool:
    """Whether the first quarter of a launch of 1024 items is known to read at most so many floats of the array."""
    text = body if body.startswith("kernel") else f"kernel void f(global float *o, global const float *a, int n, float s) {{ {body} }}"  # noqa: E501  # fmt: skip
    scalars = {2: np.int32(1024).tobytes(), 3: np.float32(0.5).tobytes()}
    known = KnownLaunch((1024,), (64,), (), scalars, {0: 4096, 1: 1 << 20}, {})
    facts = service.launched(parse_program(text, path="f.cl"), "f", known)
    rectangles = Region.of_rectangles(facts.region(1, "read", GroupRange(0, 0, 4)).rectangles).intervals
    return sum(high - low for low, high in rectangles) <= 4 * needed


@item("libsplit_a", "6 of 6 scatters divided in unmodified programs that promise it (MANYCL_APART=1), none wrong",
      "4.2: by default: whole arrays, merged by diff")  # fmt: skip
def scatters() -> Found:
    promised, proved = elsewhere("scatters", MANYCL_APART="1"), elsewhere("scatters", MANYCL_APART="0")
    figure = {"by_default": len(proved["divided"]), "promised": len(promised["divided"])}
    wrong = proved["wrong"] + promised["wrong"]
    return Found({**figure, "wrong": wrong}, figure["promised"] == 6 and not wrong)


@item("libsplit_b", "SpMV brings what is needed (0.73 MB) to a device, not all (2.63)", "4.1: unknown, so all")
def looks() -> Found:
    figure = elsewhere("csr_bytes", MANYCL_ZERO_COPY="0")
    return Found(figure, figure["right"] and figure["moved_mb"] <= 1.1 * figure["needed_mb"])


@item("libsplit_c", "floating-point subscripts and guards with known scalars are followed: 5 of 5", "4.1: any operator")
def floats() -> Found:
    followed = [name for name, body in FLOATS.items() if _read(body, 260)]
    return Found({"followed": followed}, len(followed) == len(FLOATS))


@item("libsplit_d", "goto loops are followed", "4.1: LLVM's control-flow graph")
def gotos() -> Found:
    return Found({"followed": (is_followed := _read(GOTO, 256 * 16))}, is_followed)


@item("libsplit_e", "kernels that write images are divided, and right", "4.1: images could be added")
def images() -> Found:
    picture = np.random.default_rng(1).integers(0, 256, (1024, 1024, 4), np.uint8)
    around = np.pad(picture, ((2, 2), (2, 2), (0, 0)), mode="edge").astype(int)
    expected = sum(around[j : j + 1024, i : i + 1024] for j in range(5) for i in range(5)) // 25
    with mc.Queue("cpu0/2", policy="balance") as queue:
        out = queue.empty(picture.shape, np.uint8)
        mc.Program(IMAGES, path="f.cl").kernel("f")(queue, (1024, 1024), (16, 16), queue.array(picture), out)
        wrong = int((out.get() != expected).any())
        used = len({event.device for event in queue.trace.kernels()})
    return Found({"devices": used, "wrong": wrong}, used == 2 and not wrong)


@item("libsplit_f", "Figure 1 a to d, and a page of real devices", "7x by offset, over 3x in an iteration")
def figure_1() -> Found:
    where = load_machine(shipped_machines()["conan"])
    found = granularity.figures(
        lambda name: granularity.simulated(experiments.shown_case(name, where)), where, 20
    )["summary"]  # fmt: skip
    is_like = found["AESEncrypt"] <= 1.1 and found["EP"] >= 1.2 and found["SPMV"] > 7 and found["NBody"] > 3
    return Found({**found, "measured": page("libsplit_real")["granularity"]["summary"]}, is_like)
