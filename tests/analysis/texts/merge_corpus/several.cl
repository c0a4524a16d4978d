// Kernels that write several buffers, or with local memory as an argument.
kernel void either(global int *a, global int *b, global const int *s) { int i = get_global_id(0); *(s[i] > 500 ? a + i : b + 2 * i) = i; }
kernel void of_three(global int *a, global int *b, global int *c, int n) { int i = get_global_id(0); global int *p[3] = { a, b, c }; for (int k = 0; k < 3; k++) p[(k + n) % 3][k * 16 + i] = i; }
void both(global float *p, global float *q, int i, float v) { p[i] = v; q[i + 1] = v; }
kernel void swapped(global float *a, global float *b, global const float *s) { int i = get_global_id(0); both(a, b, 2 * i, s[i]); both(b, a, 2 * i + 40, s[i]); }
kernel void in_local(global int *d, global const int *s, local int *t) { int l = get_local_id(0); t[l] = s[get_global_id(0)] & 3; barrier(CLK_LOCAL_MEM_FENCE); d[get_group_id(0) * 4 + t[3 - l]] = 1; }
kernel void calls(global int *a, global int *b, global const int *s) { either(b, a, s); a[40 + get_global_id(0)] = 1; }
