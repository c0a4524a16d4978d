"""What must be told in words, or be taken as it is, instead of ending in a traceback."""

from __future__ import annotations

import json
import os
from typing import Any, cast

import numpy as np

import manycl as mc
from found_cases.case import (
    OWN_MEMORIES,
    Refused,
    accepts,
    case,
    error_of,
    expect,
    files,
    manycl,
    natively,
    python,
    same,
    specification,
    told,
)

INC = "kernel void inc(global int *x) { x[get_global_id(0)] += 1; }"


@case()
def constant_of_many_digits() -> None:
    """Fourteen squarings of a long: more digits than Python prints."""
    source = "kernel void k(global int *a) { long x = 3; " + "x = x * x; " * 14 + "a[get_global_id(0)] = (int)x; }"
    product = "kernel void k(global int *a) { a[get_global_id(0)] = " + "*".join(["2147483647"] * 600) + "; }"
    with mc.Queue("cpu/2") as queue:
        for text in (source, product):
            program = mc.Program(text)
            program.k(queue, (64,), (64,), queue.zeros(64, np.int32))
            queue.finish()
    with files({"k.cl": source}) as folder:
        expect(manycl("analyze", "k.cl", folder=folder).returncode == 0, "analyze")


@case()
def huge_buffers() -> None:
    """Buffers larger than memory."""
    for more in ({}, {"init": "random"}):
        with files(specification(INC, "inc", 64, 64, shape=10**12, **more)) as folder:
            told(manycl("run", "app.json", "--devices", "cpu/2", "--quiet", folder=folder), "b")
    with mc.Queue("cpu/2") as queue:
        for size in (10**12, 2**70):
            error_of(lambda size=size: queue.zeros(size, np.int32))


@case()
def damaged_traces() -> None:
    """Traces whose details are not what they should be."""
    head = '{"event": "trace", "format": 1, "kind": "run", "application": "x", "policy": "auto", "makespan": 1.0, '
    details = (
        '{"planned": {"makespan": 1.0, "seconds": [[0, "x"]]}}', '{"planned": 3}', '{"split": [1]}', '{"memory": "x"}',
        '{"links": [[1]]}', '{"planned": {"makespan": "x", "seconds": []}}',
    )  # fmt: skip
    for detail in details:
        with files({"t.jsonl": head + '"devices": ["cpu0"], "edges": [], "details": ' + detail + "}\n"}) as folder:
            manycl("report", "t.jsonl", folder=folder)


@case(OWN_MEMORIES)
def clock_calibration() -> None:
    """The driver fails while its clock is compared with the host's."""
    import pyopencl as cl

    real, left = cl.enqueue_marker, [3]

    def failing(*words: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise cl.RuntimeError("clEnqueueMarkerWithWaitList failed: OUT_OF_RESOURCES")
        return real(*words, **more)

    cl.enqueue_marker = failing
    program = mc.Program(INC)
    for nth in range(1, 9):
        left[0] = nth
        try:
            with mc.Queue("cpu/2", policy="balance") as queue:
                a = queue.zeros(1 << 16, np.int32)
                program.inc(queue, (1 << 16,), (64,), a)
                same(a.get(), np.ones(1 << 16, np.int32), f"call {nth} failed")
        except mc.ManyclError:
            continue


@case()
def local_size_of_other_length() -> None:
    """g_times_l with a local size of other length."""
    program = mc.Program(INC)
    with mc.Queue("cpu/2") as queue:
        a = queue.zeros(64, np.int32)
        error_of(lambda: program.inc(queue, (4, 4), (16,), a, g_times_l=True))


PLAIN = """
import numpy as np, manycl as mc
with mc.Queue("cpu/2") as queue:
    a = queue.zeros(64, np.int32)
    mc.Program("kernel void inc(global int *x) { x[get_global_id(0)] += 1; }").inc(queue, (64,), (16,), a)
    assert (a.get() == 1).all()
"""


@case({"HOME": "/proc/nowhere", "XDG_CACHE_HOME": "/proc/nowhere", "XDG_DATA_HOME": "/proc/nowhere"})
def unwritable_home() -> None:
    """No folder of the user's can be written: a temporary one is used."""
    for name in ("POCL_CACHE_DIR", "MANYCL_DATA"):
        os.environ.pop(name, None)
    ended = python(PLAIN)
    expect(ended.returncode == 0, f"ended with {ended.returncode}: {ended.stderr[-500:]}")


@case({"POCL_CACHE_DIR": "/dev/full/pocl"})
def unusable_cache() -> None:
    """The drivers' cache folder can't be made."""
    ended = python(PLAIN)
    expect(ended.returncode == 0, f"ended with {ended.returncode}: {ended.stderr[-500:]}")


@case()
def unknown_settings() -> None:
    """Environment variables with values that mean nothing."""
    for name, value in (
        ("MANYCL_DEVICE_MEMORY", "lots"), ("MANYCL_DEBUG", "x"), ("MANYCL_MODELS", "x"), ("MANYCL_ZERO_COPY", "x"),
        ("MANYCL_BOUNDS", "x"),
    ):  # fmt: skip
        with files(specification(INC, "inc", 64, 64)) as folder:
            os.environ[name] = value
            try:
                told(manycl("run", "app.json", "--devices", "cpu/2", "--quiet", folder=folder), name)
            finally:
                del os.environ[name]


@case()
def include_of_working_folder() -> None:
    """Another ``-I`` does not hide the headers of the working directory."""
    source = '#include "k.h"\nkernel void f(global int *x) { x[get_global_id(0)] = N; }'
    with files({"k.h": "#define N 3\n", "other/x.h": ""}) as folder:
        os.chdir(folder)
        accepts(source)
        accepts(source, ["-I", str(folder / "other")])
        os.chdir("/")


@case()
def local_memory_of_numpy() -> None:
    """NumPy integers as sizes of local memory."""
    source = "kernel void f(global float *x, local float *t) { int i = get_local_id(0); "
    source += "t[i] = 1; x[get_global_id(0)] = t[i]; }"
    program = mc.Program(source)
    with mc.Queue("cpu/2") as queue:
        x = queue.zeros(64, np.float32)
        for size in (64, np.int64(64), np.int32(64)):
            try:
                program.f(queue, (64,), (16,), x, mc.LocalMemory(size))  # type: ignore[arg-type]
            except mc.ManyclError as error:
                raise Refused(str(error)) from error
        same(x.get(), np.ones(64, np.float32), "what was written")


@case()
def two_charts() -> None:
    """``--gantt`` given twice writes two files."""
    with files(specification(INC, "inc", 64, 64)) as folder:
        ended = manycl("run", "app.json", "--devices", "cpu/2", "--gantt", "a.html", "--gantt", "b.svg", folder=folder)
        expect(ended.returncode == 0, ended.stderr)
        expect((folder / "a.html").exists() and (folder / "b.svg").exists(), "one file was not written")


@case()
def several_errors() -> None:
    """Every error of a source, with its line and a caret."""
    source = "kernel void f(global int *x) {\n  x[0] = y;\n  x[1] = 2\n}\nkernel void g(global int *x) { x[0] = zz; }\n"
    message = error_of(lambda: mc.Program(source))
    for word in ("y", "zz", "^", ":2:", ":5:"):
        expect(word in message, f"{word!r} is not in: {message}")


UNTIL = "def stop(*words, **more):\n    open('RAN', 'w').close()\n    return True\n"


@case()
def python_from_anywhere() -> None:
    """A specification runs no Python file from outside of its folder unless it is trusted."""
    app = json.loads(specification(INC, "inc", 64, 64)["app.json"])
    app["iterate"] = {"times": 3, "until": {"file": "../until.py", "function": "stop", "buffers": ["b"]}}
    contents = {"in/app.json": json.dumps(app), "in/k.cl": INC, "until.py": UNTIL}
    with files(contents) as folder:
        ended = manycl("run", "app.json", "--devices", "cpu/2", "--quiet", folder=folder / "in")
        told(ended, "--trust")
        expect(not list(folder.rglob("RAN")), "it was run")


@case()
def pointer_to_vector() -> None:
    """``float *p = &v`` of a float4, which compilers warn of."""
    source = """kernel void k(global const float4 *x, global float *y) { int i = get_global_id(0); float4 v = x[i];
        float *p = &v; for (int j = 0; j < 4; j++) y[4 * i + j] = p[3 - j]; }"""
    x = np.arange(256, dtype=np.float32)
    natively(source, "k", x.reshape(-1, 4)[:, ::-1].ravel(), x, np.zeros_like(x))


@case()
def same_name_in_two_scopes() -> None:
    """Variables of one name in several scopes, in subscripts that are computed in 64 bits."""
    source = """kernel void loop(global const int *x, global int *y, int n) { int i = get_global_id(0);
        { int a = x[i]; y[i] = a; } for (int j = 0; j < n; j++) { int a = j * 2 + i; y[i] += x[a * 3 + j]; } }"""
    x, i = np.arange(4096, dtype=np.int32), np.arange(64)
    want = i + sum((j * 2 + i) * 3 + j for j in range(5))
    natively(source, "loop", want, x, np.zeros(64, np.int32), np.int32(5))


@case()
def statement_expression_in_array_initializer() -> None:
    """Variables of one name in statement expressions in braces, of an array that outlives a barrier."""
    source = """kernel void k(global ulong *r) { uint a[2] = { ({ uint u = 3; u; }) + ({ uint u = 4; u; }), 1 };
        barrier(CLK_LOCAL_MEM_FENCE); r[get_global_id(0)] = a[get_local_id(0) & 1]; }"""
    natively(source, "k", np.tile([7, 1], 32), np.zeros(64, np.uint64), group=4)


@case()
def sampler_beside_buffers() -> None:
    """A kernel without images, in a program with a constant sampler."""
    source = """constant sampler_t S = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
        kernel void twice(global float *x) { x[get_global_id(0)] *= 2; }
        kernel void other(read_only image2d_t im, global float *x) { x[0] = read_imagef(im, S, (int2)(0, 0)).x; }"""
    x = np.arange(64, dtype=np.float32)
    natively(source, "twice", x * 2, x)


@case()
def vector_splat_at_the_end() -> None:
    """Statements that end with a vector made of one scalar."""
    head = (
        "kernel void k(global const float4 *in, global float4 *out) { int i = get_global_id(0); float4 v = in[i]; %s }"
    )
    x = np.arange(256, dtype=np.float32)
    natively(head % "out[i] = v / (float4)(2.0f);", "k", x / 2, x, np.zeros_like(x))
    chosen = np.where(np.repeat(x[3::4], 4) > 100, x, 0)
    natively(head % "v = v.w > 100.0f ? v : (float4)(0.0f); out[i] = v;", "k", chosen, x, np.zeros_like(x))


@case()
def large_table() -> None:
    """400,000 numbers are read and compiled within limits of work."""
    count = 400_000
    numbers = ", ".join(f"C({(i * 2654435761) & 0xFFFFFFFF:#x})" for i in range(count))
    source = f"""#define C(x) ((uint)(x))
        constant uint T[{count}] = {{ {numbers} }};
        kernel void k(global uint *y) {{ int i = get_global_id(0); y[i] = T[i * 7 % {count}]; }}"""
    want = (np.arange(64, dtype=np.uint64) * 7 * 2654435761).astype(np.uint32)
    natively(source, "k", want, np.zeros(64, np.uint32))


@case()
def least_and_greatest_in_loops() -> None:
    """``min`` and ``max`` of indices and of integers; accesses outside are told with the body's line, also by several
    devices."""
    x = np.arange(1000, dtype=np.int32)
    y = np.zeros_like(x)
    with mc.Queue("cpu/2") as queue:
        expect(mc.parallel_for(len(x), "s = max(s, x[i]);", x=x, reduction={"s": "max"}, queue=queue) == 999, "max")
        mc.parallel_for(len(x), "y[i] = x[max(i - 1, 0)];", x=x, y=y, queue=queue)
        same(y, np.maximum(np.arange(1000) - 1, 0), "max(i - 1, 0)")
        words = error_of(lambda: mc.parallel_for(10, "float t = 1;\na[i + 5] = t;", a=np.zeros(10, "f4"), queue=queue))
        expect("<body>, line 2" in str(words), f"the line of the body: {words}")


@case()
def arguments_of_wrong_types() -> None:
    """What is no argument is refused by the call, in a sentence."""
    odd, text = cast(Any, 5), cast(Any, "a")
    program = mc.Program(INC)
    with mc.Queue("cpu/2") as queue:
        a = queue.zeros(64, np.int32)
        for wrong in (
            lambda: mc.Queue(policy=odd), lambda: mc.Queue(session=odd), lambda: mc.Queue(queues={"cpu": 0}),
            lambda: program.inc(odd, (64,), None, a), lambda: mc.parallel_for(10**20, ""),
            lambda: mc.reserve("cpu", seconds=text), lambda: queue.call(print, a, wait_for=odd),
        ):  # fmt: skip
            error_of(wrong)
