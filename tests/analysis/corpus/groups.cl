// Work-groups that co-operate: local memory, barriers, asynchronous copies, atomics.
kernel void reduce_tree(global float *d, global const float *s, local float *t) {
    int l = get_local_id(0);
    t[l] = s[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = get_local_size(0) / 2; k > 0; k >>= 1) {
        if (l < k) t[l] += t[l + k];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (l == 0) d[get_group_id(0)] = t[0];
}
kernel void reduce_strided(global float *d, global const float *s, int n, local float *t) {
    float sum = 0;
    for (int i = get_global_id(0); i < n; i += get_global_size(0)) sum += s[i];
    t[get_local_id(0)] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        for (int k = 1; k < (int)get_local_size(0); k++) sum += t[k];
        d[get_group_id(0)] = sum;
    }
}
kernel void reverse_in_group(global int *d, global const int *s) {
    local int t[8];
    int l = get_local_id(0);
    t[l] = s[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    d[get_group_id(0) * 8 + l] = t[7 - l];
}
kernel void rotate_in_place(global int *a) {
    int g = get_group_id(0) * get_local_size(0), l = get_local_id(0);
    int v = a[g + (l + 1) % (int)get_local_size(0)];
    barrier(CLK_GLOBAL_MEM_FENCE);
    a[g + l] = v;
}
kernel void scan_group(global int *d, global int *sums, global const int *s, local int *t) {
    int l = get_local_id(0), n = get_local_size(0);
    t[l] = s[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 1; k < n; k <<= 1) {
        int v = l >= k ? t[l - k] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        t[l] += v;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    d[get_global_id(0)] = t[l];
    if (l == n - 1) sums[get_group_id(0)] = t[l];
}
kernel void scan_add_sums(global int *d, global const int *sums) {
    int v = 1;
    for (int g = 0; g < (int)get_group_id(0); g++) v += sums[g];
    d[get_global_id(0)] += v;
}
kernel void async_in_out(global int *d, global const int *s, local int *t) {
    size_t n = get_local_size(0), at = get_group_id(0) * n;
    event_t e = async_work_group_copy(t, s + at, n, 0);
    wait_group_events(1, &e);
    t[get_local_id(0)] *= 3;
    barrier(CLK_LOCAL_MEM_FENCE);
    e = async_work_group_copy(d + at, t, n, 0);
    wait_group_events(1, &e);
}
kernel void async_strided(global int *d, global const int *s, local int *t, int step) {
    size_t n = get_local_size(0), g = get_group_id(0);
    event_t e = async_work_group_strided_copy(t, s + g * n * step, n, step, 0);
    wait_group_events(1, &e);
    d[get_global_id(0)] = t[get_local_id(0)];
}
kernel void halo_in_local(global float *d, global const float *s, int n, local float *t) {
    int i = get_global_id(0), l = get_local_id(0), m = get_local_size(0);
    t[l + 1] = s[i];
    if (l == 0) t[0] = i > 0 ? s[i - 1] : 0.0f;
    if (l == m - 1) t[m + 1] = i + 1 < n ? s[i + 1] : 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
    d[i] = 0.25f * t[l] + 0.5f * t[l + 1] + 0.25f * t[l + 2];
}
kernel void sum_atomic(global int *total, global const int *s) { atomic_add(total, s[get_global_id(0)]); }
kernel void max_atomic(global int *best, global const int *s) { atomic_max(best + get_global_id(0) % 4, s[get_global_id(0)]); }
kernel void atomic_private_cell(global int *d) { atomic_inc(d + get_global_id(0)); }
kernel void ticket(global int *counter, global int *d) { d[atomic_inc(counter)] = get_global_id(0); }
kernel void atomic_or_bits(global uint *d) { uint i = get_global_id(0); atomic_or(d + (i >> 5), 1u << (i & 31u)); }
kernel void exchange(global int *a) { atomic_xchg(a, (int)get_global_id(0)); }
kernel void compare_exchange(global int *a) { atomic_cmpxchg(a + get_group_id(0), 5, 6); }
kernel void local_atomic(global int *d, global const int *s) {
    local int best;
    if (get_local_id(0) == 0) best = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    atomic_max(&best, s[get_global_id(0)]);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) d[get_group_id(0)] = best;
}
kernel void histogram_local(global uint *bins, global const uchar *s, int n) {
    local uint h[16];
    for (int b = get_local_id(0); b < 16; b += get_local_size(0)) h[b] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = get_global_id(0); i < n; i += get_global_size(0)) atomic_inc(&h[s[i] & 15]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int b = get_local_id(0); b < 16; b += get_local_size(0)) bins[get_group_id(0) * 16 + b] = h[b];
}
kernel void histogram_global(global uint *bins, global const uchar *s) { atomic_inc(&bins[s[get_global_id(0)] & 15]); }
kernel void histogram_merge(global uint *d, global const uint *bins, int parts) {
    uint sum = 0;
    for (int p = 0; p < parts; p++) sum += bins[p * 16 + get_global_id(0)];
    d[get_global_id(0)] = sum;
}
kernel void transpose_local(global float *d, global const float *s, int w, int h) {
    local float t[4][5];
    int lx = get_local_id(0), ly = get_local_id(1);
    t[ly][lx] = s[get_global_id(1) * w + get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    int x = get_group_id(1) * 4 + lx, y = get_group_id(0) * 4 + ly;
    d[y * h + x] = t[lx][ly];
}
kernel void bitonic_local(global int *a) {
    local int t[16];
    int l = get_local_id(0), g = get_group_id(0) * 16;
    t[l] = a[g + l];
    t[l + 8] = a[g + l + 8];
    for (int size = 2; size <= 16; size <<= 1)
        for (int stride = size / 2; stride > 0; stride >>= 1) {
            barrier(CLK_LOCAL_MEM_FENCE);
            int at = 2 * l - (l & (stride - 1));
            bool up = (at & size) == 0;
            int x = t[at], y = t[at + stride];
            if ((x > y) == up) { t[at] = y; t[at + stride] = x; }
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    a[g + l] = t[l];
    a[g + l + 8] = t[l + 8];
}
kernel void softmax_rows(global float *d, global const float *s, int n, local float *t) {
    int r = get_group_id(0), l = get_local_id(0), m = get_local_size(0);
    float top = -1e30f;
    for (int c = l; c < n; c += m) top = fmax(top, s[r * n + c]);
    t[l] = top;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < m; k++) top = fmax(top, t[k]);
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = 0;
    for (int c = l; c < n; c += m) sum += exp(s[r * n + c] - top);
    t[l] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    sum = 0;
    for (int k = 0; k < m; k++) sum += t[k];
    for (int c = l; c < n; c += m) d[r * n + c] = exp(s[r * n + c] - top) / sum;
}
