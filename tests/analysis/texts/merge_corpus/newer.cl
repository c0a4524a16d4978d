// OpenCL C 2.0 and 3.0: pointers to any memory, functions of a whole group.
int add(int *k, int by) { *k += by; return *k; }
void set(int *p, int v) { *p = v; }
kernel void by_helper(global int *d, global const int *s) { int i = get_global_id(0), k = i; add(&k, 3); d[k] = s[i]; }
kernel void through_generic(global int *d, global const int *s) { int *p = d + get_global_id(0); *p = s[3]; p[20] += 2; }
kernel void group_sum(global int *d, global const int *s) { int n = work_group_reduce_add(s[get_global_id(0)] & 1); d[get_global_id(0) + n] = 2; }
kernel void mixed(global int *d, global const int *s) { int i = get_global_id(0), k; set(&k, 3); set(d + i, s[i]); }
