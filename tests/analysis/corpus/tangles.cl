// Control flow and values tangled as badly as the language allows: what an abstract run could get wrong.
kernel void first_pass_only(global int *d, int n) { int r = get_global_id(0) * n; bool first = true; for (int k = 0; k < n; k++) { if (first) d[r + k] = 1; first = false; } }
kernel void first_pass_skipped(global int *d, int n) { int r = get_global_id(0) * n; int last = n; for (int k = 0; k < n; k++) { if (k == 2) { last = 1; continue; } if (last == 1) d[r + k] = k; } }
kernel void two_steps(global int *d, int n) { int i = 0, r = get_global_id(0) * n; while (i < n) { if (i & 1) { i += 3; continue; } d[r + i] = i; i++; } }
kernel void bound_in_condition(global int *d, int n) { int i = 0, j = n, r = get_global_id(0) * (n + 2); while (i++ < n && j-- > 2) d[r + i] = j; d[r + i] = 7; }
kernel void unsigned_down_past_zero(global int *d, uint n) { uint r = get_global_id(0) * n; for (uint i = n - 1; i < n; i--) d[r + i] = i; }
kernel void byte_comes_around(global int *d) { int r = get_global_id(0) * 256; for (uchar c = 250; c != 4; c++) d[r + c] = c; }
kernel void short_comes_around(global int *d) { int g = get_global_id(0); short s = (short)(g * 20000); if (s >= 0 && s < 40) d[s] = 1; d[40 + g] = s; }
void step_on(int *i, int by) { *i += by; }
kernel void stepped_by_helper(global int *d, int n) { int r = get_global_id(0) * n; for (int i = 0; i < n; step_on(&i, 2)) d[r + i] = i; }
kernel void stepped_twice(global int *d, int n) { int r = get_global_id(0) * n; for (int i = 0; i < n; i++) { d[r + i] = i; step_on(&i, r & 1); } }
int find_in_rows(int g, int n) { for (int a = 0; a < n; a++) for (int b = 0; b <= a; b++) if (a * b == g + 2) return a * n + b; return 1; }
kernel void returned_from_two_loops(global int *d, int n) { int g = get_global_id(0); d[g * n * n + find_in_rows(g, n)] = g; }
kernel void do_with_continue(global int *d, int n) { int i = 0, r = get_global_id(0) * (n + 1); do { i++; if (i == 3) continue; d[r + i] = i; } while (i < n); }
kernel void assigned_in_condition(global int *d, int n) { int i = get_global_id(0), j; if ((j = i * 2) < n) d[j] = i; else d[n + i] = j; }
kernel void changed_through_pointer(global int *d) { int a = 1, b = 2; int *p = &a; int i = get_global_id(0); if (i & 1) p = &b; *p = 5; d[i * 8 + a] = 1; d[i * 8 + b] = 2; }
kernel void filled_through_pointer(global int *d) { int t[4] = {9, 9, 9, 9}; int *p = t; int i = get_global_id(0); for (int k = 0; k < 4; k++) *p++ = 3 - k; d[i * 10 + t[1]] = 1; d[i * 10 + t[3]] = 2; }
kernel void overwritten_table(global int *d, int n) { int t[2] = {0, 0}, i = get_global_id(0); for (int k = 0; k < n; k++) t[k & 1] = k + 1; d[i * 8 + t[0]] = 1; d[i * 8 + t[1]] = 2; }
kernel void lanes_in_loop(global int *d, int n) { int4 v = (int4)(0, 1, 2, 3); int i = get_global_id(0); for (int k = 0; k < n; k++) { v.x += 2; v.yz = v.zy; } d[i * 16 + v.x] = 1; d[i * 16 + v.y] = 2; }
typedef struct { int at; int by; } cursor;
kernel void record_in_loop(global int *d, int n) { cursor c = {1, 2}; int i = get_global_id(0); for (int k = 0; k < n; k++) { d[i * 16 + c.at] = k; c.at += c.by; } d[i * 16 + c.at] = 9; }
kernel void break_after_change(global int *d, int n) { int i = get_global_id(0), k, m = 0; for (k = 0; k < n; k++) { m = k; if (k == i) break; m = 5; } d[i * 8 + k] = 1; d[i * 8 + m] = 2; }
kernel void break_out_of_switch(global int *d, int n) { int i = get_global_id(0), m = 6; for (int k = 0; k < n; k++) { switch (k) { case 1: m = 1; break; case 3: m = 3; continue; default: m = 0; } d[i * 8 + m] = k; } d[i * 8 + m + 4] = 9; }
kernel void nested_breaks(global int *d, int n) { int i = get_global_id(0), j = 0, k = 0; for (j = 0; j < n; j++) { for (k = 0; k < n; k++) { if (k + j == i) break; d[(i * n + j) * n + k] = 1; } if (k == 0) break; } }
kernel void selected_by_nonzero(global int *d) { int i = get_global_id(0); d[select(i, i + 16, i & 2)] = 1; }
kernel void selected_by_sign(global int *d) { int i = get_global_id(0); int2 v = select((int2)(i, i), (int2)(i + 16, i + 16), (int2)(i & 2, -(i & 1))); d[v.x] = 1; d[v.y + 32] = 2; }
kernel void hashed_long(global int *d) { ulong i = get_global_id(0); d[(i * 0x9E3779B97F4A7C15ul) >> 59] = 1; }
kernel void hashed_int(global int *d) { uint i = get_global_id(0); i = i * 747796405u + 2891336453u; d[i >> 27] = 1; }
kernel void hashed_rounds(global int *d, int n) { uint h = get_global_id(0); for (int k = 0; k < n; k++) h = h * 1664525u + 1013904223u; d[h >> 28] = 1; }
kernel void negative_division(global int *d, int n) { int i = (int)get_global_id(0) - 8; d[16 + i / 3] = 1; d[32 + i % 3] = 2; d[48 + (i >> 1)] = 3; d[64 + i / -3] = 4; d[80 + (i & 7)] = 5; d[96 - i % -5] = 6; }
kernel void signed_bytes(global int *d) { char c = (char)(get_global_id(0) * 37); d[c + 128] = c; }
kernel void mixed_comparison(global int *d) { int i = (int)get_global_id(0) - 4; uint u = 3; if (i < u) d[i + 4] = 1; if (i > -1) d[i + 20] = 2; if (i < sizeof(int)) d[i + 40] = 3; }
kernel void counted_conditions(global int *d, int n) { int i = get_global_id(0); d[i * 4 + (i < n) + (i > 3) + !(i & 1)] = i; }
kernel void short_circuit_effects(global int *d, int n) { int i = get_global_id(0), j = 0; if (i > 3 && j++ < n || j-- > -5) d[i * 8 + j + 2] = 1; bool b = i & 1 || (j += 3); d[i * 8 + j + 2] = b; }
kernel void conditional_effects(global int *d) { int i = get_global_id(0), a = 0, b = 4; int v = i & 1 ? a++ : (b -= 2); d[i * 8 + a] = v; d[i * 8 + b] = v; }
kernel void pointer_in_condition(global int *d, global int *e, int n) { int i = get_global_id(0); global int *p = d, *q = e; for (int k = 0; k < n; k++) { p[i] = k; global int *t = p; p = q; q = t; } }
kernel void triangular_break(global int *d, int n) { int i = get_global_id(0); for (int a = 0; a < n; a++) { if (a > i) break; for (int b = a; b < n; b += a + 1) d[(i * n + a) * n + b] = 1; } }
kernel void minimum_of_unsigned(global int *d, uint n) { uint i = get_global_id(0); d[min(i - 3u, n)] = 1; d[max(i, 5u) - 5u] = 2; }
kernel void loop_on_group(global int *d, int n) { for (int k = get_group_id(0); k < n; k += get_num_groups(0)) if (get_local_id(0) == k % 4) d[k] = 1; }
kernel void changed_bound(global int *d, int n) { int i = get_global_id(0), m = n; for (int k = 0; k < m; k++) { d[i * n + k] = 1; if (k == 2) m = 4; } }
kernel void copied_then_changed(global int *d, int n) { int i = get_global_id(0), old = 0, now = 1; for (int k = 0; k < n; k++) { d[i * 32 + old] = k; old = now; now += k; } }
kernel void returns_in_loop(global int *d, int n) { int i = get_global_id(0); for (int k = 0; k < n; k++) { d[i * n + k] = 1; if (k * 2 == i) return; } d[i * n + n - 1] = 9; }
kernel void returns_by_data(global int *d, global const int *s, int n) { int i = get_global_id(0); for (int k = 0; k < n; k++) { if (s[i * n + k] > 900) return; d[i * n + k] = 1; } d[i * n] = 9; }
kernel void zero_trips(global int *d, int n) { int i = get_global_id(0), k = 5; for (k = 3; k < n; k++) d[i * 8 + k] = 1; d[i * 8 + k] = 2; }
kernel void grid_stride_tail(global int *d, int n) { int k = get_global_id(0); for (; k < n; k += get_global_size(0)) d[k] = 1; if (k < n + 4) d[k] = 2; }
// jumps that are not followed
// its continue belongs to the loop around it
kernel void goto_in_loop(global int *d, int n) {
    int r = get_global_id(0);
    for (int i = 0; i < n; i++) {
        int t = 0;
    again:
        d[(r * n + i) * 4 + t] = 1;
        t++;
        if (t == 2 && i % 2) continue;
        if (t < 4) goto again;
    }
}
kernel void goto_into_loop(global int *d, int n) {
    int r = get_global_id(0), k = 0;
    if (r & 1) goto middle;
top:
    d[r * 16 + k] = 1;
middle:
    k++;
    d[r * 16 + 8 + k] = 2;
    if (k < n) goto top;
}
kernel void goto_into_block(global int *d, int n) {
    int i = get_global_id(0);
    if (i > n) goto inside;
    if (i & 1) {
        d[i] = 1;
    inside:
        d[i + 16] = 2;
    }
}
