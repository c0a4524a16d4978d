kernel void big(global float *out, int n) {
    int i = get_global_id(0); float s = 0;
    for (int k = 0; k < 40; k++) s += (float)k * 0.5f + (float)i;
    out[i] = s;
}
int scanned(global const int *x, int n) {
    int s = 0;
    for (int r = 0; r < 100; r++) for (int k = 0; k < n; k++) s = s * 3 + x[k];
    return s;
}
kernel void both(global const int *x, global const int *y, global int *u, global int *v, int n) { u[0] = scanned(x, n); v[0] = scanned(y, n); }
kernel void one(global const int *x, global int *u, int n) { u[0] = scanned(x, n); }
kernel void part(global const int *x, global int *z, int n) {
    int i = get_global_id(0), s = 0;
    for (int k = 0; k < 2000; k++) s = s * 3 + x[i];
    z[i] = s;
}
kernel void dbl(global double *out, int n) {
    int i = get_global_id(0); double s = 0;
    for (int k = 0; k < 400; k++) s += (double)k * 0.5 + (double)i;
    out[i] = s;
}
kernel void wide(global float *out, int n) {
    int i = get_global_id(0); float s = 0;
    for (int k = 0; k < 400; k++) s += (float)k * 0.5f + (float)i;
    out[i] = s;
}
kernel void locals(global float *out, local float *t, int n) {
    int i = get_global_id(0); t[get_local_id(0)] = i;
    barrier(CLK_LOCAL_MEM_FENCE);
    float s = 0;
    for (int k = 0; k < 400; k++) s += t[k & 63];
    out[i] = s;
}
