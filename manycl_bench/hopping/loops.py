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
constant uint SINES[64] = {TABLE};
uint4 digest_of(uint w0, uint w1) {
  uint w[16] = {w0, w1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8 * DIGITS, 0};
  uint a = 0x67452301u, b = 0xefcdab89u, c = 0x98badcfeu, d = 0x10325476u;
  for (uint r = 0; r < 64; r++) {
    uint f, g;
    if (r < 16) { f = (b & c) | (~b & d); g = r; }
    else if (r < 32) { f = (d & b) | (~d & c); g = (5 * r + 1) % 16; }
    else if (r < 48) { f = b ^ c ^ d; g = (3 * r + 5) % 16; }
    else { f = c ^ (b | ~d); g = (7 * r) % 16; }
    uint next = b + rotate(a + f + SINES[r] + w[g], SHIFTS[r / 16 * 4 + r % 4]);
    a = d; d = c; c = b; b = next;
  }
  return (uint4)(a + 0x67452301u, b + 0xefcdab89u, c + 0x98badcfeu, d + 0x10325476u);
}
uint4 digest_of_number(uint number) {
  uint w0 = 0, w1 = 0x80u << 24;
  for (int digit = DIGITS - 1; digit >= 0; digit--, number /= 10) {
    uint character = '0' + number % 10;
    if (digit < 4) w0 |= character << 8 * digit; else w1 |= character << 8 * (digit - 4);
  }
  return digest_of(w0, w1);
}
"""


def md5(queue: mc.Queue, *, points: int, **given: Any) -> Any:
    body = """
    uint4 digest = digest_of_number(i);
    if (digest.x == digest0 && digest.y == digest1 && digest.z == digest2 && digest.w == digest3) found = max(found, i);
    """
    constants = {"DIGITS": 7, "TABLE": ", ".join(f"{v}u" for v in sines())}
    options: dict[str, Any] = {"functions": MD5, "constants": constants, "reduction": {"found": "max"}}
    return mc.parallel_for(points, body, found=-1, queue=queue, **options, **given)


def sines() -> list[int]:
    from math import sin

    return [int(abs(sin(r + 1)) * 2**32) for r in range(64)]


FFT = """
uint reversed = 0;
for (uint p = 0; p < POINTS; p++) {
  out[i * POINTS + p] = data[i * POINTS + reversed];
  uint bit = POINTS / 2;
  for (; reversed & bit; bit /= 2) reversed ^= bit;
  reversed ^= bit;
}
for (int width = 1; width < POINTS; width *= 2)
  for (int q = 0; q < width; q++) {
    float turned, root = sincos(SIGN * M_PI_F * q / width, &turned);
    for (int p = q; p < POINTS; p += 2 * width) {
      float2 x = out[i * POINTS + p], y = out[i * POINTS + p + width];
      float2 z = (float2)(y.x * turned - y.y * root, y.x * root + y.y * turned);
      out[i * POINTS + p] = x + z;
      out[i * POINTS + p + width] = x - z;
    }
  }
"""


def fft(queue: mc.Queue, **given: Any) -> Any:
    access = {"out": mc.successive_subsections(512)}
    constants = {"POINTS": 512, "SIGN": "-1.0f"}
    return mc.parallel_for(given["out"].size // 512, FFT, constants=constants, access=access, queue=queue, **given)


def inverse_fft(queue: mc.Queue, **given: Any) -> Any:
    body = FFT + "for (int p = 0; p < POINTS; p++) out[i * POINTS + p] /= POINTS;"
    access = {"out": mc.successive_subsections(512)}
    constants = {"POINTS": 512, "SIGN": "1.0f"}
    return mc.parallel_for(given["out"].size // 512, body, constants=constants, access=access, queue=queue, **given)


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
    "MD5Hash": ("MD5", "sines"),
    "FFT": ("FFT",),
    "Inverse FFT": ("FFT",),
}
"""What a loop is written with beside its function."""
