kernel void sweep(global const float *u, global float *v, long n, long rows) {
    long x = get_global_id(0), y = get_global_id(1), i = y * n + x;
    float sum = u[i];
    sum += x > 0 ? u[i - 1] : 0.0f;
    sum += x < n - 1 ? u[i + 1] : 0.0f;
    sum += y > 0 ? u[i - n] : 0.0f;
    sum += y < rows - 1 ? u[i + n] : 0.0f;
    v[i] = 0.2f * sum;
}

kernel void product(global const float *a, global const float *b, global float *c, long n) {
    long x = get_global_id(0), y = get_global_id(1);
    float sum = 0.0f;
    for (long k = 0; k < n; k++)
        sum += a[y * n + k] * b[k * n + x];
    c[y * n + x] = sum;
}

kernel void attract(global const float4 *x, global float4 *v, long n, float dt) {
    long i = get_global_id(0);
    float4 me = x[i], to = 0.0f;
    for (long j = 0; j < n; j++) {
        float4 d = x[j] - me;
        float r = d.x * d.x + d.y * d.y + d.z * d.z + 1e-4f;
        to += x[j].w * rsqrt(r) / r * d;
    }
    v[i] += dt * to;
}

kernel void drift(global const float4 *x, global const float4 *v, global float4 *y, float dt) {
    long i = get_global_id(0);
    float4 at = x[i] + dt * v[i];
    at.w = x[i].w;
    y[i] = at;
}

kernel void laplace(global const float *p, global float *q, long n, long rows) {
    long x = get_global_id(0), y = get_global_id(1), i = y * n + x;
    float sum = 4.0f * p[i];
    if (x > 0) sum -= p[i - 1];
    if (x < n - 1) sum -= p[i + 1];
    if (y > 0) sum -= p[i - n];
    if (y < rows - 1) sum -= p[i + n];
    q[i] = sum;
}

kernel void dot(global const float *a, global const float *b, global float *parts, long n) {
    local float sums[64];
    long at = get_local_id(0), y = get_global_id(1);
    float sum = 0.0f;
    for (long x = at; x < n; x += 64)
        sum += a[y * n + x] * b[y * n + x];
    sums[at] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (long other = 32; other > 0; other /= 2) {
        if (at < other) sums[at] += sums[at + other];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (at == 0) parts[y] = sums[0];
}

kernel void total(global const float *parts, global float *sum, long rows) {
    float all = 0.0f;
    for (long y = 0; y < rows; y++) all += parts[y];
    sum[0] = all;
}

kernel void advance(global float *y, global const float *x, global const float *over, global const float *under,
                    float sign) {
    long i = get_global_id(0);
    y[i] += sign * over[0] / under[0] * x[i];
}

kernel void turn(global float *p, global const float *r, global const float *over, global const float *under) {
    long i = get_global_id(0);
    p[i] = r[i] + over[0] / under[0] * p[i];
}
