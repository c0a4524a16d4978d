"""Programs on native devices alone, where no OpenCL driver is there at all; and what is asked of one where there is."""

from __future__ import annotations

import subprocess
import sys

import pytest

_NO_DRIVER = """
from manycl.drivers.opencl import devices
devices.look = lambda notes: []
"""
_BEGIN = """
import numpy as np
import manycl
manycl.activate("DEVICES")
import pyopencl as cl

ctx = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(ctx)
device = ctx.devices[0]
"""
_RUNS = """
import pyopencl.array as cl_array
program = cl.Program(ctx, '''
__kernel void step(__global float *x, __local float *part, float a) {
  int lid = get_local_id(0);
  part[lid] = x[get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  x[get_global_id(0)] = a * part[get_local_size(0) - 1 - lid];
}''').build()
data = np.arange(256, dtype=np.float32)
buffer = cl.Buffer(ctx, cl.mem_flags.COPY_HOST_PTR, hostbuf=data)
program.step(queue, (256,), (64,), buffer, cl.LocalMemory(256), np.float32(3))
out = np.empty_like(data)
cl.enqueue_copy(queue, out, buffer)
assert (out == 3 * data.reshape(4, 64)[:, ::-1].reshape(-1)).all()
x = cl_array.to_device(queue, data)
assert (2 * x + x).get().tolist() == (3 * data).tolist()
info = cl.kernel_work_group_info
assert program.step.get_work_group_info(info.WORK_GROUP_SIZE, device) >= 64
assert program.kernel_names == "step" and program.num_kernels == 1
assert program.get_build_info(device, cl.program_build_info.LOG) == ""
assert [k.function_name for k in program.all_kernels()] == ["step"]
assert device.max_compute_units >= 1 and device.version.startswith("OpenCL "), device.version
assert device.type == cl.device_type.CPU and device.local_mem_size > 0 and "cl_khr_fp64" in device.extensions
"""
_IMAGES = """
source = '''__constant sampler_t edge = CLK_ADDRESS_CLAMP_TO_EDGE;
__kernel void right(__read_only image2d_t from, __write_only image2d_t to) {
  int2 p = (int2)(get_global_id(0), get_global_id(1));
  write_imagef(to, p, read_imagef(from, edge, p - (int2)(1, 0)));
}'''
picture = np.arange(64, dtype=np.uint8).reshape(4, 4, 4)
images = [cl.image_from_array(ctx, picture, 4, mode, norm_int=True) for mode in "rw"]
cl.Program(ctx, source).build().right(queue, (4, 4), None, *images)
found = np.empty_like(picture)
cl.enqueue_copy(queue, found, images[1], origin=(0, 0), region=(4, 4))
assert (found == picture[:, [0, 0, 1, 2]]).all()
"""


def ran(text: str, devices: str) -> None:
    program = text.replace("DEVICES", devices)
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr[-3000:]


@pytest.mark.parametrize("devices", ["cpu", "cpu/2"])
def test_programs_run_without_any_opencl_driver(devices: str) -> None:
    ran(_NO_DRIVER + _BEGIN + _RUNS + _IMAGES, devices)


def test_what_needs_a_driver_says_so() -> None:
    ran(
        _NO_DRIVER
        + _BEGIN
        + """
def refused(function):
    try:
        function()
    except cl.Error as failure:
        return str(failure)
    raise AssertionError("nothing was refused")

form = cl.ImageFormat(cl.channel_order.R, cl.channel_type.FLOAT)
words = refused(lambda: cl.create_image(ctx, cl.mem_flags.READ_ONLY, form, (4, 4, 4)))
assert "pip install pocl-binary-distribution" in words, words
assert not device.image_support
wrong = cl.Program(ctx, "__kernel void f(__global int *a) { a[0] = b; }")
words = refused(wrong.build)
assert "'b'" in words and "BUILD_PROGRAM_FAILURE" in words, words
again = "int g(int n) { return n ? g(n - 1) : 0; } __kernel void f(__global int *a) { a[0] = g(3); }"
words = refused(cl.Program(ctx, again).build)
assert "g calls g" in words and "BUILD_PROGRAM_FAILURE" in words, words
program = cl.Program(ctx, "__kernel void f(__global int *a) { a[0] = 1; }").build()
assert "INVALID_KERNEL_NAME" in refused(lambda: cl.Kernel(program, "g"))
# (work-groups that do not divide the global size)
out = cl.Buffer(ctx, cl.mem_flags.READ_WRITE, 4)
assert "pocl-binary-distribution" in refused(lambda: program.f(queue, (5,), (2,), out))
try:
    device.get_info(cl.device_info.IL_VERSION)
except cl.LogicError as failure:
    assert failure.code == cl.status_code.INVALID_VALUE
""",
        "cpu",
    )


def test_native_programs_are_built_for_another_driver_only_when_it_is_asked() -> None:
    ran(
        _BEGIN
        + """
from manycl.drivers.opencl.real import compiled
class Counted(compiled._Program):
    made = 0
    def _build(self, *given):
        Counted.made += 1
        return super()._build(*given)
compiled._Program = Counted
"""
        + _RUNS.replace("step", "turned")  # (PoCL takes no kernels by names of built-in functions)
        + """
assert Counted.made == 0, Counted.made
assert program.turned.get_info(cl.kernel_info.REFERENCE_COUNT) >= 1  # of the other driver
assert Counted.made == 1
strict = cl.Program(ctx, "__kernel void f(__global int *a) { a[0] = 1; }").build("-Werror")
assert Counted.made == 2
""",
        "cpu/2",
    )
