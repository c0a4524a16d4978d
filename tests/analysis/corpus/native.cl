// What native compilers take otherwise than OpenCL's: names, scopes, vectors, pointers and strings.
constant sampler_t NEAREST = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
constant int shared = 5;
constant char greeting[] = "good day";
#define MAX(a, b) ({ int _a = (a), _b = (b); _a > _b ? _a : _b; })
typedef struct { float x; int n[3]; } Pair;
;
int length(const char *s) { int n = 0; while (s[n]) n++; return n; };
int length_of_constant(constant const char *s) { int n = 0; while (s[n]) n++; return n; }
int total(const int v[4], const int n);
int total(const int v[4], const int n) { int s = 0; for (int i = 0; i < n; i++) s += v[i]; return s; }
int corner(int m[2][3]) { m[0][0] += 100; return m[1][2]; }
int mixed(global const int *const p, local int l[], const Pair s, const Pair *q) { return p[0] + l[1] + (int)s.x + total(q->n, 3); }
int beside(local int *l, int v) { int i = get_local_id(0); barrier(1); l[i] = v; barrier(1); int s = l[i] + l[(i + 1) % get_local_size(0)]; return s; }
int others(local int *l, int v) { return beside(l, v) - v; }

kernel void pointer_to_vector(global const int4 *x, global int *y) {
  int i = get_global_id(0); int4 v = x[i]; int *p = &v;
  for (int j = 0; j < 4; j++) y[4 * i + j] = p[3 - j];
}
kernel void scopes_of_a_loop(global const int *x, global int *y, int n) {
  int i = get_global_id(0); { int a = x[i]; y[i] = a; }
  for (int j = 0; j < n; j++) { int a = j * 2 + i; y[i] += x[a * 3 + j]; }
  for (int j = 0; j < n; j++) { int a = j + i; y[i] += x[(a) * 2]; }
}
kernel void scopes_of_branches(global const int *x, global int *y, int n) {
  int i = get_global_id(0);
  if (i < n) { const int a = (n + 3) / 4 * 4; y[i] = x[i * a % 64]; } else { const int a = (n + 1) / 2 * 2; y[i] = x[(i * a + 3) % 64]; }
}
kernel void scope_hides_constant(global int *y) {
  int i = get_global_id(0), a = shared; barrier(1);
  { int shared = i; barrier(1); y[i] = a + shared; } y[i] += shared;
  struct a { int a; } z = {a}; __typeof__(a) b = z.a; { int a = sizeof(a) + b; y[i] += a; }
}
kernel void scopes_in_braces(global int *y) {
  int a[2] = { ({ int u = 3; u; }) + ({ int u = 4; u; }), MAX(MAX(1, get_global_id(0)), 2) };
  barrier(CLK_LOCAL_MEM_FENCE);
  y[get_global_id(0)] = a[get_local_id(0) & 1];
}
kernel void several_in_the_head_of_a_loop(global int *y) {
  int i = get_global_id(0); { int j = i; y[i] = j; }
  for (int j = 0, *p = &j, k = 7; j < 4; ++*p) for (int m = 0, v[2] = {i, 3}; m < 2; m++) y[i] += v[m] * k;
  barrier(1);
  for (int j = 0, *p = &j; j < 3; ++*p) { y[i] += j; barrier(1); }
}
kernel void vectors_of_a_scalar(global int4 *x) {
  int i = get_global_id(0); int4 v = x[i], w = (int4)(3), u = (int4)((i)) - (int4)(1);
  v *= (int4)(v.w > 300 ? 2 : 4); v = v.w > 100 ? v : (int4)(0); x[i] = u + w + v / (int4)(2);
}
kernel void elements_by_address(global const int *x, global int4 *y) {
  int i = get_global_id(0); int4 v = (int4)(0);
  for (int j = 0; j < 4; j++) ((int *)&v)[j] = x[4 * i + j];
  y[i] = v;
}
kernel void strings(global int *y) {
  int i = get_global_id(0); const char own[] = "own";
  y[i] = length_of_constant("hello") + length_of_constant(greeting) + length(own) + "abc"[i & 1] + sizeof("four") + *"z";
}
kernel void array_parameters(global int *y, local int *l) {
  int i = get_global_id(0), v[4] = {i, 1, 2, 3}, w[2][3] = {{1, 2, 3}, {4, 5, i}}; Pair s = {3, {1, 2, i}};
  l[get_local_id(0)] = i; local int m[4]; m[i & 3] = 3; barrier(CLK_LOCAL_MEM_FENCE);
  int r = total(v, 3) + corner(w) + w[0][0] + mixed(y + i, l, s, &s) + mixed(y + i, m, s, &s);
  barrier(CLK_LOCAL_MEM_FENCE); y[i] = r;
}
kernel void stray_semicolons(global int *y) {
  int i = get_global_id(0);; { ; } for (int k = 0; k < 3; k++) ; barrier(1);; if (i & 1) ; else { y[i] = 3; }; for (;;) { ; break; };
}
kernel void waits_in_expressions(global int *y, local int *l) {
  int i = get_global_id(0); int a = 2 * others(l, y[i]) + 1, b = a;
  if (others(l, a) > -1000000) y[i] = a; else y[i] = b + 7;
  if (y[i] > -1000000) y[i] += others(l, beside(l, a));
  for (int j = 0; j < 2; j++) y[i] -= beside(l, j + i) * 2;
  if (i < 0) ; else b = beside(l, i); y[i] += b;
}
kernel void types_of_a_kernel(global int *y) {
  typedef int4 V; struct P { int a; }; enum { ONE = 1, TWO }; int i = get_global_id(0); V v = (V)(i); struct P p = {y[i]};
  local V l[4]; l[i & 3] = v; barrier(1); V u = v + TWO; y[i] = u.x + l[i & 3].y + p.a;
}
kernel void values_that_are_computed(global int *y) {
  const int a[4] = {as_int(1.5f), as_int(as_uint(7) + 9u), -3, 4}, at = y[get_global_id(0)] & 3;
  const int2 b[2] = {(int2)(1, 2) < (int2)(2) ? (int2)(3, 4) : (int2)(5, 6), as_int2((uint2)(7, 8))};
  const int2 c[2] = {((int4)(1, 2, 3, 4)).yw, (int2)(as_int(9u), 10)};
  y[get_global_id(0)] = a[at] + b[at & 1].x * 3 + b[at >> 1].y + c[at & 1].y * c[at >> 1].x;
}
kernel void arrays_in_structures(global int *y) {
  struct Q { int n, a[4]; }; struct Q s = {3, {1, 2, 3, 4}}, q[2] = {{5, {6, 7, 8, 9}}, {1, {2, 3, 4, 5}}}, u = {1, {2, 3, 4, 5}};
  int m[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}}, o[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}}, i = get_global_id(0), *p = m[1];
  union { int a[2][2]; float f; } w = {{{1, 2}, {3, 4}}}; struct { struct Q q[2]; int n; } z = {{{1, {2}}, {3, {4}}}, 5};
  vstore4((int4)(i) + y[i], 0, s.a); vstore2((int2)(i), 1, (q[1].a)); p[i & 3] = i; *u.a += i; *o[1] = 2 * i;
  vstore2((int2)(7, i), 0, w.a[1]); vstore4((int4)(i), 0, z.q[1].a); barrier(1);
  for (int k = 0; k < 4; k++) y[i] = y[i] * 7 + s.a[k] + q[1].a[k] + m[1][k] + u.a[k] + o[1][k] + w.a[1][k & 1] + z.q[1].a[k];
}
kernel void vectors_with_subscripts(global int4 *x) {
  int i = get_global_id(0); int4 v = (int4)(1, 2, 3, 4), w = (int4)(5), u[2] = {(int4)(6), (int4)(7)}; struct V { int4 q; }; struct V s = {(int4)(8)};
  v[1] = i; w[i & 3] += i; u[1][2]++; s.q[3] -= i; barrier(1); x[i] += v * 3 + w * 5 + u[1] * 7 + s.q;
}
kernel void with_an_image(read_only image2d_t x, global int *y) { y[0] = read_imagei(x, NEAREST, (int2)(0)).x; }
