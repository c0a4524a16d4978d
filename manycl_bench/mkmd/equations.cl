// The kernels of MKMD's equations (Table 3), single precision; matrices are n x n, row by row.

#define TILE 16

// c = a b: a tile of c per work-group, tiles of a and b in local memory
__kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void matmul(__global const float *a, __global const float *b, __global float *c, int n) {
    __local float tile_a[TILE][TILE];
    __local float tile_b[TILE][TILE];
    int x = get_local_id(0), y = get_local_id(1);
    int column = get_global_id(0), row = get_global_id(1);
    float sum = 0.0f;
    for (int t = 0; t < n; t += TILE) {
        tile_a[y][x] = a[row * n + t + x];
        tile_b[y][x] = b[(t + y) * n + column];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < TILE; k++) {
            sum += tile_a[y][k] * tile_b[k][x];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[row * n + column] = sum;
}

__kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void transpose(__global const float *a, __global float *c, int n) {
    __local float tile[TILE][TILE + 1];
    int x = get_local_id(0), y = get_local_id(1);
    int column = get_group_id(0) * TILE, row = get_group_id(1) * TILE;
    tile[y][x] = a[(row + y) * n + column + x];
    barrier(CLK_LOCAL_MEM_FENCE);
    c[(column + y) * n + row + x] = tile[x][y];
}

__kernel void add(__global const float *a, __global const float *b, __global float *c, int n) {
    int i = get_global_id(1) * n + get_global_id(0);
    c[i] = a[i] + b[i];
}

__kernel void subtract(__global const float *a, __global const float *b, __global float *c, int n) {
    int i = get_global_id(1) * n + get_global_id(0);
    c[i] = a[i] - b[i];
}

// y = a x: a work-group a row
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void matvec(__global const float *a, __global const float *x, __global float *y, int n) {
    __local float partial[64];
    int me = get_local_id(0), row = get_group_id(0);
    float sum = 0.0f;
    for (int k = me; k < n; k += 64) {
        sum += a[row * n + k] * x[k];
    }
    partial[me] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int apart = 32; apart > 0; apart /= 2) {
        if (me < apart) {
            partial[me] += partial[me + apart];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (me == 0) {
        y[row] = partial[0];
    }
}

// s = x . y, by one work-group
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void dot_product(__global const float *x, __global const float *y, __global float *s, int n) {
    __local float partial[256];
    int me = get_local_id(0);
    float sum = 0.0f;
    for (int k = me; k < n; k += 256) {
        sum += x[k] * y[k];
    }
    partial[me] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int apart = 128; apart > 0; apart /= 2) {
        if (me < apart) {
            partial[me] += partial[me + apart];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (me == 0) {
        s[0] = partial[0];
    }
}

// out = x + sign * above / below * y
__kernel void axpy(__global const float *x, __global const float *y, __global const float *above,
                   __global const float *below, __global float *out, float sign) {
    int i = get_global_id(0);
    out[i] = x[i] + sign * (above[0] / below[0]) * y[i];
}

__kernel void difference(__global const float *x, __global const float *y, __global float *out) {
    int i = get_global_id(0);
    out[i] = x[i] - y[i];
}

// BiCGSTAB's direction: p = r + beta (p - omega v)
__kernel void direction(__global const float *r, __global const float *p, __global const float *v,
                        __global const float *rho, __global const float *before, __global const float *alpha,
                        __global const float *omega, __global float *out) {
    int i = get_global_id(0);
    float beta = (rho[0] / before[0]) * (alpha[0] / omega[0]);
    out[i] = r[i] + beta * (p[i] - omega[0] * v[i]);
}
