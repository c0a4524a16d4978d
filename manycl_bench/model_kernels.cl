// The seven kernels of MKMD's Table 1, written anew in plain OpenCL C.

// European options by the formula of Black and Scholes; each work-item prices n / global size of them.
float normal(float d) {
  float k = 1.0f / (1.0f + 0.2316419f * fabs(d));
  float tail = 0.39894228f * exp(-0.5f * d * d) *
               (k * (0.31938153f + k * (-0.35656378f + k * (1.78147794f + k * (-1.82125598f + k * 1.33027443f)))));
  return d > 0.0f ? 1.0f - tail : tail;
}

__kernel void blackscholes(__global float *call, __global float *put, __global const float *price,
                           __global const float *strike, __global const float *years, float rate, float volatility,
                           int steps) {
  int items = get_global_size(0);
  for (int i = 0; i < steps; ++i) {
    int at = i * items + get_global_id(0);
    float root = sqrt(years[at]);
    float d1 = (log(price[at] / strike[at]) + (rate + 0.5f * volatility * volatility) * years[at]) / (volatility * root);
    float d2 = d1 - volatility * root;
    float discounted = strike[at] * exp(-rate * years[at]);
    float c = price[at] * normal(d1) - discounted * normal(d2);
    call[at] = c;
    put[at] = c + discounted - price[at];
  }
}

// Gravity of all bodies on each, in tiles of a work-group's size.
__kernel void nbody(__global const float4 *body, __global float4 *force, __local float4 *tile, int bodies, float soft) {
  int size = get_local_size(0), id = get_local_id(0);
  float4 me = body[get_global_id(0)];
  float x = 0.0f, y = 0.0f, z = 0.0f;
  for (int t = 0; t < bodies / size; ++t) {
    tile[id] = body[t * size + id];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int j = 0; j < size; ++j) {
      float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z;
      float r = rsqrt(dx * dx + dy * dy + dz * dz + soft);
      float s = tile[j].w * r * r * r;
      x += dx * s;
      y += dy * s;
      z += dz * s;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  force[get_global_id(0)] = (float4)(x, y, z, 0.0f);
}

// c = a b, in tiles of 16 x 16; `inner` is what the rows of a and the columns of b have in common.
__kernel __attribute__((reqd_work_group_size(16, 16, 1))) void matrixmul(__global const float *a,
                                                                         __global const float *b, __global float *c,
                                                                         int columns, int inner) {
  __local float left[16][16], right[16][16];
  int x = get_local_id(0), y = get_local_id(1), column = get_global_id(0), row = get_global_id(1);
  float sum = 0.0f;
  for (int t = 0; t < inner / 16; ++t) {
    left[y][x] = a[row * inner + t * 16 + x];
    right[y][x] = b[(t * 16 + y) * columns + column];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < 16; ++k) sum += left[y][k] * right[k][x];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  c[row * columns + column] = sum;
}

// A star of radius 4 in three dimensions; each work-item walks along the third one.
__kernel void fdtd3d(__global const float *in, __global float *out, __constant float *weight, int width, int depth) {
  int x = get_global_id(0) + 4, y = get_global_id(1) + 4, plane = width * (get_global_size(1) + 8);
  for (int z = 4; z < depth + 4; ++z) {
    int at = z * plane + y * width + x;
    float sum = weight[0] * in[at];
    for (int r = 1; r <= 4; ++r)
      sum += weight[r] * (in[at - r] + in[at + r] + in[at - r * width] + in[at + r * width] + in[at - r * plane] +
                          in[at + r * plane]);
    out[at] = sum;
  }
}

// Edges by Sobel's operator; the picture has a border of one.
__kernel void sobel(__global const float *in, __global float *out, float scale) {
  int width = get_global_size(0) + 2, at = (get_global_id(1) + 1) * width + get_global_id(0) + 1;
  float a = in[at - width - 1], b = in[at - width], c = in[at - width + 1];
  float d = in[at - 1], e = in[at + 1];
  float f = in[at + width - 1], g = in[at + width], h = in[at + width + 1];
  float across = c + 2.0f * e + h - a - 2.0f * d - f, down = f + 2.0f * g + h - a - 2.0f * b - c;
  out[at] = scale * sqrt(across * across + down * down);
}

// The median of each element and its eight neighbours, by exchanging.
#define SORT(x, y) { float low = fmin(x, y); y = fmax(x, y); x = low; }
__kernel void median(__global const float *in, __global float *out) {
  int width = get_global_size(0) + 2, at = (get_global_id(1) + 1) * width + get_global_id(0) + 1;
  float a = in[at - width - 1], b = in[at - width], c = in[at - width + 1];
  float d = in[at - 1], e = in[at], f = in[at + 1];
  float g = in[at + width - 1], h = in[at + width], i = in[at + width + 1];
  SORT(b, c) SORT(e, f) SORT(h, i) SORT(a, b) SORT(d, e) SORT(g, h) SORT(b, c) SORT(e, f) SORT(h, i)
  SORT(a, d) SORT(f, i) SORT(e, h) SORT(d, g) SORT(b, e) SORT(c, f) SORT(e, h) SORT(e, c) SORT(g, e) SORT(e, c)
  out[at] = e;
}

// The nearest of several centres for each point; features lie one after another.
__kernel void kmeans(__global const float *point, __global const float *centre, __global int *nearest, int centres,
                     int features) {
  int id = get_global_id(0), points = get_global_size(0), best = 0;
  float least = FLT_MAX;
  for (int c = 0; c < centres; ++c) {
    float sum = 0.0f;
    for (int k = 0; k < features; ++k) {
      float d = point[k * points + id] - centre[c * features + k];
      sum += d * d;
    }
    if (sum < least) {
      least = sum;
      best = c;
    }
  }
  nearest[id] = best;
}
