"""Programs and kernels: arguments, NDRanges, information, and what is refused."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyopencl as cl

F = cl.mem_flags
SOURCE = """
#ifndef ADDED
#define ADDED 0
#endif
typedef struct { int a; float b; } pair;
__kernel void scaled(__global float *out, __global const float *in, float f, int n) {
  int i = get_global_id(0);
  if (i < n) out[i] = f * in[i] + ADDED;
}
__kernel void places(__global int *out) {
  int w = get_global_size(0), x = get_global_id(0) - get_global_offset(0), y = get_global_id(1) - get_global_offset(1);
  out[y * w + x] = get_global_id(0) + 1000 * get_global_id(1) + 100000 * get_local_size(0);
}
__kernel void summed(__global const int *in, __global int *out, __local int *part) {
  int i = get_local_id(0), n = get_local_size(0);
  part[i] = in[get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int s = n / 2; s > 0; s /= 2) { if (i < s) part[i] += part[i + s]; barrier(CLK_LOCAL_MEM_FENCE); }
  if (i == 0) out[get_group_id(0)] = part[0];
}
__kernel void structs(__global pair *out, pair given, float4 vector, char small) {
  out[get_global_id(0)].a = given.a + small; out[get_global_id(0)].b = given.b + vector.w;
}
__kernel void counted(__global int *count) { atomic_inc(count); }
__kernel void whether(__global int *out, __global int *maybe) { out[get_global_id(0)] = maybe ? 1 : 2; }
__kernel __attribute__((reqd_work_group_size(4, 1, 1))) void fours(__global int *out) {
  out[get_global_id(0)] = get_local_id(0);
}
"""


def floats(n: int = 64) -> Any:
    return np.arange(n, dtype=np.float32)


@cache
def built(ctx: Any, *options: str) -> Any:
    return cl.Program(ctx, SOURCE).build(list(options))


def contents(queue: Any, buffer: Any, dtype: Any) -> list[Any]:
    out = np.empty(buffer.size // np.dtype(dtype).itemsize, dtype)
    cl.enqueue_copy(queue, out, buffer)
    return out.tolist()


def pair(ctx: Any, data: Any) -> tuple[Any, Any]:
    return cl.Buffer(ctx, F.READ_WRITE, data.nbytes), cl.Buffer(ctx, F.READ_ONLY | F.COPY_HOST_PTR, hostbuf=data)


def case_called(ctx, queue):
    out, given = pair(ctx, floats())
    kernel = built(ctx).scaled
    kernel(queue, (64,), None, out, given, np.float32(2), np.int32(64))
    first = contents(queue, out, np.float32)
    kernel(queue, (32,), (8,), out, given, np.float32(3), np.int32(20))
    return first, contents(queue, out, np.float32)


def case_loop(ctx, queue):
    """What each step makes the next one takes: again and again the same two launches."""
    one, other = pair(ctx, floats())
    kernel = cl.Kernel(built(ctx), "scaled")
    found = []
    for step in range(12):
        kernel(queue, (64,), None, one, other, np.float32(1.25), np.int32(64))
        kernel(queue, (64,), None, other, one, np.float32(step), np.int32(64))
        if step % 4 == 3:
            found.append(contents(queue, other, np.float32)[:4])
    return found


def case_set_one_by_one(ctx, queue):
    out, given = pair(ctx, floats())
    kernel = built(ctx, "-DADDED=5").scaled
    for index, value in enumerate((out, given, np.float32(2), np.int32(64))):
        kernel.set_arg(index, value)
    cl.enqueue_nd_range_kernel(queue, kernel, (64,), None)
    kernel.set_arg(2, np.float32(-1))
    first = contents(queue, out, np.float32)
    cl.enqueue_nd_range_kernel(queue, kernel, [64], [16])
    return first, contents(queue, out, np.float32)


def case_typed(ctx, queue):
    out, given = pair(ctx, floats())
    kernel = built(ctx, "-D", "ADDED=1").scaled
    kernel.set_scalar_arg_dtypes([None, None, np.float32, np.int32])
    kernel(queue, (64,), None, out, given, 1e39, 64)
    first = contents(queue, out, np.float32)
    kernel.set_args(out, given, 2, np.int64(10))
    cl.enqueue_nd_range_kernel(queue, kernel, (64,), None)
    return first, contents(queue, out, np.float32)


def case_structs_and_vectors(ctx, queue):
    kind = np.dtype([("a", np.int32), ("b", np.float32)])
    out = cl.Buffer(ctx, F.READ_WRITE, 32)
    vector = np.array((1, 2, 3, 4), np.float32)
    built(ctx).structs(queue, (4,), None, out, np.array((5, 0.5), kind), vector, np.int8(-2))
    return contents(queue, out, kind)


def case_struct_of_another_size(ctx, queue):
    out = cl.Buffer(ctx, F.READ_WRITE, 32)
    built(ctx).structs(queue, (4,), None, out, np.float64(1), np.zeros(4, np.float32), np.int8(-2))


def case_local_memory(ctx, queue):
    given = np.arange(64, dtype=np.int32)
    out, data = pair(ctx, given)
    built(ctx).summed(queue, (64,), (16,), data, out, cl.LocalMemory(64))
    return contents(queue, out, np.int32)[:4]


def case_local_memory_on_one_device(ctx, queue):
    """(A work-group that does not divide the global size is the real device's, whatever it makes of it.)"""
    given = np.arange(64, dtype=np.int32)
    out, data = pair(ctx, given)
    built(ctx).summed(queue, (60,), (16,), data, out, cl.LocalMemory(64))
    return contents(queue, out, np.int32)[:3]


def case_atomics(ctx, queue):
    count = cl.Buffer(ctx, F.READ_WRITE | F.COPY_HOST_PTR, hostbuf=np.zeros(1, np.int32))
    built(ctx).counted(queue, (1000,), None, count)
    return contents(queue, count, np.int32)


def case_ndranges(ctx, queue):
    found = []
    for size, local, how in (
        ((8, 4), (4, 2), {}),
        ((8, 4), (4, 2), {"global_offset": (3, 5)}),
        ((2, 2), (4, 2), {"g_times_l": True}),
        ((2, 2), (4,), {"g_times_l": True}),
    ):
        out = cl.Buffer(ctx, F.READ_WRITE | F.COPY_HOST_PTR, hostbuf=np.zeros(64, np.int32))
        built(ctx).places(queue, size, local, out, **how)
        found.append(contents(queue, out, np.int32))
    return found


def case_no_pointer(ctx, queue):
    out = cl.Buffer(ctx, F.READ_WRITE, 16)
    kernel = built(ctx).whether
    kernel(queue, (4,), None, out, None)
    first = contents(queue, out, np.int32)
    kernel(queue, (4,), None, out, cl.Buffer(ctx, F.READ_WRITE, 16))
    return first, contents(queue, out, np.int32)


def case_parts_as_arguments(ctx, queue):
    whole = cl.Buffer(ctx, F.READ_WRITE | F.COPY_HOST_PTR, hostbuf=floats(512))
    built(ctx).scaled(queue, (64,), None, whole[256:512], whole[1024:1280], np.float32(2), np.int32(64))
    return contents(queue, whole, np.float32)


def case_required_work_group(ctx, queue):
    out = cl.Buffer(ctx, F.READ_WRITE, 64)
    built(ctx).fours(queue, (16,), (4,), out)
    return contents(queue, out, np.int32)


def case_another_than_the_required_work_group(ctx, queue):
    built(ctx).fours(queue, (16,), (8,), cl.Buffer(ctx, F.READ_WRITE, 64))


def case_work_group_that_is_too_large(ctx, queue):
    most = queue.device.max_work_group_size
    out = cl.Buffer(ctx, F.READ_WRITE, 8 * most)
    built(ctx).places(queue, (2 * most,), (2 * most,), out)


def case_sizes_that_do_not_fit(ctx, queue):
    built(ctx).places(queue, (16,), (4, 4), cl.Buffer(ctx, F.READ_WRITE, 64))


def case_offset_that_does_not_fit(ctx, queue):
    built(ctx).places(queue, (16,), (4,), cl.Buffer(ctx, F.READ_WRITE, 64), global_offset=(1, 1))


def case_nothing_to_do(ctx, queue):
    out = cl.Buffer(ctx, F.READ_WRITE | F.COPY_HOST_PTR, hostbuf=np.ones(4, np.int32))
    built(ctx).places(queue, (0,), None, out, allow_empty_ndrange=True)
    return contents(queue, out, np.int32)


def case_arguments_that_were_not_set(ctx, queue):
    kernel = built(ctx).scaled
    kernel.set_arg(0, cl.Buffer(ctx, F.READ_WRITE, 64))
    cl.enqueue_nd_range_kernel(queue, kernel, (64,), None)


def case_argument_that_there_is_not(ctx, queue):
    built(ctx).scaled.set_arg(7, np.int32(1))


def case_number_of_another_size(ctx, queue):
    built(ctx).scaled.set_arg(2, np.float64(1))


def case_number_of_pythons(ctx, queue):
    out, given = pair(ctx, floats())
    built(ctx).scaled(queue, (64,), None, out, given, 2.0, 64)


def case_array_instead_of_its_data(ctx, queue):
    import pyopencl.array as clarray

    array = clarray.to_device(queue, floats())
    built(ctx).scaled(queue, (64,), None, array, array, np.float32(1), np.int32(1))


def case_too_few_arguments(ctx, queue):
    built(ctx).scaled(queue, (64,), None, np.float32(1))


def case_local_memory_for_a_number(ctx, queue):
    built(ctx).scaled.set_arg(2, cl.LocalMemory(64))


def case_kernel_that_there_is_not(ctx, queue):
    return cl.Kernel(built(ctx), "missing")


def case_kernel_of_what_is_not_built(ctx, queue):
    return cl.Kernel(cl.Program(ctx, SOURCE), "scaled")


def case_source_that_is_wrong(ctx, queue):
    cl.Program(ctx, "__kernel void f(__global int *a) { a[0] = b; }").build()


def case_program_information(ctx, queue):
    program = built(ctx, "-DADDED=5")
    device = queue.device
    info = cl.program_build_info
    told = program.num_kernels, sorted(program.kernel_names.split(";")), program.source == SOURCE
    built_with = (
        program.get_build_info(device, info.STATUS),
        "-DADDED=5" in program.get_build_info(device, info.OPTIONS),
    )
    return told, built_with, len(program.binaries), [len(b) for b in program.binaries] == program.binary_sizes


def case_texts_that_were_built_before(ctx, queue):
    text = "__kernel void f(__global int *a) { a[get_global_id(0)] = MORE; }"
    out = cl.Buffer(ctx, F.READ_WRITE, 16)
    found = []
    for more in (1, 2, 1):
        program = cl.Program(ctx, text).build(f"-DMORE={more}")
        program.f(queue, (4,), None, out)
        found.append((contents(queue, out, np.int32), program.get_info(cl.program_info.NUM_KERNELS)))
    return found


def case_built_anew_with_other_options(ctx, queue):
    text = "__kernel void f(__global int *a) { a[get_global_id(0)] = MORE; }"
    out = cl.Buffer(ctx, F.READ_WRITE, 16)
    first, second = cl.Program(ctx, text).build("-DMORE=1"), cl.Program(ctx, text).build("-DMORE=1")
    second._prg._build(b"-DMORE=2")
    found = []
    for program in (first, second, cl.Program(ctx, text).build("-DMORE=1")):
        cl.Kernel(program, "f")(queue, (4,), None, out)
        found.append(contents(queue, out, np.int32))
    return found


def case_headers_that_change(ctx, queue):
    import tempfile
    from pathlib import Path

    out = cl.Buffer(ctx, F.READ_WRITE, 16)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number in (3, 4):
            Path(folder, "number.h").write_text(f"#define NUMBER {number}\n")
            program = cl.Program(
                ctx, '#include "number.h"\n__kernel void f(__global int *a) { a[get_global_id(0)] = NUMBER; }'
            )
            program.build(["-I", folder]).f(queue, (4,), None, out)
            found.append(contents(queue, out, np.int32))
    return found


def case_kernel_information(ctx, queue):
    kernel = built(ctx, "-cl-kernel-arg-info").summed
    names = [kernel.get_arg_info(i, cl.kernel_arg_info.NAME) for i in range(kernel.num_args)]
    group = cl.kernel_work_group_info
    told = [kernel.get_work_group_info(p, queue.device) for p in (group.WORK_GROUP_SIZE, group.COMPILE_WORK_GROUP_SIZE)]
    return kernel.function_name, kernel.num_args, names, told, kernel.context == ctx, kernel.program.num_kernels


def case_all_kernels(ctx, queue):
    return sorted(kernel.function_name for kernel in built(ctx).all_kernels())


def case_clones(ctx, queue):
    if queue.device._get_cl_version() < (2, 1):
        return None
    out, given = pair(ctx, floats())
    kernel = built(ctx).scaled
    kernel.set_args(out, given, np.float32(2), np.int32(64))
    return kernel.num_args


def case_headers(ctx, queue):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "three.h").write_text("#define THREE 3\n")
        program = cl.Program(
            ctx, '#include "three.h"\n__kernel void f(__global int *a) { a[get_global_id(0)] = THREE; }'
        )
        out = cl.Buffer(ctx, F.READ_WRITE, 16)
        program.build(["-I", folder]).f(queue, (4,), None, out)
        return contents(queue, out, np.int32)


def case_launches_and_builds_that_cannot_be(ctx, queue):
    """Each call is refused, and what the buffer contains stays as it is; what comes behind is right."""
    out, program = cl.Buffer(ctx, F.READ_WRITE | F.COPY_HOST_PTR, hostbuf=floats(64)), built(ctx)
    most, kernel = queue.device.max_work_group_size, program.scaled
    given = out, out, np.float32(2), np.int32(64)
    calls = [
        lambda: kernel(queue, (2 * most,), (2 * most,), *given),
        lambda: kernel(queue, (most, 4), (most, 4), *given),
        lambda: kernel(queue, (65,), (64,), *given),
        lambda: kernel(queue, (4,) * 4, None, *given),
        lambda: kernel(queue, (), None, *given),
        lambda: kernel(queue, (64,), None, *given, global_offset=(0, 0)),
        lambda: kernel(queue, (64,), (8, 8), *given),
        lambda: kernel(queue, (64,), None, cl.LocalMemory(64), *given[1:]),
        lambda: kernel.set_arg(3, np.int64(64)),
        lambda: kernel.set_arg(9, out),
        lambda: cl.Kernel(program, "nothing"),
        *(
            lambda option=option: cl.Program(ctx, SOURCE).build(options=[option])
            for option in ("--bogus", "-cl-no-such-option", "-cl-std=CL9.9", "-Wall", "-D", "word", "-w")
        ),
    ]
    found = []
    for call in calls:
        try:
            call()
            found.append("accepted")
        except cl.Error as error:
            found.append([type(error).__name__, error.code, error.routine])
    before = contents(queue, out, np.float32)
    kernel(queue, (64,), None, *given)
    return found, before, contents(queue, out, np.float32)
