// Guards, loops of every kind, and the arithmetic of subscripts.
kernel void nested_guards(global int *d, int lo, int hi) {
    int i = get_global_id(0);
    if (i >= lo) {
        if (i < hi && (i & 1) == 0) d[i] = i;
        else if (i >= hi || i == lo + 1) d[i] = -i;
    }
}
kernel void or_guard(global int *d, int n) { int i = get_global_id(0); if (i < 4 || i > n || !(i != 9)) d[i] = 1; }
kernel void ternary_index(global int *d, global const int *s, int n) { int i = get_global_id(0); d[i < n ? i : 2 * i - n] = s[i]; }
kernel void two_returns(global int *d, int n) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x >= n || y >= n) return;
    if (x < y) { d[y * n + x] = 1; return; }
    d[y * n + x] = 2;
}
kernel void for_down(global int *d, int n) { int r = get_global_id(0); for (int k = n - 1; k >= 0; k--) d[r * n + k] = k; }
kernel void for_step(global int *d, int n) { int r = get_global_id(0); for (int k = 1; k < n; k += 3) d[r * n + k] = k; }
kernel void for_not_equal(global int *d, int n) { int r = get_global_id(0); for (int k = 0; k != n; k++) d[r * n + k] = k; }
kernel void while_loop(global int *d, int n) { int r = get_global_id(0), k = 0; while (k < n) { d[r * n + k] = r; k += 2; } }
kernel void do_loop(global int *d, int n) { int r = get_global_id(0), k = 0; do { d[r * 8 + k] = r; k++; } while (k < n); }
kernel void count_down_post(global int *d, uint n) { uint r = get_global_id(0); for (uint k = n; k-- > 0;) d[r * n + k] = k; }
kernel void grid_stride(global float *d, global const float *s, int n) {
    for (int i = get_global_id(0); i < n; i += get_global_size(0)) d[i] = s[i] + 1.0f;
}
kernel void grid_stride_groups(global float *d, int n) {
    for (int b = get_group_id(0); b < n; b += get_num_groups(0)) d[b * get_local_size(0) + get_local_id(0)] = 2.0f;
}
kernel void geometric_up(global int *d, int n) { int r = get_global_id(0); for (int k = 1; k < n; k *= 2) d[r * n + k] = k; }
kernel void geometric_down(global int *d, int n) { int r = get_global_id(0); for (int k = n >> 1; k > 0; k >>= 1) d[r * n + k] = k; }
kernel void break_at(global int *d, int n, int stop) { int r = get_global_id(0); for (int k = 0; k < n; k++) { if (k == stop) break; d[r * n + k] = k; } }
kernel void continue_odd(global int *d, int n) { int r = get_global_id(0); for (int k = 0; k < n; k++) { if (k % 2) continue; d[r * n + k] = k; } }
kernel void flag_carried(global int *d, global const int *s, int n, int last) {
    int i = get_global_id(0);
    bool done = false;
    int value = s[i];
    for (int k = 0; k < n; k++) {
        done = false;
        if (i >= k && i < 30 - k) { done = true; value += k; }
        if (k == last) break;
    }
    if (done) d[i] = value;
}
kernel void triangular(global float *d, int n) { int r = get_global_id(0); for (int c = 0; c <= r; c++) d[r * n + c] = 1.0f; }
kernel void packed_triangle(global float *d, int n) { int r = get_global_id(0); for (int c = 0; c <= r; c++) d[r * (r + 1) / 2 + c] = r; }
kernel void nested_loops(global int *d, int a, int b) {
    int r = get_global_id(0);
    for (int i = 0; i < a; i++) for (int j = i; j < b; j += 2) d[(r * a + i) * b + j] = i + j;
}
kernel void two_counters(global int *d, int n) { int r = get_global_id(0); for (int i = 0, j = n - 1; i < j; i++, j--) { d[r * n + i] = j; d[r * n + j] = i; } }
kernel void loop_from_id(global int *d, int n) { for (int k = get_global_id(0) * 3; k < (int)get_global_id(0) * 3 + 3 && k < n; ++k) d[k] = k; }
kernel void infinite_with_break(global int *d, int n) { int r = get_global_id(0), k = 0; for (;;) { if (k >= n) break; d[r * n + k] = 4; k++; } }
kernel void data_dependent_loop(global int *d, global const int *s, int n) { int r = get_global_id(0); for (int k = 0; k < s[r]; k++) d[r * n + k] = k; }
kernel void divide_modulo(global int *d, global const int *s, int w) { int i = get_global_id(0); d[(i % w) * 8 + i / w] = s[i]; }
kernel void shift_mask(global int *d, global const int *s) { int i = get_global_id(0); d[((i & 7) << 2) | (i >> 3)] = s[i]; }
kernel void exclusive_or(global int *d, global const int *s, int m) { int i = get_global_id(0); d[i ^ m] = s[i]; }
kernel void minimum_maximum(global int *d, global const int *s, int n) { int i = get_global_id(0); d[i] = s[max(i - 3, 0)] + s[min(i + 3, n - 1)] + s[clamp(2 * i, 4, n - 1)]; }
kernel void clamped_write(global int *d, int n) { int i = get_global_id(0); d[clamp(i, 2, n)] = 7; }
kernel void unsigned_wrap(global int *d, uint n) { uint i = get_global_id(0); if (i - 1u < n - 2u) d[i] = 3; }
kernel void unsigned_offset(global int *d, uint back) { uint i = get_global_id(0); d[i + (0u - back)] = (int)i; }
kernel void uchar_narrowing(global int *d) { int i = get_global_id(0); uchar c = (uchar)(i * 16); d[c / 16 + (i / 16) * 16] = i; }
kernel void absolute_difference(global int *d, int middle) { int i = get_global_id(0); d[abs(i - middle)] = middle; }
kernel void remainder_of_negative(global int *d, global const int *s, int n) { int i = get_global_id(0); int k = (i - 5) % n; d[i] = s[k < 0 ? k + n : k]; }
kernel void bit_reversal(global int *d, global const int *s) {
    uint i = get_global_id(0), r = 0;
    for (int b = 0; b < 5; b++) r |= ((i >> b) & 1u) << (4 - b);
    d[r] = s[i];
}
kernel void switch_cases(global int *d, global const int *s, int mode) {
    int i = get_global_id(0);
    switch (mode) {
        case 0: d[i] = s[i]; break;
        case 1: d[2 * i] = s[i];
        case 2: d[2 * i + 1] = -s[i]; break;
        default: return;
    }
}
kernel void switch_on_id(global int *d) {
    int i = get_global_id(0);
    switch (i % 4) { case 0: d[i] = 1; break; case 2: case 3: d[i] = 2; break; default: break; }
}
kernel void goto_forward(global int *d, int n) { int i = get_global_id(0); if (i >= n) goto end; d[i] = i; end: return; }
kernel void goto_backward(global int *d, int n) { int r = get_global_id(0), k = 0; again: if (k < n) { d[r * n + k] = k; k++; goto again; } }
kernel void private_array_index(global int *d, global const int *s, int w) {
    int ix[2];
    ix[0] = get_global_id(0);
    ix[1] = get_global_id(1);
    d[ix[1] * w + ix[0]] = s[ix[1] * w + ix[0]];
}
kernel void private_window(global int *d, global const int *s, int n) {
    int i = get_global_id(0), w[5];
    for (int k = 0; k < 5; k++) w[k] = s[min(max(i + k - 2, 0), n - 1)];
    int best = w[0];
    for (int k = 1; k < 5; k++) best = max(best, w[k]);
    d[i] = best;
}
constant int offsets[4] = {0, 3, 1, 2};
kernel void constant_table(global int *d) { int i = get_global_id(0); d[(i & ~3) + offsets[i & 3]] = i; }
kernel void scatter(global int *d, global const int *where, global const int *s) { int i = get_global_id(0); d[where[i]] = s[i]; }
kernel void gather(global int *d, global const int *where, global const int *s) { int i = get_global_id(0); d[i] = s[where[i]]; }
kernel void scatter_permutation(global int *d, global const int *where) { int i = get_global_id(0); d[where[i]] = i; }
kernel void conditional_on_data(global int *d, global const int *s) { int i = get_global_id(0); if (s[i] > 500) d[i] = s[i]; }
kernel void logic_reads(global int *d, global const int *a, global const int *b, int n) { int i = get_global_id(0); d[i] = i < n && a[i] > 3 || b[i] == 2 ? 5 : 6; }
kernel void comma_and_chain(global int *d, global int *e, int n) { int i = get_global_id(0); int k = (i += n, i - 1); d[k] = e[k - n + 1] = i; }
kernel void long_subscripts(global int *d, long base) { long i = (long)get_global_id(0) + base; d[i - base / 2] = 8; }
kernel void by_size_t(global int *d, ulong n) { for (size_t k = get_global_id(0) * n, e = k + n; k != e; ++k) d[k] = (int)k; }
kernel void float_to_subscript(global int *d, float f) { int i = get_global_id(0); d[(int)(f * 2.0f) + i] = i; }
kernel void three_dimensions(global int *d, int nx, int ny, int nz) {
    int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    if (x > 0 && x < nx - 1 && y < ny && z < nz) d[(z * ny + y) * nx + x] = x + y + z;
}
kernel void linear_from_three(global int *d) { d[(get_global_id(2) * get_global_size(1) + get_global_id(1)) * get_global_size(0) + get_global_id(0)] = 1; }
kernel void only_column_splits(global int *d, int w) { int y = get_global_id(1); d[y] = w; }
kernel void diagonal(global int *d, int n) { int x = get_global_id(0), y = get_global_id(1); if (x == y) d[x * n + y] = x; }
