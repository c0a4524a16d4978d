"""The kernel file and the specification that the tests of the readers vary."""

from __future__ import annotations

from typing import Any

KERNELS = """\
typedef struct { int first; float second; } pair;
__kernel void copy(__global const float *src, __global float *dst, int n) {
    int i = get_global_id(0);
    if (i < n) dst[i] = src[i];
}
__kernel void scale(__global float *data, float factor) { data[get_global_id(0)] *= factor; }
__kernel void add(__global const float *a, __global const float *b, __global float *c) {
    int i = get_global_id(0);
    c[i] = a[i] + b[i];
}
__kernel void many(__global int *out, __local float *tmp, float4 v, uchar small, pair p) {
    tmp[get_local_id(0)] = v.x;
    out[get_global_id(0)] = small + p.first + (int)tmp[0] + STEP;
}
__kernel __attribute__((reqd_work_group_size(8, 4, 1))) void tile(__global float *t) {
    t[get_global_id(1) * get_global_size(0) + get_global_id(0)] = 1.0f;
}
"""

SPECIFICATION: dict[str, Any] = {
    "manycl": 1,
    "parameters": {"n": 64, "twice": "2 * n"},
    "source": "k.cl",
    "macros": {"STEP": "n / 4"},
    "buffers": {
        "x, y": {"type": "float", "shape": "n", "init": "random"},
        "z": {"type": "float", "shape": ["n"]},
        "w": {"type": "float", "shape": ["twice"], "init": {"kind": "constant", "value": 2}},
    },
    "kernels": [
        {"id": "first", "name": "copy", "global": "n", "local": 16, "args": ["x", "z", "n"]},
        {"id": "second", "name": "scale", "global": ["n"], "args": {"factor": 2.5, "data": "z"}, "rank": 3},
        {"id": "third", "name": "add", "global": "n", "args": ["z", "y", "w"], "device": "gpu"},
    ],
    "queues": {"gpu": 4, "cpu": 1},
    "outputs": ["w"],
}
