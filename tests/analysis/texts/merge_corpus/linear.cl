// OpenCL C 3.0: linear ids.
kernel void linear(global int *d, global const int *s) { d[get_global_linear_id() * 2 + get_num_groups(0)] = s[0]; }
