"""What manycl does not divide: images, samplers, binaries, linked programs; and PyOpenCL's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

F = cl.mem_flags
FORMAT = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
SOURCE = """
__constant sampler_t own = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;
__kernel void picked(__read_only image2d_t in, sampler_t how, __global float *out, int w) {
  int x = get_global_id(0), y = get_global_id(1);
  out[y * w + x] = read_imagef(in, how, (int2)(x + 1, y)).y + read_imagef(in, own, (int2)(x, y)).x;
}
__kernel void drawn(__write_only image2d_t out, __global const float *in) {
  int x = get_global_id(0), y = get_global_id(1);
  write_imagef(out, (int2)(x, y), (float4)(in[x], x, y, 1));
}
"""
TWICE = "__kernel void twice(__global float *a) { a[get_global_id(0)] *= 2; }"


def picture() -> Any:
    return np.arange(4 * 6 * 4, dtype=np.float32).reshape(4, 6, 4)


def image(ctx: Any, flags: int = F.READ_ONLY) -> Any:
    data = picture()
    return cl.create_image(ctx, flags | F.COPY_HOST_PTR, FORMAT, shape=(6, 4), hostbuf=data)


def contents(queue: Any, buffer: Any) -> list[float]:
    out = np.empty(buffer.size // 4, np.float32)
    cl.enqueue_copy(queue, out, buffer)
    return out.tolist()


def seen(queue: Any, what: Any) -> list[Any]:
    out = np.empty((4, 6, 4), np.float32)
    cl.enqueue_copy(queue, out, what, origin=(0, 0), region=(6, 4))
    return out.tolist()


def case_image_in_a_kernel(ctx, queue):
    """Between kernels that manycl runs."""
    twice = cl.Program(ctx, TWICE).build().twice
    out = cl.Buffer(ctx, F.READ_WRITE, 4 * 24)
    how = cl.Sampler(ctx, False, cl.addressing_mode.CLAMP_TO_EDGE, cl.filter_mode.NEAREST)
    cl.Program(ctx, SOURCE).build().picked(queue, (6, 4), None, image(ctx), how, out, np.int32(6))
    twice(queue, (24,), None, out)
    return contents(queue, out)


def case_image_that_is_written(ctx, queue):
    row = cl.Buffer(ctx, F.READ_WRITE | F.COPY_HOST_PTR, hostbuf=np.arange(6, dtype=np.float32))
    cl.Program(ctx, TWICE).build().twice(queue, (6,), None, row)
    drawn = image(ctx, F.READ_WRITE)
    cl.Program(ctx, SOURCE).build().drawn(queue, (6, 4), None, drawn, row)
    return seen(queue, drawn)


def case_image_transfers(ctx, queue):
    one, other = image(ctx, F.READ_WRITE), cl.create_image(ctx, F.READ_WRITE, FORMAT, shape=(6, 4))
    buffer = cl.Buffer(ctx, F.READ_WRITE, 4 * 96)
    cl.enqueue_copy(queue, other, one, src_origin=(0, 0), dest_origin=(0, 0), region=(6, 4))
    cl.enqueue_copy(queue, other, -picture(), origin=(0, 0), region=(6, 2))
    cl.enqueue_copy(queue, buffer, other, origin=(0, 0), region=(6, 4), offset=0)
    cl.Program(ctx, TWICE).build().twice(queue, (96,), None, buffer)
    cl.enqueue_copy(queue, one, buffer, offset=0, origin=(0, 0), region=(6, 4))
    return seen(queue, one), contents(queue, buffer)


def case_image_mapped(ctx, queue):
    one = image(ctx, F.READ_WRITE)
    array, _, row, _ = cl.enqueue_map_image(
        queue, one, cl.map_flags.READ | cl.map_flags.WRITE, (0, 0), (6, 4), (4, 6, 4), np.float32
    )
    found = array.tolist()
    array[0, 0, 0] = 77
    array.base.release(queue)
    return found, row, seen(queue, one)[0][0]


def case_image_information(ctx, queue):
    one = image(ctx)
    formats = cl.get_supported_image_formats(ctx, F.READ_ONLY, cl.mem_object_type.IMAGE2D)
    return one.shape, one.width, one.height, one.type, one.format == FORMAT, one.context == ctx, FORMAT in formats


def case_image_of_another_format(ctx, queue):
    """Kernels read it between pixels, and write it; the real device fills a part, and tells a kernel its order."""
    source = """
    __kernel void zoomed(__read_only image2d_t in, sampler_t how, __write_only image2d_t out) {
      int2 p = (int2)(get_global_id(0), get_global_id(1));
      write_imagef(out, p, 1 - read_imagef(in, how, (float2)(p.x + 0.75f, p.y - 0.25f) / (float2)(9, 5)));
    }
    __kernel void order(__read_only image2d_t in, __global int *out) { *out = get_image_channel_order(in); }
    """
    form = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.UNORM_INT8)
    rows = np.arange(5 * 44, dtype=np.uint8).reshape(5, 44)  # 8 bytes more than are needed
    one = cl.create_image(ctx, F.READ_ONLY | F.COPY_HOST_PTR, form, (9, 5), (44,), rows)
    other, number = cl.create_image(ctx, F.READ_WRITE, form, (9, 5)), cl.Buffer(ctx, F.READ_WRITE, 4)
    how = cl.Sampler(ctx, True, cl.addressing_mode.MIRRORED_REPEAT, cl.filter_mode.LINEAR)
    program = cl.Program(ctx, source).build()
    program.zoomed(queue, (9, 5), None, one, how, other)
    cl.enqueue_fill_image(queue, other, np.array([0, 0.2, 0.4, 1], np.float32), (7, 1), (2, 3))
    program.order(queue, (1,), None, other, number)
    out, code = np.zeros((5, 40), np.uint8), np.empty(1, np.int32)
    cl.enqueue_copy(queue, out[1:], other, origin=(1, 1), region=(8, 4), pitches=(40,))
    cl.enqueue_copy(queue, code, number)
    part, _, row, _ = cl.enqueue_map_image(
        queue, other, cl.map_flags.READ, (2, 1), (3, 2), (2, 12), np.uint8, strides=(36, 1)
    )
    return out.tolist(), int(code[0]), row, part.tolist(), one.element_size


def case_part_of_an_image_that_it_has_not(ctx, queue):
    cl.enqueue_copy(queue, np.empty((4, 6, 4), np.float32), image(ctx), origin=(1, 0), region=(6, 4))


def case_image_of_no_format(ctx, queue):
    return cl.create_image(ctx, F.READ_ONLY, cl.ImageFormat(cl.channel_order.RGB, cl.channel_type.FLOAT), shape=(0, 4))


def case_binaries(ctx, queue):
    program = cl.Program(ctx, TWICE).build()
    again = cl.Program(ctx, [queue.device], program.binaries).build()
    buffer = cl.Buffer(ctx, F.READ_WRITE | F.COPY_HOST_PTR, hostbuf=np.arange(16, dtype=np.float32))
    again.twice(queue, (16,), None, buffer)
    return contents(queue, buffer), again.num_kernels


def case_binary_that_was_built_with_options(ctx, queue):
    source = "__kernel void f(__global int *x) { x[get_global_id(0)] = M; }"
    program = cl.Program(ctx, source).build(["-DM=5"])
    again = cl.Program(ctx, [queue.device], program.binaries).build()
    buffer = cl.Buffer(ctx, cl.mem_flags.READ_WRITE, 16)
    again.f(queue, (4,), None, buffer)
    out = np.empty(4, np.int32)
    cl.enqueue_copy(queue, out, buffer)
    return out.tolist()


def case_binary_that_is_none(ctx, queue):
    cl.Program(ctx, [queue.device], [b"no binary"]).build()


def case_linked(ctx, queue):
    header = cl.Program(ctx, "#define FACTOR 3\n")
    part = cl.Program(
        ctx, '#include "factor.h"\n__kernel void more(__global float *a) { a[get_global_id(0)] *= FACTOR; }'
    ).compile(headers=[("factor.h", header)])
    buffer = cl.Buffer(ctx, F.READ_WRITE | F.COPY_HOST_PTR, hostbuf=np.arange(16, dtype=np.float32))
    cl.link_program(ctx, [part]).more(queue, (16,), None, buffer)
    return contents(queue, buffer)


def case_variable_of_the_program(ctx, queue):
    """What it has stays from launch to launch."""
    source = "__global int count = 5; __kernel void next(__global int *a) { a[get_global_id(0)] = atomic_inc(&count); }"
    kernel = cl.Program(ctx, source).build("-cl-std=CL2.0").next
    buffer, found = cl.Buffer(ctx, F.READ_WRITE, 64), np.empty(16, np.int32)
    told = []
    for _ in range(3):
        kernel(queue, (16,), (1,), buffer)
        cl.enqueue_copy(queue, found, buffer)
        told.append(sorted(found.tolist()))
    return told


def case_arrays(ctx, queue):
    import pyopencl.array as clarray
    import pyopencl.clmath as clmath

    a = clarray.to_device(queue, np.arange(100, dtype=np.float32))
    b = clarray.arange(queue, 100, dtype=np.float32)
    c = (a + 2 * b).reverse()
    d = clmath.sqrt(c)
    e = clarray.zeros(queue, (10, 10), np.int32)
    e[2:4] = 7
    e.fill(3, queue=queue)
    return c.get().tolist(), d.get().round(4).tolist(), e.get().tolist(), a[10:20].get().tolist()


def case_elementwise(ctx, queue):
    from pyopencl.elementwise import ElementwiseKernel

    kernel = ElementwiseKernel(ctx, "float *a, float *b, float f", "b[i] = f * a[i]", "scaled")
    import pyopencl.array as clarray

    a = clarray.to_device(queue, np.arange(100, dtype=np.float32))
    b = clarray.empty_like(a)
    for factor in range(6):
        kernel(a, b, np.float32(factor))
        kernel(b, a, np.float32(1.5))
    return b.get().tolist()
