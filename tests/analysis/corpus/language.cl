// The language: functions, structs, unions, pointers, switches, qualifiers, macros, tables, launches in several dimensions.
int plus_one(int i) { return i + 1; }
int plus_two(int i) { return plus_one(plus_one(i)); }
int plus_four(int i) { return plus_two(plus_two(i)); }
int plus_eight(int i) { return plus_four(plus_four(i)); }
int plus_sixteen(int i) { return plus_eight(plus_eight(i)); }
kernel void deep_helpers(global int *d) { d[plus_sixteen(get_global_id(0))] = plus_eight(0); }
void store_one(global int *p, int at) { p[at] = 1; }
void store_two(global int *p, int at) { store_one(p, at); store_one(p + 1, at); }
void store_four(global int *p, int at) { store_two(p, 2 * at); store_two(p + 32, 2 * at); }
kernel void deep_pointers(global int *d) { store_four(d + 1, get_global_id(0)); }
void split_linear(int i, int w, int *x, int *y) { *x = i % w; *y = i / w; }
void neighbour(int i, int w, int *at) { int x, y; split_linear(i, w, &x, &y); *at = y * w + (x + 1) % w; }
kernel void nested_out_parameters(global int *d, int w) { int at; neighbour(get_global_id(0), w, &at); d[at] = w; }
void swap_values(int *a, int *b) { int t = *a; *a = *b; *b = t; }
kernel void swapped_by_helper(global int *d, int w) { int x = get_global_id(0), y = get_global_id(1); swap_values(&x, &y); d[x * w + y] = x; }
void advance(global int **p, int by) { *p += by; }
kernel void pointer_to_pointer(global int *d, int n) { global int *p = d; advance(&p, (int)get_global_id(0) * n); advance(&p, 1); *p = n; }
void fill_private(int *t, int n) { for (int k = 0; k < n; k++) t[k] = 2 * k; }
kernel void private_filled_by_helper(global int *d) { int t[4]; fill_private(t, 4); d[(int)get_global_id(0) * 8 + t[3]] = t[1]; }
int first_above(global const int *s, int n, int limit) { for (int k = 0; k < n; k++) if (s[k] > limit) return k; return -1; }
kernel void searched_by_helper(global int *d, global const int *s, int n) { int r = get_global_id(0); d[r] = first_above(s + r * n, n, 600); }
static inline int only_even(int i) { if (i & 1) return -1; return i / 2; }
kernel void helper_returns_early(global int *d) { int at = only_even(get_global_id(0)); if (at >= 0) d[at] = 1; }
int2 place(int i, int w) { return (int2)(i % w, i / w); }
kernel void helper_returns_vector(global int *d, int w, int h) { int2 p = place(get_global_id(0), w); d[p.x * h + p.y] = p.x; }
typedef struct { int lo, hi; } interval;
interval chunk(int i, int n, int all) { interval r; r.lo = i * n; r.hi = min(all, r.lo + n); return r; }
kernel void helper_returns_struct(global int *d, int n, int all) { interval r = chunk(get_global_id(0), n, all); for (int k = r.lo; k < r.hi; k++) d[k] = n; }
void helper_with_local(local int *t, int l, int v) { t[l] = v; barrier(CLK_LOCAL_MEM_FENCE); }
kernel void local_by_helper(global int *d, global const int *s, local int *t) { int l = get_local_id(0), m = get_local_size(0); helper_with_local(t, l, s[get_global_id(0)]); d[get_global_id(0)] = t[m - 1 - l]; }
typedef struct { int n; int step; float by; } settings;
kernel void struct_argument(global float *d, settings s) { int i = get_global_id(0); if (i < s.n) d[i * s.step] = s.by; }
typedef struct { int shape[3]; short first; short last; } box;
kernel void struct_array_argument(global int *d, const box b) { int x = get_global_id(0), y = get_global_id(1); if (x < b.shape[0] && y < b.shape[1] && x >= b.first) d[y * b.shape[2] + x + b.last] = 1; }
typedef struct { settings inner; int2 origin; } nested;
kernel void nested_struct_argument(global float *d, nested s) { int i = get_global_id(0); s.inner.n -= s.origin.x; if (i < s.inner.n) d[i + s.origin.y] = s.inner.by; }
kernel void struct_variable(global int *d, int n) { interval a = {1, n}, b = a; b.lo += get_global_id(0); a.hi = b.lo + 1; if (b.lo < b.hi) d[a.hi] = a.lo; }
kernel void struct_through_pointer(global int *d, int n) { interval a; interval *p = &a; p->lo = (int)get_global_id(0) * n; p->hi = p->lo + n; for (int k = p->lo; k < (*p).hi; k += 2) d[k] = n; }
union pun { int word; uchar part[4]; };
kernel void union_subscript(global int *d) { union pun u; u.word = get_global_id(0) * 0x101; d[u.part[1]] = u.part[0]; }
union shape { float4 v; float a[4]; };
kernel void union_vector_array(global float *d, global const float4 *s) { union shape u; int i = get_global_id(0); u.v = s[i]; for (int k = 0; k < 4; k++) d[4 * i + 3 - k] = u.a[k]; }
kernel void pointer_ping_pong(global int *a, global int *b, int steps) {
    int i = get_global_id(0);
    global int *from = a, *to = b;
    for (int k = 0; k < steps; k++) { to[i] = from[i] + 1; global int *t = from; from = to; to = t; }
}
kernel void pointer_conditional_store(global int *a, global int *b, int n) { int i = get_global_id(0); *(i < n ? &a[i] : &b[i - n]) = i; }
kernel void pointer_conditional_read(global int *d, global const int *a, global const int *b, int n) { int i = get_global_id(0); global const int *p = i < n ? a + 1 : b; d[i] = p[i]; }
kernel void pointer_difference(global int *d, int n) { global int *p = d + n + get_global_id(0), *q = d + 2; d[p - q] = 1; }
kernel void pointer_compared(global int *d, int n) { global int *p = d + get_global_id(0) * 3; if (p < d + n && p != d) *p = n; }
kernel void pointer_conditional_step(global int *d) { int i = get_global_id(0); global int *p = d + 2 * i; if (i % 3 == 0) p++; *p = i; }
kernel void pointer_inside(global int *d) { global int *p = &d[5]; int i = get_global_id(0); p[i - 5] = i; }
kernel void pointer_negative(global int *d, int n) { global int *last = d + n - 1; last[-(int)get_global_id(0)] = n; }
kernel void subscript_reversed(global int *d) { size_t i = get_global_id(0); i[d] = 3; *(i + 20 + d) = 4; }
kernel void rows_of_three(global int *d, int n) { int i = get_global_id(0); global int (*m)[4][3] = (global int (*)[4][3])d; for (int k = 0; k < n; k++) m[i][k][2] = k; }
kernel void rows_parameter(global int (*m)[5], int column) { m[get_global_id(0)][column] = column; }
kernel void halves_of_words(global int *d) { int i = get_global_id(0); global short *p = (global short *)d; p[2 * i + 1] = 7; }
kernel void words_of_halves(global short *d) { int i = get_global_id(0); ((global int *)(d + 4))[i] = i; }
kernel void cast_chain(global float *d, int pitch) { int i = get_global_id(0); global float4 *p = (global float4 *)((global char *)d + (size_t)i * pitch); p[1] = (float4)(i); (*p).y = 0.0f; }
kernel void cast_to_inner_struct(global int *d) { global interval *p = (global interval *)(d + 2); p[get_global_id(0)].hi = 1; }
typedef struct { float position[3]; float mass; interval cells; } body;
kernel void struct_walk(global body *b, int n) { global body *p = b + get_global_id(0) * n; for (global body *q = p; q < p + n; q++) { q->mass = 1.0f; q->cells.lo = 2; } }
kernel void struct_copy_member(global body *d, global const body *s) { int i = get_global_id(0); d[i].cells = s[i + 1].cells; d[i].position[i % 3] = s[i].mass; }
kernel void pointer_through_integer(global int *d) { size_t at = (size_t)d; at += get_global_id(0) * 8; *(global int *)at = 1; }
kernel void fallthrough_everywhere(global int *d, int from) {
    int i = get_global_id(0);
    switch (from) {
        case 3: d[4 * i + 3] = 3;
        case 2: d[4 * i + 2] = 2;
        default: d[4 * i] = 9;
        case 1: d[4 * i + 1] = 1;
    }
}
kernel void switch_ranges(global int *d) {
    int i = get_global_id(0), at;
    switch (i / 4) {
        case 0: at = i; break;
        case 1: case 2: at = i + 16; break;
        default: at = i - 4; break;
    }
    d[at] = i;
}
kernel void switch_nested(global int *d, int a) {
    int i = get_global_id(0);
    switch (a) { case 1: switch (i & 1) { case 0: d[i] = 1; break; default: d[i + 16] = 2; } break; case 2: d[i] = 3; }
}
kernel void switch_unsigned_char(global int *d, uchar mode) { uchar i = get_global_id(0); switch ((uchar)(i + mode)) { case 0: d[i] = 1; break; case 255: d[i] = 2; break; case 3: d[i + 16] = 3; } }
kernel void volatile_output(volatile global int *d, int n) { int i = get_global_id(0); d[i] = n; d[i] = d[i] + 1; }
kernel void restricted(global int *restrict d, const global int *restrict s, int n) { int i = get_global_id(0); d[i] = s[i] + s[i + n]; }
kernel void old_qualifiers(__global volatile int *__restrict d, const __global int *const s, __constant int *c) { size_t i = get_global_id(0); d[i] = c[0] + s[i]; }
#define FOR(k, n) for (int k = 0; k < (n); ++k)
#define STORE(p, at, v) do { (p)[at] = (v); } while (0)
#define JOIN(a, b) a##b
#define AT(x, y) ((y) * width + (x))
kernel void macros(global int *d, int width) { int JOIN(ro, w) = get_global_id(0); FOR(k, width) { if (k & 1) STORE(d, AT(k, row), k); else STORE(d, AT(k, row), -k); } }
#define PASS(type, name, expression) kernel void name(global type *d, global const type *s) { int i = get_global_id(0); type v = s[i]; d[i] = expression; }
PASS(int, generated_square, v * v)
PASS(float, generated_half, v * 0.5f)
#undef AT
kernel void shadowed(global int *d, int n) { int i = get_global_id(0); { int i = 5; d[n + i] = i; for (int n = 0; n < 2; n++) { int d = n; i += d; } } if (i >= 0) d[i] = n; }
constant int corners[3][2] = {{0, 0}, {1, 0}, {1, 2}};
kernel void constant_table_2d(global int *d, int w) { int i = get_global_id(0); for (int k = 0; k < 3; k++) d[i * 3 * w + corners[k][1] * w + corners[k][0]] = k; }
constant interval pieces[2] = {{0, 3}, {5, 8}};
kernel void constant_struct_table(global int *d) { int i = get_global_id(0); for (int k = pieces[i & 1].lo; k < pieces[i & 1].hi; k++) d[i * 8 + k] = i; }
constant int stride_constant = 3;
kernel void constant_scalar(global int *d) { d[get_global_id(0) * stride_constant] = stride_constant; }
kernel void private_table(global int *d) { const int order[4] = {2, 0, 3, 1}; int i = get_global_id(0); for (int k = 0; k < 4; k++) d[4 * i + order[k]] = k; }
kernel void private_plane(global int *d) { int t[2][3], i = get_global_id(0); for (int a = 0; a < 2; a++) for (int b = 0; b < 3; b++) t[a][b] = b * 2 + a; d[6 * i + t[1][2]] = t[0][1]; d[6 * i + t[0][0]] = 1; }
kernel void private_structs(global int *d) { interval t[2]; t[0].lo = 1; t[1].lo = 3; t[0].hi = t[1].hi = get_global_id(0); d[t[1].hi * 4 + t[1].lo] = t[0].lo; }
kernel void private_by_id(global int *d, int n) { int t[4] = {0, 5, 10, 15}, i = get_global_id(0); t[i & 3] = n; d[i * 16 + t[2]] = i; }
kernel void comma_subscript(global int *d) { int k; d[(k = get_global_id(0), k += 2, k * 2)] = (k, 7); }
kernel void assigned_in_both_conditions(global int *d) { int i = get_global_id(0), k; if ((k = i - 4) > 0) d[k] = i; else if ((k += 20) != 17) d[k] = i; }
kernel void side_effects_in_and(global int *d, int n) { int i = get_global_id(0), k = i; if (k++ > 3 && k++ < n) d[k] = i; else d[40 + k] = i; }
kernel void side_effects_in_or(global int *d) { int i = get_global_id(0), k = 2 * i; (i & 1) || (k += 1); d[k] = i; }
kernel void guarded_reads(global int *d, global const int *s, int n) { int i = get_global_id(0); d[i] = i > 0 && s[i - 1] > 500 && i + 1 < n && s[i + 1] > 100; }
kernel void two_guards_one_read(global int *d, global const int *s, int n) { int i = get_global_id(0); bool inside = i >= 2 && i < n; int at = inside ? i : 2; if (inside) d[i - 2] = s[at - 2] + s[at]; }
kernel void increments_in_subscripts(global int *d, global const int *s) { int k = 3 * get_global_id(0), j = k; d[k++] = s[j]; d[k++] = s[++j]; d[--k + 1] = s[j--]; }
kernel void chained_assignment(global int *a, global int *b, int n) { int i = get_global_id(0), x, y; x = y = i + n; a[x] = b[y - n] = x - y; }
kernel void group_ids_of_all(global int *d) {
    size_t g = (get_group_id(2) * get_num_groups(1) + get_group_id(1)) * get_num_groups(0) + get_group_id(0);
    size_t l = (get_local_id(2) * get_local_size(1) + get_local_id(1)) * get_local_size(0) + get_local_id(0);
    d[g * get_local_size(0) * get_local_size(1) * get_local_size(2) + l] = (int)g;
}
kernel void offsets_of_all(global int *d, int w) { size_t x = get_global_id(0) - get_global_offset(0), y = get_global_id(1) - get_global_offset(1); d[y * w + x] = (int)(get_global_id(0) + 100 * get_global_id(1)); }
kernel void absent_dimensions(global int *d) { d[get_global_id(0) * get_global_size(2) + get_global_id(1) + get_local_size(1) + get_group_id(2) + get_num_groups(1) + get_global_offset(1)] = get_work_dim(); }
kernel void dimension_in_variable(global int *d) { size_t at = 0; for (uint k = 0; k < get_work_dim(); k++) at = at * get_global_size(k) + get_global_id(k); d[at] = 1; }
kernel void first_item_of_groups(global int *d) { if (get_local_id(0) == 0 && get_local_id(1) == 0) d[get_group_id(1) * get_num_groups(0) + get_group_id(0)] = 1; }
kernel void alone(global int *d) { d[get_global_id(0)] = get_num_groups(0); }
kernel void two_kernels_callee(global int *d) { d[get_global_id(0) + 2] = get_local_size(0); }
kernel void calls_a_kernel(global int *d) { two_kernels_callee(d + 1); }
