// Loops of every step, condition and nesting, and the ways out of them.
kernel void unrolled_by_four(global int *d, int n) {
    int r = get_global_id(0), k = 0;
    for (; k + 4 <= n; k += 4) {
        d[r * n + k] = k;
        d[r * n + k + 1] = k;
        d[r * n + k + 2] = k;
        d[r * n + k + 3] = k;
    }
    for (; k < n; ++k) d[r * n + k] = -k;
}
kernel void down_by_three(global int *d, int n) { int r = get_global_id(0); for (int k = n - 1; k >= 0; k -= 3) d[r * n + k] = k; }
kernel void not_equal_down(global int *d, int n) { int r = get_global_id(0); for (int k = n; k != 0; --k) d[r * n + k - 1] = k; }
kernel void not_equal_by_two(global int *d, int n) { int r = get_global_id(0); for (int k = 0; k != 2 * n; k += 2) d[r * 2 * n + k] = k; }
kernel void not_equal_by_minus_five(global int *d, int n) { int r = get_global_id(0); for (int k = 5 * n; k != 0; k += -5) d[r * 5 * n + k - 5] = k; }
kernel void while_before(global int *d, uint n) { uint r = get_global_id(0), k = n; while (k) { --k; d[r * n + k] = k; } }
kernel void while_after(global int *d, ulong n) { size_t r = get_global_id(0), k = n; while (k--) d[r * n + k] = (int)k; }
kernel void while_counts_up(global int *d, int n) { int r = get_global_id(0), k = 0; while (k++ < n) d[r * n + k - 1] = k; }
kernel void do_down(global int *d, int n) { int r = get_global_id(0), k = n; do { --k; d[r * n + k] = k; } while (k > 0); }
kernel void do_by_two(global int *d, int n) { int r = get_global_id(0), k = 1; do d[r * n + k] = k; while ((k += 2) < n); }
kernel void unsigned_until_wrap(global int *d, uint n) { uint r = get_global_id(0); for (uint k = n - 1; k < n; --k) d[r * n + k] = k; }
kernel void countdown_by_two(global int *d, uint n) { uint r = get_global_id(0); for (uint k = n; k > 1; k -= 2) d[r * n + k - 2] = k; }
kernel void halving(global int *d, int n) { int r = get_global_id(0); for (int k = n; k > 1; k /= 2) d[r * n + k - 1] = k; }
kernel void tripling(global int *d, uint n) { uint r = get_global_id(0); for (uint k = 1; k <= n; k *= 3) d[r * n + k - 1] = k; }
kernel void shifting_up(global int *d, int n) { int r = get_global_id(0); for (int k = 1; k <= n; k <<= 1) d[r * n + k - 1] = k; }
kernel void shifting_down_by_two(global int *d, uint n) { uint r = get_global_id(0); for (uint k = n; k; k >>= 2) d[r * n + k - 1] = k; }
kernel void halving_with_inner(global int *d, int n) {
    int r = get_global_id(0), at = 0;
    for (int k = n / 2; k > 0; k >>= 1) {
        for (int j = 0; j < k; j++) d[r * n + at + j] = k;
        at += k;
    }
}
kernel void lower_triangle_of_triangle(global int *d, int n) {
    int r = get_global_id(0);
    for (int i = 0; i <= r; i++) for (int j = 0; j < i; j++) d[(r * n + i) * n + j] = i - j;
}
kernel void upper_triangle(global float *d, int n) { int r = get_global_id(0); for (int c = r; c < n; c++) d[r * n + c] = c; }
kernel void band(global float *d, global const float *s, int n, int width) {
    int r = get_global_id(0);
    for (int c = max(0, r - width); c <= min(n - 1, r + width); c++) d[r * n + c] = s[c * n + r];
}
kernel void tiled_loops(global int *d, int n, int tile) {
    int r = get_global_id(0);
    for (int t = 0; t < n; t += tile) for (int k = t; k < min(t + tile, n); k++) d[r * n + k] = t;
}
kernel void skewed_loops(global int *d, int n) {
    int r = get_global_id(0);
    for (int t = 0; t < 2 * n - 1; t++) for (int i = max(0, t - n + 1); i <= min(t, n - 1); i++) d[(r * n + i) * n + t - i] = t;
}
kernel void return_in_loop(global int *d, int n, int stop) {
    int r = get_global_id(0);
    for (int k = 0; k < n; k++) {
        if (k == stop) return;
        d[r * (n + 1) + k] = k;
    }
    d[r * (n + 1) + n] = -1;
}
kernel void return_by_id(global int *d, int n) {
    int r = get_global_id(0);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < n; j++) {
            if (i * n + j > r) return;
            d[(r * 3 + i) * n + j] = r;
        }
}
kernel void break_inner(global int *d, int n) {
    int r = get_global_id(0);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            if (j > i) break;
            d[(r * n + i) * n + j] = i;
        }
}
kernel void break_by_id(global int *d, int n) {
    int r = get_global_id(0);
    for (int k = 0; k < n; k++) {
        d[r * n + k] = k;
        if (k >= r) break;
    }
}
kernel void break_on_data(global int *d, global const int *s, int n) {
    int r = get_global_id(0);
    for (int k = 0; k < n; k++) {
        if (s[r * n + k] > 700) break;
        d[r * n + k] = k;
    }
}
kernel void continue_in_while(global int *d, int n) {
    int r = get_global_id(0), k = 0;
    while (k < n) {
        k++;
        if (k % 3 == 0) continue;
        d[r * n + k - 1] = k;
    }
}
kernel void continue_by_id(global int *d, int n) { int r = get_global_id(0); for (int k = 0; k < n; k++) { if (((k + r) & 3) == 1) continue; d[r * n + k] = k; } }
kernel void continue_in_do(global int *d, int n) { int r = get_global_id(0), k = -1; do { k++; if (k == 2) continue; d[r * (n + 1) + k] = k; } while (k < n); }
kernel void no_iteration(global int *d, int from, int to) { int r = get_global_id(0); for (int k = from; k < to; k++) d[k] = k; d[r] = r; }
kernel void group_strided_rows(global int *d, int n) { int g = get_group_id(0); for (int k = get_local_id(0); k < n; k += get_local_size(0)) d[g * n + k] = k; }
kernel void grid_stride_plane(global int *d, int w, int h) {
    for (int y = get_global_id(1); y < h; y += get_global_size(1))
        for (int x = get_global_id(0); x < w; x += get_global_size(0)) d[y * w + x] = x - y;
}
kernel void grid_stride_down(global int *d, int n) { for (int i = n - 1 - (int)get_global_id(0); i >= 0; i -= (int)get_global_size(0)) d[i] = i; }
kernel void grid_stride_while(global int *d, global const int *s, uint n) { uint i = get_global_id(0), all = get_global_size(0); while (i < n) { d[i] = s[n - 1 - i]; i += all; } }
kernel void carried_index(global int *d, int n, int step) { int at = get_global_id(0) * n * step; for (int k = 0; k < n; k++) { d[at] = k; at += step; } }
kernel void carried_ring(global int *d, int n) { int r = get_global_id(0), at = r % n; for (int k = 0; k < n - 1; k++) { d[r * n + at] = k; at = (at + 1) % n; } }
kernel void carried_pair(global int *d, int n) { int r = get_global_id(0), a = 1, b = 2; while (a < n) { d[r * n + a] = b; int t = a + b; a = b; b = t; } }
kernel void carried_square(global int *d, int n) { int r = get_global_id(0); for (int k = 0; k * k < n; k++) d[r * n + k * k] = k; }
kernel void while_flag(global int *d, int n) { int r = get_global_id(0), k = 0; bool more = n > 0; while (more) { d[r * n + k] = k; k += 2; more = k < n; } }
kernel void both_conditions(global int *d, int n, int m) { int r = get_global_id(0); for (int k = 0; k < n && k < m + r; k++) d[r * n + k] = k; }
kernel void either_condition(global int *d, int n, int m) { int r = get_global_id(0); for (int k = 0; k < m || k < r; k++) d[r * n + k] = k; }
kernel void counter_after_loop(global int *d, int n) { int r = get_global_id(0), k; for (k = 0; k < n; k += 3) ; d[r * (n + 3) + k] = k; }
kernel void counter_assigned_inside(global int *d, int n) { int r = get_global_id(0); for (int k = 0; k < n; k++) { d[r * n + k] = k; if (k == 2) k = 4; } }
kernel void pointer_loop(global int *d, int n) { global int *row = d + get_global_id(0) * n; for (global int *p = row; p != row + n; ++p) *p = n; }
kernel void pointer_loop_down(global int *d, int n) { global int *row = d + get_global_id(0) * n, *p = row + n; while (p > row) *--p = (int)(p - row); }
kernel void uchar_counter(global int *d, int n) { int r = get_global_id(0); for (uchar k = 0; k < n; k++) d[r * n + k] = k; }
kernel void short_counter(global int *d, short n) { int r = get_global_id(0); for (short k = n - 1; k >= 0; k--) d[r * n + k] = k; }
kernel void long_counter(global int *d, long n) { long r = get_global_id(0); for (long k = n - 1; k > -1; --k) d[r * n + k] = (int)k; }
kernel void float_counter(global int *d) { int r = get_global_id(0), k = 0; for (float x = 0.0f; x < 1.0f; x += 0.25f) d[r * 4 + k++] = (int)(x * 8.0f); }
kernel void bound_from_memory(global int *d, global const int *n) { int r = get_global_id(0); for (int k = 0; k < n[0]; k++) d[r * 6 + k] = k; }
kernel void switch_in_loop(global int *d, int n) {
    int r = get_global_id(0);
    for (int k = 0; k < n; k++) {
        switch (k % 4) {
            case 0: continue;
            case 1: d[r * n + k] = 1; break;
            case 2: if (r & 1) break; d[r * n + k] = 2;
            default: d[r * n + k] += 3;
        }
    }
}
kernel void goto_out_of_loops(global int *d, int n) {
    int r = get_global_id(0);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            if (i + j == n) goto done;
            d[(r * n + i) * n + j] = 1;
        }
done:
    d[r * n * n + n * n - 1] = 2;
}
kernel void barrier_loop(global int *d, global const int *s, int steps, local int *t) {
    int l = get_local_id(0), m = get_local_size(0);
    t[l] = s[get_global_id(0)];
    for (int k = 0; k < steps; k++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        int v = t[(l + 1) % m];
        barrier(CLK_LOCAL_MEM_FENCE);
        t[l] = v + 1;
    }
    d[get_global_id(0)] = t[l];
}
