kernel void big(global float *out, int n) {
    int i = get_global_id(0); float s = 0;
    for (int k = 0; k < 40; k++) s += (float)k * 0.5f + (float)i;
    out[i] = s;
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
