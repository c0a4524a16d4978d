"""Device-Hopping's nine benchmarks as bodies of ``parallel_for``: what a user writes (Table 4 counts its lines).

Each takes a queue and what its inputs are called, NumPy's arrays or the queue's, and returns results of reductions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import manycl as mc
from manycl_bench.hopping.model import TABLE_3

DESCEND = """
int descend(global const int *keys, global const int *starts, int levels, int key) {
  int entry = 0;
  for (int level = 0; level < levels; level++) {
    int at = level == 0 ? 0 : entry * ORDER, first = at;
    while (at + 1 < first + ORDER && keys[starts[level] + at + 1] <= key) at++;
    entry = at;
  }
  return entry;
}
"""


def find_k(queue: mc.Queue, **given: Any) -> Any:
    body = """
    int at = descend(keys, starts, levels, wanted[i]);
    answers[i] = keys[starts[levels - 1] + at] == wanted[i] ? values[at] : -1;
    """
    points = given["wanted"].size
    return mc.parallel_for(points, body, functions=DESCEND, constants={"ORDER": 32}, queue=queue, **given)


def find_range(queue: mc.Queue, **given: Any) -> Any:
    body = """
    int from = descend(keys, starts, levels, low[i]), to = descend(keys, starts, levels, high[i]);
    if (keys[starts[levels - 1] + from] < low[i]) from++;
    if (keys[starts[levels - 1] + to] <= high[i]) to++;
    first[i] = from;
    count[i] = to - from;
    """
    points = given["low"].size
    return mc.parallel_for(points, body, functions=DESCEND, constants={"ORDER": 32}, queue=queue, **given)


def nearest_neighbor(queue: mc.Queue, **given: Any) -> Any:
    body = """
    float north = places[2 * i] - lat, east = places[2 * i + 1] - lng;
    distances[i] = sqrt(north * north + east * east);
    """
    return mc.parallel_for(given["distances"].size, body, queue=queue, **given)


MD5 = """
constant uint SHIFTS[16] = {7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21};
uint4 digest_of(uint number, global const uint *sines) {
  uint w[16] = {0, 0, 0x80u, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8 * DIGITS, 0};
  for (int digit = DIGITS - 1; digit >= 0; digit--, number /= 10) w[digit / 4] |= ('0' + number % 10) << digit % 4 * 8;
  uint a = 0x67452301u, b = 0xefcdab89u, c = 0x98badcfeu, d = 0x10325476u;
  for (uint r = 0; r < 64; r++) {
    uint f, g;
    if (r < 16) { f = (b & c) | (~b & d); g = r; }
    else if (r < 32) { f = (d & b) | (~d & c); g = (5 * r + 1) % 16; }
    else if (r < 48) { f = b ^ c ^ d; g = (3 * r + 5) % 16; }
    else { f = c ^ (b | ~d); g = (7 * r) % 16; }
    uint next = b + rotate(a + f + sines[r] + w[g], SHIFTS[r / 16 * 4 + r % 4]);
    a = d; d = c; c = b; b = next;
  }
  return (uint4)(a + 0x67452301u, b + 0xefcdab89u, c + 0x98badcfeu, d + 0x10325476u);
}
"""


def md5(queue: mc.Queue, *, points: int, **given: Any) -> Any:
    body = """
    uint4 digest = digest_of(i, sines);
    if (digest.x == digest0 && digest.y == digest1 && digest.z == digest2 && digest.w == digest3) found = max(found, i);
    """
    options: dict[str, Any] = {"functions": MD5, "constants": {"DIGITS": 8}, "reduction": {"found": "max"}}
    return mc.parallel_for(points, body, found=-1, queue=queue, **options, **given)


FFT = """
float2 z[2][POINTS];
int from = 0;
for (int p = 0; p < POINTS; p++) z[0][p] = data[i * POINTS + p];
for (int width = 1; width < POINTS; width *= 2, from = 1 - from)
  for (int q = 0; q < width; q++) {
    float turned, root = sincos(SIGN * M_PI_F * q / width, &turned);
    for (int p = q; p < POINTS / 2; p += width) {
      float2 x = z[from][p], y = z[from][p + POINTS / 2];
      float2 turn = (float2)(y.x * turned - y.y * root, y.x * root + y.y * turned);
      z[1 - from][2 * p - q] = x + turn;
      z[1 - from][2 * p - q + width] = x - turn;
    }
  }
for (int p = 0; p < POINTS; p++) out[i * POINTS + p] = z[from][p] * SCALE;
"""


def fft(queue: mc.Queue, **given: Any) -> Any:
    constants = {"POINTS": 512, "SIGN": "-1.0f", "SCALE": "1.0f"}
    return mc.parallel_for(len(given["out"]), FFT, constants=constants, local=(16,), queue=queue, **given)


def inverse_fft(queue: mc.Queue, **given: Any) -> Any:
    constants = {"POINTS": 512, "SIGN": "1.0f", "SCALE": "(1.0f / POINTS)"}
    return mc.parallel_for(len(given["out"]), FFT, constants=constants, local=(16,), queue=queue, **given)


def gemm(queue: mc.Queue, *, n: int, **given: Any) -> Any:
    body = """
    float s = 0;
    for (int q = 0; q < n; q++) s += a[i * n + q] * b[q * n + j];
    c[i * n + j] = s;
    """
    return mc.parallel_for((n, n), body, n=n, queue=queue, **given)


def reduction(queue: mc.Queue, **given: Any) -> Any:
    return mc.parallel_for(given["x"].size, "s += x[i];", reduction={"s": "+"}, queue=queue, **given)


def spmv(queue: mc.Queue, **given: Any) -> Any:
    body = """
    float s = 0;
    for (int q = starts[i]; q < starts[i + 1]; q++) s += values[q] * x[columns[q]];
    y[i] = s;
    """
    return mc.parallel_for(given["y"].size, body, queue=queue, **given)


_LOOPS: tuple[Callable[..., Any], ...] = (find_k, find_range, nearest_neighbor, md5, fft, gemm, inverse_fft)
LOOPS: Mapping[str, Callable[..., Any]] = dict(zip(TABLE_3, (*_LOOPS, reduction, spmv), strict=True))
"""By the names of Table 3."""
TEXTS: Mapping[str, tuple[str, ...]] = {
    "B+Tree Find K": ("DESCEND",),
    "B+Tree Find Range": ("DESCEND",),
    "MD5Hash": ("MD5",),
    "FFT": ("FFT",),
    "Inverse FFT": ("FFT",),
}
"""What a loop is written with beside its function."""
