// Kernels of linear algebra and image processing as people write them: what `benchmarks/stages.py analysis` loads.

#ifndef TILE
#define TILE 16
#endif
#define INDEX(row, column, width) ((row) * (width) + (column))

typedef struct {
    int width;
    int height;
    float weight;
} settings;

float activation(float x) {
    return x > 0.0f ? x : 0.01f * x;
}

int clamped(int value, int limit) {
    return min(max(value, 0), limit - 1);
}

__kernel void matrix_add(__global float *c, __global const float *a, __global const float *b, const int n) {
    const int column = get_global_id(0);
    const int row = get_global_id(1);
    if (column >= n || row >= n) {
        return;
    }
    c[INDEX(row, column, n)] = a[INDEX(row, column, n)] + b[INDEX(row, column, n)];
}

__kernel void matrix_scale(__global float *a, const float factor, const int n) {
    const int i = get_global_id(0);
    if (i < n * n) {
        a[i] *= factor;
    }
}

__kernel void matrix_multiply(__global float *c, __global const float *a, __global const float *b,
                              const int n, const int m, const int p) {
    const int column = get_global_id(0);
    const int row = get_global_id(1);
    if (row < n && column < m) {
        float sum = 0.0f;
        for (int k = 0; k < p; k++) {
            sum += a[INDEX(row, k, p)] * b[INDEX(k, column, m)];
        }
        c[INDEX(row, column, m)] = activation(sum);
    }
}

__kernel void matrix_multiply_tiled(__global float *c, __global const float *a, __global const float *b,
                                    const int n) {
    __local float tile_a[TILE][TILE];
    __local float tile_b[TILE][TILE];
    const int x = get_local_id(0);
    const int y = get_local_id(1);
    const int column = get_group_id(0) * TILE + x;
    const int row = get_group_id(1) * TILE + y;
    float sum = 0.0f;
    for (int t = 0; t < n / TILE; t++) {
        tile_a[y][x] = a[INDEX(row, t * TILE + x, n)];
        tile_b[y][x] = b[INDEX(t * TILE + y, column, n)];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < TILE; k++) {
            sum += tile_a[y][k] * tile_b[k][x];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[INDEX(row, column, n)] = sum;
}

__kernel void transpose(__global float *out, __global const float *in, const int width, const int height) {
    __local float block[TILE * (TILE + 1)];
    int x = get_global_id(0);
    int y = get_global_id(1);
    if (x < width && y < height) {
        block[get_local_id(1) * (TILE + 1) + get_local_id(0)] = in[y * width + x];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    x = get_group_id(1) * TILE + get_local_id(0);
    y = get_group_id(0) * TILE + get_local_id(1);
    if (x < height && y < width) {
        out[y * height + x] = block[get_local_id(0) * (TILE + 1) + get_local_id(1)];
    }
}

__kernel void reduce_sum(__global float *partial, __global const float *data, __local float *scratch,
                         const int n) {
    const int local_id = get_local_id(0);
    float value = 0.0f;
    for (int i = get_global_id(0); i < n; i += get_global_size(0)) {
        value += data[i];
    }
    scratch[local_id] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int half_size = get_local_size(0) / 2; half_size > 0; half_size >>= 1) {
        if (local_id < half_size) {
            scratch[local_id] += scratch[local_id + half_size];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (local_id == 0) {
        partial[get_group_id(0)] = scratch[0];
    }
}

__kernel void convolve(__global float *out, __global const float *in, __constant float *filter,
                       const int radius, const settings s) {
    const int x = get_global_id(0);
    const int y = get_global_id(1);
    if (x >= s.width || y >= s.height) {
        return;
    }
    float sum = 0.0f;
    for (int dy = -radius; dy <= radius; dy++) {
        for (int dx = -radius; dx <= radius; dx++) {
            const int px = clamped(x + dx, s.width);
            const int py = clamped(y + dy, s.height);
            sum += in[py * s.width + px] * filter[(dy + radius) * (2 * radius + 1) + dx + radius];
        }
    }
    out[y * s.width + x] = s.weight * sum;
}

__kernel void stencil(__global float *out, __global const float *in, const int nx, const int ny, const int nz) {
    const int x = get_global_id(0);
    const int y = get_global_id(1);
    const int z = get_global_id(2);
    if (x < 1 || y < 1 || z < 1 || x >= nx - 1 || y >= ny - 1 || z >= nz - 1) {
        return;
    }
    const int i = (z * ny + y) * nx + x;
    float around = in[i - 1] + in[i + 1];
    around += in[i - nx] + in[i + nx];
    around += in[i - nx * ny] + in[i + nx * ny];
    out[i] = 0.4f * in[i] + 0.1f * around;
}

__kernel void histogram(__global uint *bins, __global const uchar *data, const int n) {
    __local uint counts[256];
    for (int i = get_local_id(0); i < 256; i += get_local_size(0)) {
        counts[i] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = get_global_id(0); i < n; i += get_global_size(0)) {
        atomic_inc(&counts[data[i]]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = get_local_id(0); i < 256; i += get_local_size(0)) {
        atomic_add(&bins[i], counts[i]);
    }
}

__kernel void sparse_product(__global float *y, __global const int *rows, __global const int *columns,
                             __global const float *values, __global const float *x, const int n) {
    const int row = get_global_id(0);
    if (row < n) {
        float sum = 0.0f;
        for (int k = rows[row]; k < rows[row + 1]; k++) {
            sum += values[k] * x[columns[k]];
        }
        y[row] = sum;
    }
}

__kernel void prefix_sum(__global float *out, __global const float *in, __local float *buffer, const int n) {
    const int id = get_local_id(0);
    int from = 0;
    int to = 1;
    buffer[id] = id > 0 ? in[id - 1] : 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int offset = 1; offset < n; offset *= 2) {
        to = 1 - to;
        from = 1 - to;
        float sum = buffer[from * n + id];
        if (id >= offset) {
            sum += buffer[from * n + id - offset];
        }
        buffer[to * n + id] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    out[id] = buffer[to * n + id];
}

__kernel void to_gray(__global uchar *gray, __global const uchar4 *image, const int width, const int height) {
    const int2 at = (int2)(get_global_id(0), get_global_id(1));
    if (at.x < width && at.y < height) {
        const float4 pixel = convert_float4(image[at.y * width + at.x]);
        const float light = dot(pixel.xyz, (float3)(0.299f, 0.587f, 0.114f));
        gray[at.y * width + at.x] = convert_uchar_sat_rte(light);
    }
}
