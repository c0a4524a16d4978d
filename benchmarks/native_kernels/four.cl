// Four kernels that are told apart by what makes them fast: local memory, operands that stay in registers, memory alone,
// and square roots of vectors.

#define SIDE 16

kernel __attribute__((reqd_work_group_size(SIDE, SIDE, 1)))
void product_tiled(global const float *a, global const float *b, global float *c, int n)
{
    local float left[SIDE][SIDE], right[SIDE][SIDE];
    int x = get_local_id(0), y = get_local_id(1), j = get_global_id(0), i = get_global_id(1);
    float sum = 0.0f;
    for (int tile = 0; tile < n / SIDE; tile++) {
        left[y][x] = a[i * n + tile * SIDE + x];
        right[y][x] = b[(tile * SIDE + y) * n + j];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < SIDE; k++)
            sum += left[y][k] * right[k][x];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[i * n + j] = sum;
}

kernel void product_naive(global const float *a, global const float *b, global float *c, int n)
{
    int j = get_global_id(0), i = get_global_id(1);
    float sum = 0.0f;
    for (int k = 0; k < n; k++)
        sum += a[i * n + k] * b[k * n + j];
    c[i * n + j] = sum;
}

kernel void five_points(global const float *a, global float *b, int n)
{
    int j = get_global_id(0), i = get_global_id(1);
    if (j > 0 && j < n - 1 && i > 0 && i < n - 1)
        b[i * n + j] = 0.2f * (a[i * n + j] + a[i * n + j - 1] + a[i * n + j + 1] + a[(i - 1) * n + j] + a[(i + 1) * n + j]);
    else if (j < n && i < n)
        b[i * n + j] = a[i * n + j];
}

kernel void bodies(global const float4 *body, global float4 *force, int n)
{
    int i = get_global_id(0);
    float4 me = body[i];
    float fx = 0.0f, fy = 0.0f, fz = 0.0f;
    for (int j = 0; j < n; j++) {
        float4 other = body[j];
        float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
        float d = dx * dx + dy * dy + dz * dz + 1e-4f;
        float near = 1.0f / sqrt(d), f = other.w * near * near * near;
        fx += f * dx;
        fy += f * dy;
        fz += f * dz;
    }
    force[i] = (float4)(fx, fy, fz, 0.0f);
}
