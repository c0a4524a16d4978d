"""Kernels with images, which are arrays: against OpenCL C's rules written in NumPy, divided and not, and what is
refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.analysis import parse_program, service
from manycl.analysis.known_launch import KnownLaunch
from manycl.applications.load import load_application
from manycl.errors import LaunchError, SpecificationError
from manycl.graph.versions.images import with_arrays
from manycl.group_range import GroupRange
from manycl.region import Region

ROWS, COLUMNS = 12, 16
SOURCE = """
const sampler_t edge = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;
float4 picked(read_only image2d_t im, const sampler_t s, float2 p) { return read_imagef(im, s, p); }
kernel void at(read_only image2d_t im, global float4 *out, sampler_t s, float2 scale, float2 first) {
    int x = get_global_id(0), y = get_global_id(1);
    out[y * get_global_size(0) + x] = picked(im, s, (float2)(x, y) * scale + first);
}
kernel void signed_ones(read_only image2d_t im, global int4 *out, int2 first) {
    int2 p = (int2)(get_global_id(0), get_global_id(1));
    out[p.y * get_global_size(0) + p.x] = read_imagei(im, edge, p + first);
}
kernel void unsigned_ones(read_only image2d_t im, global uint4 *out, int2 first) {
    int2 p = (int2)(get_global_id(0), get_global_id(1));
    out[p.y * get_global_size(0) + p.x] = read_imageui(im, edge, p + first);
}
kernel void plain(read_only image2d_t im, global float4 *out) {
    int2 p = (int2)(get_global_id(0), get_global_id(1));
    out[p.y * get_image_width(im) + p.x] = read_imagef(im, p);
}
kernel void put(write_only image2d_t im, global const float4 *in) {
    int2 p = (int2)(get_global_id(0), get_global_id(1)) - 1;
    if (all(get_image_dim(im) == (int2)(COLUMNS, ROWS))) write_imagef(im, p, in[p.x + 1 + (p.y + 1) * (COLUMNS + 2)]);
}
kernel void put_integers(write_only image2d_t im, global const int4 *in) {
    int2 p = (int2)(get_global_id(0), get_global_id(1));
    write_imagei(im, p, in[p.x + p.y * COLUMNS]);
}
kernel void blur(read_only image2d_t im, write_only image2d_t out, sampler_t s) {
    int2 p = (int2)(get_global_id(0), get_global_id(1));
    float4 t = 0;
    for (int j = -1; j <= 1; j++) for (int i = -1; i <= 1; i++) t += read_imagef(im, s, p + (int2)(i, j));
    write_imagef(out, p, t / 9);
}
"""
OPTIONS = [f"-DROWS={ROWS}", f"-DCOLUMNS={COLUMNS}"]
SCALES = {"uint8": 255, "uint16": 65535, "int8": 127, "int16": 32767}
PIXELS = [("uint8", 4), ("uint8", 1), ("int8", 2), ("uint16", 4), ("int16", 1), ("float16", 2), ("float32", 4)]
ADDRESSING = ("none", "clamp_to_edge", "clamp", "repeat", "mirrored_repeat")


@pytest.fixture(scope="module")
def queue() -> Any:
    with mc.Queue("cpu", policy="in_order") as made:
        yield made


@pytest.fixture(scope="module")
def program() -> mc.Program:
    return mc.Program(SOURCE, OPTIONS)


def picture(dtype: str, channels: int, shape: tuple[int, int] = (ROWS, COLUMNS)) -> Any:
    random = np.random.default_rng(channels)
    if np.dtype(dtype).kind == "f":
        return (random.standard_normal((*shape, channels)) * 9).astype(dtype)
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, (*shape, channels), dtype, endpoint=True)


def texels(image: Any, x: Any, y: Any, addressing: str) -> Any:
    """The pixels at integers, as four numbers."""
    rows, columns, channels = image.shape
    scale = SCALES.get(image.dtype.name, 1)
    found = np.zeros((*x.shape, 4))
    found[..., 3] = channels < 4
    values = np.maximum(
        image[y.clip(0, rows - 1), x.clip(0, columns - 1)].astype(float) / scale, -1 if scale > 1 else -np.inf
    )
    inside = (x >= 0) & (x < columns) & (y >= 0) & (y < rows) | (addressing != "clamp")
    found[..., :channels] = np.where(inside[..., None], values, 0)
    return found


def sampled(image: Any, u: Any, v: Any, normalized: bool, addressing: str, filtering: str) -> Any:
    """Section 8.2 of OpenCL C."""
    places = []
    for at, extent in ((u, image.shape[1]), (v, image.shape[0])):
        if addressing == "repeat":
            at = (at - np.floor(at)) * extent
        elif addressing == "mirrored_repeat":
            at = np.abs(at - 2 * np.rint(0.5 * at)) * extent
        elif normalized:
            at = at * extent
        first = np.floor(at - 0.5 if filtering == "linear" else at).astype(int)
        both = np.stack([first, first + 1])
        if addressing == "repeat":
            both %= extent
        places.append((both.clip(0, extent - 1) if addressing == "mirrored_repeat" else both, at - 0.5 - first))
    (x, a), (y, b) = places
    if filtering == "nearest":
        return texels(image, x[0], y[0], addressing)
    a, b = a[..., None], b[..., None]
    top = (1 - a) * texels(image, x[0], y[0], addressing) + a * texels(image, x[1], y[0], addressing)
    bottom = (1 - a) * texels(image, x[0], y[1], addressing) + a * texels(image, x[1], y[1], addressing)
    return (1 - b) * top + b * bottom


@pytest.mark.parametrize(("dtype", "channels"), PIXELS)
def test_images_are_read_as_by_opencl(dtype: str, channels: int, queue: Any, program: mc.Program) -> None:
    image = picture(dtype, channels)
    given, out = queue.array(image), queue.empty((ROWS, COLUMNS, 4), np.float32)
    y, x = np.indices((ROWS, COLUMNS)).astype(float)
    program.plain(queue, (COLUMNS, ROWS), None, given, out)
    assert np.allclose(out.get(), texels(image, x.astype(int), y.astype(int), "none"), rtol=1e-6)
    for filtering in ("nearest", "linear"):
        for addressing in ADDRESSING:
            normalized = "repeat" in addressing
            scale, first = (0.171875, -1.046875) if normalized else (1.25, 0.375 if addressing == "none" else -2.875)
            if addressing == "none":
                scale = 0.875  # it stays inside
            how = mc.sampler(normalized, addressing, filtering)
            program.at(queue, (COLUMNS, ROWS), None, given, out, how, (scale, scale), (first, first))
            u, v = (n * scale + first for n in (x, y))
            expected = sampled(image, u, v, normalized, addressing, filtering)
            tolerance = 1e-5 * (1 if dtype in SCALES else 40)
            assert np.allclose(out.get(), expected, rtol=1e-5, atol=tolerance), (filtering, addressing)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32"])
def test_integers_are_read_and_written_as_they_are(dtype: str, queue: Any, program: mc.Program) -> None:
    image, is_signed = picture(dtype, 4), dtype[0] == "i"
    out = queue.empty((ROWS, COLUMNS, 4), np.int32 if is_signed else np.uint32)
    read = program.signed_ones if is_signed else program.unsigned_ones
    read(queue, (COLUMNS, ROWS), None, queue.array(image), out, (-2, 3))
    y, x = np.indices((ROWS, COLUMNS))
    assert (out.get() == image[(y + 3).clip(0, ROWS - 1), (x - 2).clip(0, COLUMNS - 1)]).all()
    if is_signed:
        written, values = (
            queue.array(image),
            np.random.default_rng(1).integers(-1 << 31, 1 << 31, image.shape, np.int32),
        )
        program.put_integers(queue, (COLUMNS, ROWS), None, written, queue.array(values))
        limits = np.iinfo(dtype)
        assert (written.get() == values.clip(limits.min, limits.max)).all()


@pytest.mark.parametrize(("dtype", "channels"), PIXELS)
def test_images_are_written_as_by_opencl(dtype: str, channels: int, queue: Any, program: mc.Program) -> None:
    """What lies outside is not; integers are rounded to the nearest, and end at their limits."""
    values = (np.random.default_rng(7).standard_normal((ROWS + 2, COLUMNS + 2, 4))).astype(np.float32)
    out = queue.array(picture(dtype, channels))
    program.put(queue, (COLUMNS + 2, ROWS + 2), None, out, queue.array(values))
    expected = values[1:-1, 1:-1, :channels]
    if dtype in SCALES:
        limits = np.iinfo(dtype)
        expected = np.rint(expected * np.float32(SCALES[dtype])).clip(limits.min, limits.max)
    assert (out.get() == expected.astype(dtype)).all()


def blurred(devices: str, policy: str, image: Any, program: mc.Program) -> tuple[Any, mc.Trace]:
    with mc.Queue(devices, policy=policy) as queue:
        given, between = queue.array(image), queue.empty(image.shape, np.float32)
        out, how = queue.empty(image.shape[:2], np.uint8), mc.sampler()
        sizes = image.shape[1::-1], (16, 4)
        program.blur(queue, *sizes, given, between, how)
        program.blur(queue, *sizes, between, out, how)
        return out.get(), queue.trace


@pytest.mark.parametrize("devices", ["cpu0/2", "opencl/2"])
def test_kernels_that_write_images_are_divided_by_rows(
    devices: str, program: mc.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the bits of one device; devices with own memories are sent the rows that they read."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    image = picture("uint8", 4, (512, 384))
    alone, _ = blurred(devices + "#0", "balance", image, program)
    divided, trace = blurred(devices, "balance", image, program)
    assert (divided == alone).all()
    kernels = Counter((kernel.node, kernel.device) for kernel in trace.kernels())
    assert len(kernels) == 4, kernels  # each of two launches on both devices
    sent = [transfer.nbytes for transfer in trace.transfers() if transfer.source == "host"]
    assert max(sent) < image.nbytes * 3 // 4


def test_regions_are_the_rows_around(program: mc.Program) -> None:
    found = with_arrays(program.facts, "blur", [("uchar4", 96, 128), ("float4", 96, 128), None])
    four = np.int32(mc.sampler()).tobytes()
    scalars = {2: four} | {i: np.int32(n).tobytes() for i, n in zip(range(3, 7), (96, 128) * 2, strict=True)}
    launch = KnownLaunch((96, 128), (16, 4), (), scalars, {0: 4 * 96 * 128, 1: 16 * 96 * 128}, {})
    facts = service.launched(found, "blur", launch)
    assert facts.split(1).splittable
    for argument, what, pixel, more in ((0, "read", 4, 1), (1, "write", 16, 0)):
        region = Region.of_rectangles(facts.region(argument, what, GroupRange(1, 8, 8)).rectangles)
        assert list(region.intervals) == [(96 * pixel * (32 - more), 96 * pixel * (64 + more))]


def test_specifications_have_images(tmp_path: Path) -> None:
    (tmp_path / "images.cl").write_text(SOURCE)
    buffers: dict[str, Any] = {
        "a": {"type": "uchar4", "shape": [12, 16], "init": "random"},
        "b": {"type": "float", "shape": [12, 16, 2]},
    }
    kernel = {
        "source": "images.cl",
        "name": "blur",
        "options": OPTIONS,
        "global": [16, 12],
        "args": ["a", "b", mc.sampler()],
    }
    path = tmp_path / "app.json"
    path.write_text(json.dumps({"manycl": 1, "buffers": buffers, "kernels": [kernel]}))
    launch = load_application(path).graph.nodes[0]
    assert launch.args[3:] == tuple(np.int32(n).tobytes() for n in (16, 12, 16, 12))
    buffers["b"]["type"] = "double"
    path.write_text(json.dumps({"manycl": 1, "buffers": buffers, "kernels": [kernel]}))
    with pytest.raises(SpecificationError, match=r"argument 1 \(out\) is an image: it needs an array of the shape"):
        load_application(path)


REFUSED = {
    "images that are no arrays": "kernel void f(read_only image3d_t a, global float4 *o) { *o = 1; }",
    "no arrays of two dimensions": "kernel void f(read_only image2d_array_t a, global float4 *o) { *o = 0; }",
    "channel_order": "kernel void f(read_only image2d_t a, global int *o) { *o = get_image_channel_order(a); }",
    "not for pixels": "kernel void f(read_only image2d_t a, global uint4 *o) { *o = read_imageui(a, (int2)(0)); }",
    "declared more than once": """float4 g(read_only image2d_t a);
        float4 g(read_only image2d_t a) { return read_imagef(a, (int2)(0)); }
        kernel void f(read_only image2d_t a, global float4 *o) { *o = g(a); }""",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_no_array_can_be_is_refused(words: str) -> None:
    with pytest.raises(LaunchError, match=f"cannot have arrays for images: .*{words}"):
        with_arrays(parse_program(REFUSED[words]), "f", [("float4", 4, 4), None])


def test_a_function_has_images_of_one_type() -> None:
    text = """float4 g(read_only image2d_t a, int2 p) { return read_imagef(a, p); }
    kernel void f(read_only image2d_t a, read_only image2d_t b, global float4 *o) {
        *o = g(a, (int2)(0)) + g(b, (int2)(1));
    }"""
    facts = parse_program(text)
    assert with_arrays(facts, "f", [("float4", 4, 4), ("float4", 8, 2), None]).kernels["f"].arguments[6].name
    with pytest.raises(LaunchError, match="line 3 calls g with images of several types of pixels"):
        with_arrays(facts, "f", [("float4", 4, 4), ("uchar4", 4, 4), None])


def test_errors_name_the_argument(queue: Any, program: mc.Program) -> None:
    good = queue.array(picture("uint8", 4))
    for wrong in (
        3,
        queue.array(np.zeros(4, np.float32)),
        queue.array(np.zeros((4, 4, 3), np.uint8)),
        queue.array(np.zeros((4, 4))),
    ):
        with pytest.raises(LaunchError, match=r"kernel blur, argument 1 \(out\) is an image: it needs an array"):
            program.blur(queue, (4, 4), None, good, wrong, 0)
    with pytest.raises(LaunchError, match="takes 3 arguments"):
        program.blur(queue, (4, 4), None, good)
    with pytest.raises(LaunchError, match="no other versions"):
        program.blur.add_version(program.blur)
    with pytest.raises(LaunchError, match="no sampler has the addressing mode 'wrap'"):
        mc.sampler(False, "wrap")
