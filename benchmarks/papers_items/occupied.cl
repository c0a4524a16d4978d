kernel void occ(global float *z, global const float *q, int R) {
    int i = get_global_id(0); float v = q[i];
    for (int r = 0; r < R; r++) v = v * 0.999f + 0.001f;
    z[i] = v;
}
kernel void work(global float *o, global const float *a, int R) {
    int i = get_global_id(0); float v = a[i];
    for (int r = 0; r < R; r++) v = v * 0.999f + 0.001f;
    o[i] = v;
}
