// What the papers measured besides linear algebra: transitive closure, combustion, search trees, transforms, hashing, sorting.
kernel void closure_product(global uchar *d, global const uchar *a, global const uchar *transposed, int n) { int x = get_global_id(0), y = get_global_id(1); uchar v = 0; for (int k = 0; k < n && !v; k++) v = a[y * n + k] & transposed[x * n + k]; d[y * n + x] = v; }
kernel void closure_union(global uchar *a, global const uchar *b, int n) { int i = get_global_id(1) * n + get_global_id(0); a[i] |= b[i]; }
kernel void closure_changed(global int *changed, global const uchar *a, global const uchar *b, int n) { int i = get_global_id(1) * n + get_global_id(0); if (a[i] != b[i]) *changed = 1; }
kernel void stencil_rows(global float *d, global const float *s, int width, int rows, int border) { int x = get_global_id(0) + border; for (int y = border; y < rows - border; y++) { float v = 0; for (int k = -border; k <= border; k++) v += s[(y + k) * width + x] + s[y * width + x + k]; d[y * width + x] = v; } }
kernel void stencil_in_slices(global float *d, global const float *s, int w, int h, int depth) {
    int x = get_global_id(0), y = get_global_id(1), plane = w * h, at = y * w + x;
    float below = s[at], here = s[at + plane];
    for (int z = 1; z < depth - 1; z++) { float above = s[at + (z + 1) * plane]; d[at + z * plane] = here - 0.5f * (below + above); below = here; here = above; }
}
#define SPECIES 5
#define C(k) concentration[(k) * cells + i]
#define RF(k) forward[(k) * cells + i]
kernel void combustion_rates(global float *forward, global const float *temperature, global const float *concentration, int cells) {
    int i = get_global_id(0);
    if (i >= cells) return;
    float t = temperature[i], logarithm = log(t), inverse = 1.0f / t;
    RF(0) = C(0) * C(1) * exp(0.5f * logarithm - 1.25f * inverse);
    RF(1) = C(2) * C(3) * exp(2.0f * logarithm - inverse);
    for (int k = 2; k < SPECIES; k++) RF(k) = C(k) * exp(k * logarithm);
}
kernel void combustion_fall_off(global float *forward, global const float *low, int cells) { int i = get_global_id(0); float pr = RF(4) / (low[i] + 1.0f); pr = log10(fmax(pr, 1e-20f)); RF(4) = RF(4) * exp(-pr * pr); }
kernel void combustion_totals(global float *d, global const float *forward, global const float *backward, int cells) { int i = get_global_id(0); for (int k = 0; k < SPECIES - 1; ++k) d[k * cells + i] = RF(k) - backward[k * cells + i] + RF(k + 1); }
kernel void tree_search(global int *answers, global const int *keys, global const int *children, global const int *wanted, int root, int height, int order) {
    int q = get_group_id(0), l = get_local_id(0);
    local int node;
    if (l == 0) node = root;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int level = 0; level < height; level++) {
        int at = node * order + l;
        bool mine = keys[at] <= wanted[q] && (l == order - 1 || wanted[q] < keys[at + 1]);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (mine) node = children[at];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (l == 0) answers[q] = node;
}
kernel void tree_search_range(global int *first, global int *length, global const int *keys, global const int *from, global const int *to, int n) {
    int q = get_global_id(0), a = 0, b = n;
    while (a < b) { int m = (a + b) / 2; if (keys[m] < from[q]) a = m + 1; else b = m; }
    first[q] = a;
    int e = a;
    while (e < n && keys[e] <= to[q]) e++;
    length[q] = e - a;
}
uint mix(uint a, uint b, uint c, uint x, uint s) { return b + rotate(a + ((b & c) | (~b & x)), s); }
kernel void hash_search(global uint *found, global int *where, uint wanted, int per_item) {
    uint i = get_global_id(0);
    for (uint k = i * per_item; k < (i + 1) * per_item; k++) {
        uint a = 0x67452301u, b = 0xefcdab89u;
        for (int r = 0; r < 4; r++) { uint t = b; b = mix(a, b, k, r * 0x5bd1e995u, 7u + r); a = t; }
        if ((b & 7u) == wanted) { found[i] = b; where[i] = k; }
    }
}
kernel void transform_step(global float2 *d, global const float2 *s, int half_size, float direction) {
    int i = get_global_id(0), n = get_global_size(0), k = i & (half_size - 1), j = ((i - k) << 1) + k;
    float angle = direction * M_PI_F * k / half_size;
    float2 u = s[i], v = s[i + n], w = (float2)(cos(angle), sin(angle));
    float2 t = (float2)(v.x * w.x - v.y * w.y, v.x * w.y + v.y * w.x);
    d[j] = u + t;
    d[j + half_size] = u - t;
}
kernel void transform_local(global float2 *a, int inverse) {
    const int reversed[8] = {0, 4, 2, 6, 1, 5, 3, 7};
    local float2 t[8];
    int l = get_local_id(0), base = get_group_id(0) * 8;
    for (int k = l; k < 8; k += 4) t[reversed[k]] = a[base + k];
    for (int m = 1; m < 8; m <<= 1) {
        barrier(CLK_LOCAL_MEM_FENCE);
        int k = l & (m - 1), i = (l - k) * 2 + k;
        float angle = (inverse ? M_PI_F : -M_PI_F) * k / m;
        float2 u = t[i], v = t[i + m], w = (float2)(cos(angle), sin(angle)), p = (float2)(v.x * w.x - v.y * w.y, v.x * w.y + v.y * w.x);
        t[i] = u + p;
        t[i + m] = u - p;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = l; k < 8; k += 4) a[base + k] = inverse ? t[k] * 0.125f : t[k];
}
kernel void reduce_two_per_item(global float *d, global const float *s, uint n, local float *t) {
    uint l = get_local_id(0), m = get_local_size(0), i = get_group_id(0) * m * 2 + l, stride = m * 2 * get_num_groups(0);
    t[l] = 0;
    while (i < n) { t[l] += s[i] + (i + m < n ? s[i + m] : 0.0f); i += stride; }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = m / 2; k > 0; k >>= 1) { if (l < k) t[l] += t[l + k]; barrier(CLK_LOCAL_MEM_FENCE); }
    if (l == 0) d[get_group_id(0)] = t[0];
}
kernel void triad(global float *a, global const float *b, global const float *c, float by) { size_t i = get_global_id(0); a[i] = b[i] + by * c[i]; }
kernel void scan_exclusive(global int *d, global const int *s, local int *t, int n) {
    int l = get_local_id(0), base = get_group_id(0) * n, step = 1;
    t[2 * l] = s[base + 2 * l];
    t[2 * l + 1] = s[base + 2 * l + 1];
    for (int k = n >> 1; k > 0; k >>= 1) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (l < k) t[step * (2 * l + 2) - 1] += t[step * (2 * l + 1) - 1];
        step *= 2;
    }
    if (l == 0) t[n - 1] = 0;
    for (int k = 1; k < n; k *= 2) {
        step >>= 1;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (l < k) { int a = step * (2 * l + 1) - 1, b = step * (2 * l + 2) - 1, v = t[a]; t[a] = t[b]; t[b] += v; }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    d[base + 2 * l] = t[2 * l];
    d[base + 2 * l + 1] = t[2 * l + 1];
}
kernel void radix_count(global uint *counts, global const uint *keys, int n, int shift) {
    int i = get_global_id(0), all = get_global_size(0), per = n / all;
    uint mine[4] = {0, 0, 0, 0};
    for (int k = i * per; k < (i + 1) * per; k++) mine[keys[k] >> shift & 3u]++;
    for (int b = 0; b < 4; b++) counts[b * all + i] = mine[b];
}
kernel void radix_scatter(global uint *d, global const uint *keys, global const uint *starts, int n, int shift) {
    int i = get_global_id(0), all = get_global_size(0), per = n / all;
    uint next[4];
    for (int b = 0; b < 4; b++) next[b] = starts[b * all + i];
    for (int k = i * per; k < (i + 1) * per; k++) d[next[keys[k] >> shift & 3u]++] = keys[k];
}
kernel void pairs_with_cut_off(global float4 *force, global const float4 *position, float radius, int n) { int i = get_global_id(0); float4 f = (float4)(0.0f), p = position[i]; for (int j = 0; j < n; j++) { float4 r = position[j] - p; float s = r.x * r.x + r.y * r.y + r.z * r.z; if (s >= radius || j == i) continue; f.xyz += r.xyz / (s + 0.1f); } force[i] = f; }
kernel void neighbour_lists(global float4 *force, global const float4 *position, global const int *neighbours, int count, int n) { int i = get_global_id(0); float4 f = (float4)(0.0f); for (int k = 0; k < count; k++) f += position[neighbours[k * n + i]] - position[i]; force[i] = f; }
kernel void spmv_vector_rows(global float *y, global const float *values, global const int *columns, global const int *rows, global const float *x, int n, local float *t) {
    int l = get_local_id(0), m = get_local_size(0), r = get_group_id(0);
    float sum = 0;
    for (int k = rows[r] + l; k < rows[r + 1]; k += m) sum += values[k] * x[columns[k]];
    t[l] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l == 0) { for (int k = 1; k < m; k++) sum += t[k]; y[r] = sum; }
}
kernel void hidden_markov_step(global float *d, global const float *s, global const float *transitions, global const float *emission, int states) { int j = get_global_id(0); float best = 0; for (int i = 0; i < states; i++) best = fmax(best, s[i] * transitions[i * states + j]); d[j] = best * emission[j]; }
kernel void edges_and_angles(global float *strength, global float *angle, global const uchar *s, int w, int h) { int x = get_global_id(0), y = get_global_id(1); if (x == 0 || y == 0 || x == w - 1 || y == h - 1) return; global const uchar *p = s + y * w + x; float gx = p[1] - p[-1], gy = p[w] - p[-w]; strength[y * w + x] = hypot(gx, gy); angle[y * w + x] = atan2(gy, gx); }
kernel void box_blur_rows(global uchar4 *d, global const uchar4 *s, int w, int radius) { int y = get_global_id(0); int4 sum = (int4)(0); for (int x = -radius; x < w; x++) { if (x + radius < w) sum += convert_int4(s[y * w + x + radius]); if (x - radius - 1 >= 0) sum -= convert_int4(s[y * w + x - radius - 1]); if (x >= 0) d[y * w + x] = convert_uchar4(sum / (2 * radius + 1)); } }
kernel void floyd_block(global int *distances, int n, int k) { int x = get_global_id(0), y = get_global_id(1); int through = distances[y * n + k] + distances[k * n + x]; if (x != k && y != k && through < distances[y * n + x]) distances[y * n + x] = through; }
kernel void life(global uchar *d, global const uchar *s, int w, int h) { int x = get_global_id(0), y = get_global_id(1), n = 0; for (int dy = -1; dy <= 1; dy++) for (int dx = -1; dx <= 1; dx++) if (dx || dy) n += s[(y + dy + h) % h * w + (x + dx + w) % w]; d[y * w + x] = n == 3 || (n == 2 && s[y * w + x]); }
kernel void resample(global float *d, global const float *s, int w, int h, int wide) { int x = get_global_id(0), y = get_global_id(1); int sx = x * (w - 1) / (wide - 1), sy = min(y / 2, h - 1); d[y * wide + x] = s[sy * w + sx]; }
kernel void lattice_stream(global float *d, global const float *s, int w, int h) { int x = get_global_id(0), y = get_global_id(1), plane = w * h, i = y * w + x; int left = (x + w - 1) % w, right = (x + 1) % w, up = (y + h - 1) % h, down = (y + 1) % h; d[i] = s[i]; d[plane + y * w + right] = s[plane + i]; d[2 * plane + down * w + x] = s[2 * plane + i]; d[3 * plane + y * w + left] = s[3 * plane + i]; d[4 * plane + up * w + x] = s[4 * plane + i]; }
kernel void wavelet_level(global float *d, global const float *s, int n) { int i = get_global_id(0); if (i < n / 2) { d[i] = (s[2 * i] + s[2 * i + 1]) * 0.5f; d[n / 2 + i] = (s[2 * i] - s[2 * i + 1]) * 0.5f; } }
