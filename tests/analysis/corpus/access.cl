// Plain and indirect ways to reach an element: aliases, pointer arithmetic, casts, structs, functions.
kernel void copy_all(global float *d, global const float *s) { size_t i = get_global_id(0); d[i] = s[i]; }
kernel void add_guarded(global float *c, global const float *a, global const float *b, int n) {
    int i = get_global_id(0);
    if (i < n) c[i] = a[i] + b[i];
}
kernel void early_return(global float *c, global const float *a, int n) {
    int i = get_global_id(0);
    if (i >= n) return;
    if (i == 0) return;
    c[i] = a[i] - a[i - 1];
}
kernel void scale_in_place(global float *a, float by) { a[get_global_id(0)] *= by; }
kernel void increment(global int *a) { a[get_global_id(0)]++; }
kernel void reversed(global int *d, global const int *s, int n) { int i = get_global_id(0); d[n - 1 - i] = s[i]; }
kernel void strided(global int *d, global const int *s, int step) { int i = get_global_id(0); d[i * step] = s[i * step + 1]; }
kernel void shifted_down(global int *d, global const int *s, int by) { int i = get_global_id(0); d[i] = s[i + by]; }
kernel void alias_offset(global int *a, global const int *b, int n) {
    global int *p = a + n;
    global const int *q = b;
    q += get_global_id(0);
    p[get_global_id(0)] = *q;
}
kernel void alias_of_two(global int *a, global int *b, global const int *c) {
    int i = get_global_id(0);
    global int *p = (i & 1) ? a : b;
    p[i] = c[i];
}
kernel void alias_by_if(global int *a, global int *b, global const int *c, int which) {
    int i = get_global_id(0);
    global int *p = a;
    if (which) p = b;
    p[i] = c[i];
}
kernel void walk_pointers(global int *d, global const int *s, int n) {
    global int *p = d + get_global_id(0) * n;
    global const int *q = s + get_global_id(0) * n;
    for (int k = 0; k < n; k++) *p++ = *q++;
}
kernel void walk_backwards(global int *d, global const int *s, int n) {
    global int *p = d + (get_global_id(0) + 1) * n;
    for (int k = n; k > 0; --k) *--p = s[k];
}
kernel void pointer_bound(global int *d, int n) {
    global int *p = d + get_global_id(0) * n;
    global int *end = p + n;
    while (p < end) { *p = 7; p += 2; }
}
kernel void cast_to_vector(global float *d, global const float *s) {
    int i = get_global_id(0);
    ((global float4 *)d)[i] = ((global const float4 *)s)[i] * 2.0f;
}
kernel void cast_to_bytes(global int *d, global const int *s) {
    int i = get_global_id(0);
    global uchar *p = (global uchar *)d;
    p[4 * i + 1] = (uchar)s[i];
}
kernel void cast_pitch(global float *d, global const float *s, int pitch) {
    int x = get_global_id(0), y = get_global_id(1);
    global float *row = (global float *)((global char *)d + y * pitch);
    global const float *from = (global const float *)((global const char *)s + y * pitch);
    row[x] = from[x];
}
kernel void cast_to_rows(global int *d, global const int *s) {
    int i = get_global_id(0);
    global int (*m)[8] = (global int (*)[8])d;
    m[i][2] = s[i];
    m[i][5] = s[i] + 1;
}
typedef struct { float x, y; int tag; int pad; } particle;
kernel void struct_members(global particle *p, float dt) {
    global particle *q = &p[get_global_id(0)];
    q->x += q->y * dt;
}
kernel void struct_whole(global particle *d, global const particle *s) { d[get_global_id(0)] = s[get_global_id(0)]; }
kernel void cast_to_struct(global float *d, global const float *s) {
    int i = get_global_id(0);
    global particle *p = (global particle *)d;
    p[i].y = s[i];
}
typedef struct { int n; int step; float scale; } parameters;
kernel void struct_by_pointer(global float *d, constant parameters *p) {
    int i = get_global_id(0);
    if (i < p->n) d[i * p->step] = p->scale;
}
int row_start(int row, int width) { return row * width; }
void put_value(global float *where, int at, float value) { where[at] = value; }
float take(global const float *from, int at) { return from[at]; }
kernel void through_helpers(global float *d, global const float *s, int width) {
    int r = get_global_id(0);
    for (int c = 0; c < width; c++) put_value(d + row_start(r, width), c, take(s, row_start(r, width) + c));
}
int clamp_index(int i, int n) { if (i < 0) return 0; if (i >= n) return n - 1; return i; }
kernel void helper_returns(global float *d, global const float *s, int n) {
    int i = get_global_id(0);
    d[i] = s[clamp_index(i - 2, n)] + s[clamp_index(i + 2, n)];
}
void find_range(int g, int n, int *lo, int *hi) { *lo = g * n; *hi = min(*lo + n, 60); }
kernel void helper_out_parameters(global int *d, int n) {
    int lo, hi;
    find_range(get_global_id(0), n, &lo, &hi);
    for (int k = lo; k < hi; k++) d[k] = k;
}
global int *at_row(global int *p, int r, int w) { return p + r * w; }
kernel void helper_returns_pointer(global int *d, global const int *s, int w) {
    int i = get_global_id(0);
    global int *row = at_row(d, i, w);
    row[0] = s[i];
    row[w - 1] = -s[i];
}
typedef struct { global int *data; int n; } view;
kernel void pointer_in_struct(global int *d, global const int *s, int n) {
    view v;
    v.data = d + 4;
    v.n = n;
    int i = get_global_id(0);
    if (i < v.n) v.data[i] = s[i];
}
kernel void pointer_in_array(global int *a, global int *b, global const int *s) {
    global int *t[2] = {a, b};
    int i = get_global_id(0);
    t[1][i] = s[i];
    t[0][i] = 1;
}
typedef global int *int_pointer;
kernel void pointer_from_memory(global int *d, global const int *s) {
    local int_pointer t[4];
    if (get_local_id(0) < 4) t[get_local_id(0)] = d + get_group_id(0) * get_local_size(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    global int *p = t[get_local_id(0) & 3];
    p[get_local_id(0)] = s[get_global_id(0)];
}
kernel void same_buffer_twice(global float *d, global const float *s, int n) {
    int i = get_global_id(0);
    d[i] = s[i + n];
}
kernel void neighbour_in_place(global float *a, int n) {
    int i = get_global_id(0);
    if (i + 1 < n) a[i] = a[i + 1] * 0.5f;
}
kernel void all_write_first(global int *a) { a[0] = get_global_id(0); }
kernel void all_write_same(global int *a) { a[0] = 5; }
kernel void groups_overlap(global int *a) {
    int i = get_global_id(0);
    a[i] = i;
    a[i + 1] = -i;
}
kernel void reads_first_writes_own(global int *a) { int i = get_global_id(0); if (i > 0) a[i] = a[0] + i; }
kernel void group_result(global int *d, global const int *s) {
    int sum = 0;
    for (int k = 0; k < (int)get_local_size(0); k++) sum += s[get_group_id(0) * get_local_size(0) + k];
    if (get_local_id(0) == 0) d[get_group_id(0)] = sum;
}
kernel void id_queries(global int *d) {
    size_t i = get_global_id(0) - get_global_offset(0);
    d[i] = (int)(get_group_id(0) * 1000 + get_num_groups(0) * 100 + get_global_size(0) + get_work_dim() + get_local_size(0));
}
int half_of_groups(void) { return (int)get_num_groups(0) / 2; }
kernel void second_half_groups(global int *d) { if ((int)get_group_id(0) >= half_of_groups()) d[get_global_id(0)] = 9; }
kernel void last_group_only(global int *d) { if (get_group_id(0) == get_num_groups(0) - 1) d[get_local_id(0)] = 3; }
kernel void nothing_written(global const int *s, global int *d) { int x = s[get_global_id(0)]; if (x < 0 && x > 0) d[0] = x; }
