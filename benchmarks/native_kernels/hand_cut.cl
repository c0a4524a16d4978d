// The four kernels as loops written by hand: loops that all work-items run alike are cut like barriers, so that the loop
// over work-items is the innermost one, and what these keep lies in arrays. Each runs the groups from low to high.

#define SIDE 16
#define EACH(i, n) for (int i = 0; i < n; i++)
#define ALL(i, n) _Pragma("clang loop unroll(full)") EACH(i, n)
#define VECTOR(i, n) _Pragma("clang loop vectorize(assume_safety)") EACH(i, n)

void product_naive(long low, long high, __global const float *a, __global const float *b, __global float *c, int n)
{
    for (long group = low; group < high; group++) {
        const long top = group / (n / SIDE) * SIDE, left = group % (n / SIDE) * SIDE;
        float sum[SIDE][SIDE];
        ALL(y, SIDE) VECTOR(x, SIDE) sum[y][x] = 0.0f;
        EACH(k, n)
            ALL(y, SIDE) VECTOR(x, SIDE) sum[y][x] += a[(top + y) * n + k] * b[(long)k * n + left + x];
        ALL(y, SIDE) VECTOR(x, SIDE) c[(top + y) * n + left + x] = sum[y][x];
    }
}

void product_tiled(long low, long high, __global const float *a, __global const float *b, __global float *c, int n)
{
    for (long group = low; group < high; group++) {
        const long top = group / (n / SIDE) * SIDE, left = group % (n / SIDE) * SIDE;
        float of_a[SIDE][SIDE], of_b[SIDE][SIDE], sum[SIDE][SIDE];
        ALL(y, SIDE) VECTOR(x, SIDE) sum[y][x] = 0.0f;
        for (long tile = 0; tile < n; tile += SIDE) {
            EACH(y, SIDE) VECTOR(x, SIDE) {
                of_a[y][x] = a[(top + y) * n + tile + x];
                of_b[y][x] = b[(tile + y) * n + left + x];
            }
            EACH(k, SIDE) ALL(y, SIDE) VECTOR(x, SIDE) sum[y][x] += of_a[y][k] * of_b[k][x];
        }
        ALL(y, SIDE) VECTOR(x, SIDE) c[(top + y) * n + left + x] = sum[y][x];
    }
}

// A group is a row.
void five_points(long low, long high, __global const float *a, __global float *b, int n)
{
    for (long i = low; i < high; i++)
        VECTOR(j, n) {
            if (j > 0 && j < n - 1 && i > 0 && i < n - 1)
                b[i * n + j] = 0.2f * (a[i * n + j] + a[i * n + j - 1] + a[i * n + j + 1] + a[(i - 1) * n + j] + a[(i + 1) * n + j]);
            else
                b[i * n + j] = a[i * n + j];
        }
}

#define BODIES 64

void bodies(long low, long high, __global const float4 *body, __global float4 *force, int n)
{
    for (long group = low; group < high; group++) {
        float x[BODIES], y[BODIES], z[BODIES], fx[BODIES], fy[BODIES], fz[BODIES];
        EACH(l, BODIES) {
            float4 me = body[group * BODIES + l];
            x[l] = me.x, y[l] = me.y, z[l] = me.z;
            fx[l] = fy[l] = fz[l] = 0.0f;
        }
        EACH(j, n) {
            float4 other = body[j];
            VECTOR(l, BODIES) {
                float dx = other.x - x[l], dy = other.y - y[l], dz = other.z - z[l];
                float d = dx * dx + dy * dy + dz * dz + 1e-4f;
                float near = 1.0f / sqrt(d), f = other.w * near * near * near;
                fx[l] += f * dx;
                fy[l] += f * dy;
                fz[l] += f * dz;
            }
        }
        EACH(l, BODIES) force[group * BODIES + l] = (float4)(fx[l], fy[l], fz[l], 0.0f);
    }
}
