// The seven kernels of MKMD's Table 1, and what the other papers measured: the same computations, written anew.
float normal_distribution(float x) {
    float k = 1.0f / (1.0f + 0.2316419f * fabs(x));
    float p = k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
    float v = 0.39894228f * exp(-0.5f * x * x) * p;
    return x > 0 ? 1.0f - v : v;
}
kernel void black_scholes(global float *call, global float *put, global const float *price, global const float *strike,
                          global const float *years, float rate, float volatility, uint n) {
    for (uint i = get_global_id(0); i < n; i += get_global_size(0)) {
        float root = sqrt(years[i]);
        float d1 = (log(price[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) / (volatility * root);
        float d2 = d1 - volatility * root, discount = exp(-rate * years[i]);
        float a = normal_distribution(d1), b = normal_distribution(d2);
        call[i] = price[i] * a - strike[i] * discount * b;
        put[i] = strike[i] * discount * (1.0f - b) - price[i] * (1.0f - a);
    }
}
kernel void n_body(global float4 *new_position, global float4 *new_velocity, global const float4 *position,
                   global const float4 *velocity, local float4 *tile, float dt, float softening, int n) {
    int i = get_global_id(0), l = get_local_id(0), m = get_local_size(0);
    float4 p = position[i], a = (float4)(0.0f);
    for (int t = 0; t < n / m; t++) {
        tile[l] = position[t * m + l];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < m; k++) {
            float4 r = tile[k] - p;
            float d = r.x * r.x + r.y * r.y + r.z * r.z + softening;
            float s = tile[k].w / (d * sqrt(d));
            a.xyz += s * r.xyz;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    float4 v = velocity[i];
    v.xyz += a.xyz * dt;
    p.xyz += v.xyz * dt;
    new_position[i] = p;
    new_velocity[i] = v;
}
kernel void matrix_multiply(global float *c, global const float *a, global const float *b, int rows, int columns, int inner) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x >= columns || y >= rows) return;
    float sum = 0;
    for (int k = 0; k < inner; k++) sum += a[y * inner + k] * b[k * columns + x];
    c[y * columns + x] = sum;
}
kernel void fdtd_3d(global float *d, global const float *s, constant float *weights, int nx, int ny, int nz) {
    int x = get_global_id(0), y = get_global_id(1);
    int w = nx + 4, plane = w * (ny + 4);
    bool inside = x < nx && y < ny;
    int at = (y + 2) * w + x + 2;
    for (int z = 0; z < nz; z++) {
        if (inside) {
            int i = at + (z + 2) * plane;
            float v = weights[0] * s[i];
            for (int r = 1; r <= 2; r++)
                v += weights[r] * (s[i - r] + s[i + r] + s[i - r * w] + s[i + r * w] + s[i - r * plane] + s[i + r * plane]);
            d[i] = v;
        }
    }
}
kernel void sobel(global uchar *d, global const uchar *s, int w, int h) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) return;
    int i = y * w + x;
    int gx = s[i - w + 1] + 2 * s[i + 1] + s[i + w + 1] - s[i - w - 1] - 2 * s[i - 1] - s[i + w - 1];
    int gy = s[i + w - 1] + 2 * s[i + w] + s[i + w + 1] - s[i - w - 1] - 2 * s[i - w] - s[i - w + 1];
    d[i] = (uchar)min(abs(gx) + abs(gy), 255u);
}
void order(int *a, int *b) { int x = min(*a, *b), y = max(*a, *b); *a = x; *b = y; }
kernel void median_filter(global int *d, global const int *s, int w, int h) {
    int x = get_global_id(0), y = get_global_id(1), v[9];
    for (int k = 0; k < 9; k++) {
        int xx = clamp(x + k % 3 - 1, 0, w - 1), yy = clamp(y + k / 3 - 1, 0, h - 1);
        v[k] = s[yy * w + xx];
    }
    for (int i = 0; i < 5; i++) for (int j = i + 1; j < 9; j++) order(&v[i], &v[j]);
    d[y * w + x] = v[4];
}
kernel void k_means_assign(global int *membership, global const float *features, global const float *centres, int clusters,
                           int dimensions, int points) {
    int p = get_global_id(0);
    if (p >= points) return;
    int best = 0;
    float least = 1e30f;
    for (int c = 0; c < clusters; c++) {
        float sum = 0;
        for (int k = 0; k < dimensions; k++) {
            float t = features[k * points + p] - centres[c * dimensions + k];
            sum += t * t;
        }
        if (sum < least) { least = sum; best = c; }
    }
    membership[p] = best;
}
kernel void stencil_2d(global float *d, global const float *s, int w, int h) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x > 0 && x < w - 1 && y > 0 && y < h - 1)
        d[y * w + x] = 0.2f * (s[y * w + x] + s[y * w + x - 1] + s[y * w + x + 1] + s[(y - 1) * w + x] + s[(y + 1) * w + x]);
}
kernel void stencil_3d(global float *d, global const float *s, int nx, int ny, int nz) {
    int x = get_global_id(0) + 1, y = get_global_id(1) + 1, z = get_global_id(2) + 1;
    if (x >= nx - 1 || y >= ny - 1 || z >= nz - 1) return;
#define AT(i, j, k) ((k) * ny + (j)) * nx + (i)
    d[AT(x, y, z)] = s[AT(x - 1, y, z)] + s[AT(x + 1, y, z)] + s[AT(x, y - 1, z)] + s[AT(x, y + 1, z)] + s[AT(x, y, z - 1)] + s[AT(x, y, z + 1)];
#undef AT
}
kernel void stencil_border(global float *d, global const float *s, int w, int h) {
    int x = get_global_id(0), y = get_global_id(1);
    int l = x == 0 ? 0 : x - 1, r = x == w - 1 ? x : x + 1, u = max(y - 1, 0), b = min(y + 1, h - 1);
    d[y * w + x] = s[y * w + l] + s[y * w + r] + s[u * w + x] + s[b * w + x];
}
kernel void jacobi(global float *x1, global const float *x0, global const float *a, global const float *b, int n) {
    int i = get_global_id(0);
    if (i >= n) return;
    float sum = 0;
    for (int j = 0; j < n; j++) if (j != i) sum += a[i * n + j] * x0[j];
    x1[i] = (b[i] - sum) / a[i * n + i];
}
kernel void hotspot(global float *d, global const float *heat, global const float *power, int w, int h, float step) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x >= w || y >= h) return;
    int i = y * w + x;
    int west = x > 0 ? i - 1 : i, east = x < w - 1 ? i + 1 : i, north = y > 0 ? i - w : i, south = y < h - 1 ? i + w : i;
    d[i] = heat[i] + step * (power[i] + heat[west] + heat[east] + heat[north] + heat[south] - 4.0f * heat[i]);
}
kernel void pathfinder_row(global int *d, global const int *before, global const int *wall, int w, int row) {
    int x = get_global_id(0);
    if (x >= w) return;
    int best = before[x];
    if (x > 0) best = min(best, before[x - 1]);
    if (x < w - 1) best = min(best, before[x + 1]);
    d[x] = best + wall[row * w + x];
}
kernel void closure_step(global uchar *reach, int n, int k) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x < n && y < n && reach[y * n + k] && reach[k * n + x]) reach[y * n + x] = 1;
}
kernel void closure_out_of_place(global uchar *d, global const uchar *s, int n, int k) {
    int x = get_global_id(0), y = get_global_id(1);
    d[y * n + x] = s[y * n + x] | (s[y * n + k] & s[k * n + x]);
}
kernel void lud_column(global float *a, int n, int k) { int r = get_global_id(0) + k + 1; if (r < n) a[r * n + k] /= a[k * n + k]; }
kernel void lud_update(global float *a, int n, int k) {
    int x = get_global_id(0) + k + 1, y = get_global_id(1) + k + 1;
    if (x < n && y < n) a[y * n + x] -= a[y * n + k] * a[k * n + x];
}
kernel void bitonic_step(global int *a, int stride, int size) {
    int t = get_global_id(0), i = 2 * t - (t & (stride - 1)), j = i + stride;
    int x = a[i], y = a[j];
    if ((x > y) == ((i & size) == 0)) { a[i] = y; a[j] = x; }
}
kernel void odd_even_step(global int *a, int n, int phase) {
    int i = 2 * get_global_id(0) + phase;
    if (i + 1 < n && a[i] > a[i + 1]) { int t = a[i]; a[i] = a[i + 1]; a[i + 1] = t; }
}
kernel void spmv_csr(global float *y, global const int *rows, global const int *columns, global const float *values,
                     global const float *x, int n) {
    int r = get_global_id(0);
    if (r >= n) return;
    float sum = 0;
    for (int k = rows[r]; k < rows[r + 1]; k++) sum += values[k] * x[columns[k]];
    y[r] = sum;
}
kernel void spmv_ell(global float *y, global const int *columns, global const float *values, global const float *x, int n, int width) {
    int r = get_global_id(0);
    float sum = 0;
    for (int k = 0; k < width; k++) sum += values[k * n + r] * x[columns[k * n + r]];
    y[r] = sum;
}
kernel void csr_scale_rows(global float *values, global const int *rows, global const float *by) {
    int r = get_global_id(0);
    for (int k = rows[r]; k < rows[r + 1]; k++) values[k] *= by[r];
}
kernel void bfs_expand(global const int *first, global const int *edges, global const uchar *frontier, global uchar *next,
                       global uchar *seen, global int *cost, int n) {
    int v = get_global_id(0);
    if (v >= n || !frontier[v]) return;
    for (int e = first[v]; e < first[v + 1]; e++) {
        int to = edges[e];
        if (!seen[to]) { cost[to] = cost[v] + 1; next[to] = 1; }
    }
}
kernel void bfs_update(global uchar *frontier, global uchar *next, global uchar *seen, global int *again, int n) {
    int v = get_global_id(0);
    if (v < n && next[v]) { frontier[v] = 1; seen[v] = 1; *again = 1; next[v] = 0; }
}
constant uchar small_box[16] = {12, 5, 6, 11, 9, 0, 10, 13, 3, 14, 15, 8, 4, 7, 1, 2};
kernel void cipher_rounds(global uint4 *d, global const uint4 *s, global const uchar *box, constant uint *keys, int rounds) {
    int i = get_global_id(0);
    uint4 v = s[i];
    for (int r = 0; r < rounds; r++) {
        uint4 t;
        t.x = box[v.x & 255u] | (uint)box[(v.y >> 8) & 255u] << 8 | (uint)small_box[(v.z >> 16) & 15u] << 16;
        t.y = box[v.y & 255u] ^ rotate(v.x, 7u);
        t.z = v.w ^ t.x;
        t.w = v.z + keys[r];
        v = t;
    }
    d[i] = v;
}
kernel void random_pairs(global float *sx, global float *sy, global uint *counts, uint seed, int tries) {
    uint i = get_global_id(0), state = seed ^ (i * 2654435761u), count[4] = {0, 0, 0, 0};
    float a = 0, b = 0;
    for (int k = 0; k < tries; k++) {
        state = state * 1664525u + 1013904223u;
        float x = (float)(state >> 9) / 4194304.0f - 1.0f;
        state = state * 1664525u + 1013904223u;
        float y = (float)(state >> 9) / 4194304.0f - 1.0f;
        float t = x * x + y * y;
        if (t <= 1.0f && t > 0.0f) { count[(int)(fmax(fabs(x), fabs(y)) * 3.9f)]++; a += x; b += y; }
    }
    sx[i] = a;
    sy[i] = b;
    for (int k = 0; k < 4; k++) counts[i * 4 + k] = count[k];
}
kernel void monte_carlo(global float *d, global const float *strike, uint seed, int paths) {
    uint i = get_global_id(0), state = seed + i;
    float sum = 0;
    for (int k = 0; k < paths; k++) {
        state ^= state << 13; state ^= state >> 17; state ^= state << 5;
        sum += fmax((float)(state & 1023u) / 512.0f - strike[i], 0.0f);
    }
    d[i] = sum / paths;
}
kernel void mandelbrot(global int *d, int w, float zoom, int limit) {
    int x = get_global_id(0), y = get_global_id(1), k = 0;
    float re = 0, im = 0;
    while (k < limit && re * re + im * im < 4.0f) { float t = re * re - im * im + x * zoom - 2.0f; im = 2.0f * re * im + y * zoom - 1.0f; re = t; k++; }
    d[y * w + x] = k;
}
kernel void nearest_neighbour(global float *d, global const float2 *places, int n, float lat, float lon) {
    int i = get_global_id(0);
    if (i < n) d[i] = sqrt((places[i].x - lat) * (places[i].x - lat) + (places[i].y - lon) * (places[i].y - lon));
}
kernel void convolution_rows(global float *d, global const float *s, constant float *taps, int w, int radius) {
    int x = get_global_id(0), y = get_global_id(1);
    float sum = 0;
    for (int k = -radius; k <= radius; k++) if (x + k >= 0 && x + k < w) sum += s[y * w + x + k] * taps[k + radius];
    d[y * w + x] = sum;
}
kernel void wave_diagonal(global int *score, global const int *match, int w, int diagonal) {
    int i = get_global_id(0) + 1, j = diagonal - i;
    if (j < 1 || j >= w || i >= w) return;
    score[i * w + j] = max(score[(i - 1) * w + j - 1] + match[i * w + j], max(score[i * w + j - 1], score[(i - 1) * w + j]) - 2);
}
kernel void reaction_rates(global float *rates, global const float *t, global const float *molar, int n, int species) {
    int i = get_global_id(0);
    for (int k = 0; k < species; k++) {
        float c = molar[k * n + i] / t[i];
        rates[k * n + i] = exp(-1.0f / t[i]) * c * (k + 1);
    }
}
kernel void gray_image(global uchar *d, global const uchar4 *s, int w) {
    int i = get_global_id(1) * w + get_global_id(0);
    uchar4 p = s[i];
    d[i] = (uchar)((p.x * 77 + p.y * 151 + p.z * 28) >> 8);
}
