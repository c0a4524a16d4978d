/* Device-Hopping's nine benchmarks as slice kernels: each does the points from first to below last. */

/* begin descend */
int descend(__global const int *keys, __global const int *starts, int levels, int key) {
  int entry = 0;
  for (int level = 0; level < levels; level++) {
    int at = level == 0 ? 0 : entry * ORDER, begin = at;
    while (at + 1 < begin + ORDER && keys[starts[level] + at + 1] <= key) at++;
    entry = at;
  }
  return entry;
}
/* end */

/* begin find_k */
__kernel void find_k(__global const int *keys, __global const int *starts, __global const int *values,
                     __global const int *wanted, __global int *answers, int levels, int first, int last) {
  int i = first + get_global_id(0);
  if (i >= last) return;
  int at = descend(keys, starts, levels, wanted[i]);
  answers[i] = keys[starts[levels - 1] + at] == wanted[i] ? values[at] : -1;
}
/* end */

/* begin find_range */
__kernel void find_range(__global const int *keys, __global const int *starts, __global const int *low,
                         __global const int *high, __global int *begin, __global int *count, int levels,
                         int first, int last) {
  int i = first + get_global_id(0);
  if (i >= last) return;
  int from = descend(keys, starts, levels, low[i]), to = descend(keys, starts, levels, high[i]);
  if (keys[starts[levels - 1] + from] < low[i]) from++;
  if (keys[starts[levels - 1] + to] <= high[i]) to++;
  begin[i] = from;
  count[i] = to - from;
}
/* end */

/* begin nearest_neighbor */
__kernel void nearest_neighbor(__global const float *places, __global float *distances, float lat, float lng,
                               int first, int last) {
  int i = first + get_global_id(0);
  if (i >= last) return;
  float north = places[2 * i] - lat, east = places[2 * i + 1] - lng;
  distances[i] = sqrt(north * north + east * east);
}
/* end */

/* begin md5 */
__constant uint SHIFTS[16] = {7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21};
uint4 digest_of(uint number, __global const uint *sines) {
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
__kernel void md5(__global const uint *sines, __global uchar *is_found, uint4 wanted, int first, int last) {
  int i = first + get_global_id(0);
  if (i >= last) return;
  is_found[i] = all(digest_of(i, sines) == wanted) ? 1 : 0;
}
/* end */

/* begin fft */
__kernel void fft(__global const float2 *data, __global float2 *out, int first, int last) {
  int i = first + get_global_id(0);
  if (i >= last) return;
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
}
/* end */

/* begin gemm */
__kernel void gemm(__global const float *a, __global const float *b, __global float *c, int n, int first, int last) {
  int row = first + get_global_id(0);
  if (row >= last) return;
  for (int j = 0; j < n; j++) {
    float s = 0;
    for (int q = 0; q < n; q++) s += a[row * n + q] * b[q * n + j];
    c[row * n + j] = s;
  }
}
/* end */

/* begin reduction */
__kernel void reduction(__global const float *x, __global float *part, int first, int last) {
  __local float mine[64];
  int me = get_local_id(0), i = first + get_global_id(0);
  mine[me] = i < last ? x[i] : 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int apart = 32; apart > 0; apart /= 2) {
    if (me < apart) mine[me] += mine[me + apart];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (me == 0) part[first / 64 + get_group_id(0)] = mine[0];
}
/* end */

/* begin spmv */
__kernel void spmv(__global const int *starts, __global const int *columns, __global const float *values,
                   __global const float *x, __global float *y, int first, int last) {
  int i = first + get_global_id(0);
  if (i >= last) return;
  float s = 0;
  for (int q = starts[i]; q < starts[i + 1]; q++) s += values[q] * x[columns[q]];
  y[i] = s;
}
/* end */
