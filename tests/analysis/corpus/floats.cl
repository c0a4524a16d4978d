// Subscripts and guards of floating-point numbers. Comments say what is easily got wrong.
kernel void image_resize(global uchar *o, global const uchar *s, int w, int h, int W, int H) {
    int x = get_global_id(0), y = get_global_id(1);
    float sx = (float)w / W, sy = (float)h / H;
    o[y * W + x] = s[(int)(y * sy) * w + (int)(x * sx)];
}
kernel void resize_centred(global int *o, global const int *s, int w, int W) {
    float scale = (float)w / (float)W;
    int x = get_global_id(0);
    float at = clamp(((float)x + 0.5f) * scale - 0.5f, 0.0f, w - 1.0f);
    int left = (int)floor(at), right = min(left + 1, w - 1);
    o[x] = s[left] + s[right];
}
kernel void times_one(global int *d) { int i = get_global_id(0); d[(int)(i * 1.0f)] = i; }
kernel void a_third(global int *d, global const int *s, float f) { int i = get_global_id(0); d[i] = s[(int)(i * f)]; }
kernel void divided_by_float(global int *d, global const int *s, float f) { int i = get_global_id(0); d[i] = s[(int)(i / f)]; }
kernel void part_of_all(global int *d, global const int *s, float f, int n) {
    int i = get_global_id(0), p = (int)(n * f);
    if (i < p) d[i] = s[i + p];
}
kernel void float_compared(global int *d, float f) { int i = get_global_id(0); if (i * f <= 3.0f && i + 0.5f > f) d[i] = 1; }
kernel void both_signs(global int *d) { int i = get_global_id(0); d[(int)((i - 8) * 0.5f) + 4] = i; }
// odd numbers beyond 2^24 are no floats: two work-items write one element
kernel void odd_forgotten(global int *d) { int i = get_global_id(0); d[(int)((float)(i + 16777216)) - 16777216] = i; }
kernel void float_pair(global int *d, global const int *s, float f, int w) {
    float2 p = (float2)(get_global_id(0) + 0.25f, get_global_id(1) - 0.25f) * f;
    int2 q = convert_int2(p);
    d[get_global_id(1) * get_global_size(0) + get_global_id(0)] = s[q.y * w + q.x];
}
kernel void made_integers(global int *d, global const int *s) {
    int i = get_global_id(0);
    float f = i * 0.5f;
    d[i] = s[convert_int_rte(f)] + s[convert_int_rtp(f)] + s[convert_int_rtn(f)] + s[(int)rint(f)] + s[(int)ceil(f)];
}
kernel void saturated_byte(global int *d, global const int *s) { int i = get_global_id(0); d[i] = s[convert_uchar_sat((i - 4) * 30.5f)]; }
kernel void by_double(global int *d, double f) { int i = get_global_id(0); d[(int)(i * f + 0.25)] = i; }
kernel void fused_float(global int *d, float f) { int i = get_global_id(0); d[(int)fma((float)i, f, 2.0f)] = i; }
kernel void smaller_float(global int *d, float f) { int i = get_global_id(0); d[i * 2 + (int)fmin(fabs(1.0f - f), 1.0f)] = i; }
kernel void counts_in_halves(global int *d, float n) {
    int i = get_global_id(0);
    for (float t = 0.0f; t < n; t += 0.5f) d[i * 8 + (int)(t * 2.0f)] = i;
}
// ten tenths are more than one
kernel void tenths(global int *d) {
    float t = 0.0f;
    for (int k = 0; k < 10; k++) t += 0.1f;
    if (t != 1.0f) d[get_global_id(0)] = 1;
}
// what a loop does to a float, by data, must not be forgotten
kernel void counted_in_float(global int *d, global const int *s, int n) {
    float t = 0.0f;
    float2 v = (float2)(0.0f, 1.0f);
    for (int k = 0; k < n; k++) {
        if (s[k] & 1) t += 1.0f;
        if (s[k] & 2) v.x += 2.0f;
    }
    d[get_global_id(0) * 32 + (int)t + (int)v.x] = 1;
}
kernel void float_by_pointer(global int *d, global const int *s) {
    float t = 0.0f, *p = &t;
    for (int k = 0; k < 4; k++) *p += s[k] & 1;
    d[get_global_id(0) * 8 + (int)t] = 1;
}
// the bits of a float are another number
kernel void bits_of_float(global int *d, float f) {
    union { float f; int i; } u;
    u.f = f;
    int i = get_global_id(0), a = as_int(f) >> 29, b = u.i >> 29;
    float g = as_float(3 << 23) * 1e37f;
    d[i * 8 + a + b + (int)g] = 1;
}
kernel void float_by_branch(global int *d, global const int *s, float f) {
    int i = get_global_id(0);
    float t = i < 8 ? f : 2.0f, u = 1.0f;
    if (s[i] > 2) u = 3.0f;
    d[i * 8 + (int)t + (int)u] = 1;
}
kernel void not_a_number(global int *d, float f) { int i = get_global_id(0); if (f < i || f >= i) d[i] = 2; else d[i + 16] = 1; }
float half_of(float f) { return f / 2; }
kernel void float_by_function(global int *d, global const int *s) { int i = get_global_id(0); d[i] = s[(int)half_of(i)]; }
