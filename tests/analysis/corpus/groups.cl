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
kernel void prefetched(global int *d, global const int *s) { int g = get_group_id(0) * get_local_size(0); prefetch(s + g, get_local_size(0)); d[get_global_id(0)] = s[g + get_local_id(0) / 2]; }
kernel void async_strided_out(global int *d, global const int *s, local int *t, int step) {
    size_t n = get_local_size(0), g = get_group_id(0);
    t[get_local_id(0)] = s[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    event_t e = async_work_group_strided_copy(d + g * n * step + 1, t, n, step, 0);
    wait_group_events(1, &e);
}
kernel void async_rows(global int *d, global const int *s, int width, int rows, local int *t) {
    size_t g = get_group_id(0);
    event_t e = 0;
    for (int r = 0; r < rows; r++) e = async_work_group_copy(t + r * 4, s + (g * rows + r) * width + 2, 4, e);
    wait_group_events(1, &e);
    if (get_local_id(0) < rows) d[g * rows + get_local_id(0)] = t[get_local_id(0) * 4 + 3];
}
kernel void async_vectors(global float4 *d, global const float4 *s, local float4 *t) {
    event_t e[2];
    size_t n = get_local_size(0), g = get_group_id(0);
    e[0] = async_work_group_copy(t, s + g * n, n, 0);
    e[1] = async_work_group_copy(t + n, s + (g + 1) * n, n, 0);
    wait_group_events(2, e);
    d[get_global_id(0)] = t[get_local_id(0) + 1];
}
kernel void local_plane(global int *d, global const int *s, int w) {
    local int t[6][6];
    int x = get_global_id(0), y = get_global_id(1), lx = get_local_id(0), ly = get_local_id(1);
    for (int b = ly; b < 6; b += 4) for (int a = lx; a < 6; a += 4) t[b][a] = s[(y - ly + b) * w + x - lx + a];
    barrier(CLK_LOCAL_MEM_FENCE);
    int sum = 0;
    for (int b = 0; b < 3; b++) for (int a = 0; a < 3; a++) sum += t[ly + b][lx + a];
    d[y * (w - 2) + x] = sum;
}
kernel void local_struct(global int *d, global const int *s) {
    local struct { int best; int where[4]; } t;
    int l = get_local_id(0);
    t.where[l] = s[get_global_id(0)];
    if (l == 0) t.best = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l == 0) for (int k = 0; k < 4; k++) t.best = max(t.best, t.where[k]);
    barrier(CLK_LOCAL_MEM_FENCE);
    d[get_global_id(0)] = t.best;
}
kernel void fenced_neighbour(global int *d, global int *scratch) {
    int l = get_local_id(0), g = get_group_id(0) * get_local_size(0);
    scratch[g + l] = l;
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);
    d[g + l] = scratch[g + (l ^ 1)];
}
kernel void barrier_then_other(global int *a) {
    int l = get_local_id(0), g = get_group_id(0) * 4;
    a[g + l] = l;
    barrier(CLK_GLOBAL_MEM_FENCE);
    if (l == 0) a[g + 3] = a[g] + a[g + 1];
}
kernel void barrier_in_grid_stride(global int *d, global const int *s, int n, local int *t) {
    for (int b = get_group_id(0); b < n; b += get_num_groups(0)) {
        t[get_local_id(0)] = s[b * get_local_size(0) + get_local_id(0)];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (get_local_id(0) == 0) d[b] = t[0] + t[get_local_size(0) - 1];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
kernel void every_atomic(global int *c, global uint *u, int v) {
    atomic_add(c, v); atomic_sub(c + 1, v); atomic_inc(c + 2); atomic_dec(c + 3);
    atomic_min(c + 4, (int)get_global_id(0)); atomic_max(c + 5, (int)get_global_id(0));
    atomic_and(u, ~(1u << get_global_id(0))); atomic_or(u + 1, 1u << get_global_id(0)); atomic_xor(u + 2, 1u << get_global_id(0));
}
kernel void every_old_atomic(global int *c, volatile global uint *u) {
    atom_add(c, 1); atom_sub(c + 1, 2); atom_inc(c + 2); atom_dec(c + 3); atom_min(c + 4, -(int)get_global_id(0)); atom_max(c + 5, (int)get_global_id(0));
    atom_and(u, 0xfffeu); atom_or(u + 1, 4u); atom_xor(u + 2, 3u);
}
kernel void idempotent_atomics(global int *c, global uint *u) { atomic_min(c, -(int)get_global_id(0)); atomic_max(c + 1, 5); atomic_and(u, 0xf0u); atomic_or(u + 1, 1u << get_global_id(0)); }
kernel void add_result_used(global int *c, global int *d) { d[get_global_id(0)] = atomic_add(c, 2); }
kernel void sub_result_in_condition(global int *c, global int *d) { if (atomic_sub(c, 1) > 8) d[get_global_id(0)] = 1; }
kernel void max_result_used(global int *c, global int *d) { int old = atomic_max(c, (int)get_global_id(0)); d[get_global_id(0)] = old; }
kernel void xchg_result_used(global int *c, global int *d) { int i = get_global_id(0); d[i] = atomic_xchg(c, i); }
kernel void own_cell_result_used(global int *c, global int *d) { int i = get_global_id(0); d[i] = atomic_or(c + i, 8); }
kernel void group_cell_atomic(global int *c, global const int *s) { atomic_add(c + get_group_id(0), s[get_global_id(0)]); }
kernel void atomic_then_plain(global int *c, global int *d) { int i = get_global_id(0); atomic_inc(c + i); d[i] = c[0]; }
kernel void float_add_by_exchange(global float *total, global const float *s) {
    union { float f; int i; } before, after;
    volatile global int *p = (volatile global int *)total;
    do { before.f = *total; after.f = before.f + s[get_global_id(0)]; } while (atomic_cmpxchg(p, before.i, after.i) != before.i);
}
kernel void float_exchange(global float *c) { atomic_xchg(c + get_global_id(0), 2.5f); }
kernel void local_counters(global int *d, global const int *s) {
    local int n[2];
    if (get_local_id(0) < 2) n[get_local_id(0)] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    atomic_inc(&n[s[get_global_id(0)] & 1]);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) < 2) atomic_add(d + get_local_id(0), n[get_local_id(0)]);
}
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
kernel void long_atomic(global long *c) { atom_add(c + get_global_id(0) % 2, (long)1 << 33); }
kernel void compact_in_group(global int *d, global int *counts, global const int *s) {
    local int n;
    if (get_local_id(0) == 0) n = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    int v = s[get_global_id(0)], g = get_group_id(0) * get_local_size(0);
    if (v > 500) d[g + atomic_inc(&n)] = 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) counts[get_group_id(0)] = n;
}
int summed(int x, int n) { for (int i = 0; i < n; i++) x += i * x; return x; }
typedef struct { int a; int b[4]; } four;
kernel void own_arrays_alike(global int *d, int n) {
    four s = {n, {n, 2, 3, n + 1}};
    int sizes[3] = {n, n + 1, 2};
    int total = s.a;
    local int l[4];
    if (sizes[1] > 2) { l[get_local_id(0)] = n; barrier(CLK_LOCAL_MEM_FENCE); total += l[3 - get_local_id(0)]; }
    for (int r = 0; r < sizes[0] + s.b[1]; r++) total = summed(total, s.b[r & 3]);
    d[get_global_id(0)] = total;
}
