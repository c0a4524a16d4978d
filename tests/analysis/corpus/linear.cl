// Linear algebra, as in PolyBench and in the equations that MKMD and PySchedCL schedule: one kernel for each step.
kernel void matrix_add(global float *c, global const float *a, global const float *b, float alpha, float beta, int n) { int x = get_global_id(0), y = get_global_id(1); if (x < n && y < n) c[y * n + x] = alpha * a[y * n + x] + beta * b[y * n + x]; }
kernel void matrix_transpose(global float *d, global const float *s, int w, int h) { int x = get_global_id(0), y = get_global_id(1); if (x < w && y < h) d[x * h + y] = s[y * w + x]; }
kernel void transposed_multiply(global float *c, global const float *a, global const float *b, int n) { int x = get_global_id(0), y = get_global_id(1); float sum = 0; for (int k = 0; k < n; k++) sum += a[k * n + y] * b[k * n + x]; c[y * n + x] = sum; }
kernel void multiply_by_transposed(global float *c, global const float *a, global const float *b, int n) { int x = get_global_id(0), y = get_global_id(1); float sum = 0; for (int k = 0; k < n; k++) sum += a[y * n + k] * b[x * n + k]; c[y * n + x] = sum; }
kernel void multiply_diagonal(global float *c, global const float *u, global const float *sigma, int rows, int columns) { int x = get_global_id(0), y = get_global_id(1); c[y * columns + x] = u[y * columns + x] * sigma[x]; }
kernel void matrix_vector(global float *y, global const float *a, global const float *x, int rows, int columns) { int r = get_global_id(0); if (r >= rows) return; float sum = 0; for (int k = 0; k < columns; k++) sum += a[r * columns + k] * x[k]; y[r] = sum; }
kernel void vector_matrix(global float *y, global const float *a, global const float *x, int rows, int columns) { int c = get_global_id(0); if (c >= columns) return; float sum = 0; for (int k = 0; k < rows; k++) sum += a[k * columns + c] * x[k]; y[c] = sum; }
kernel void axpy(global float *y, global const float *x, float alpha, uint n) { uint i = get_global_id(0); if (i < n) y[i] = alpha * x[i] + y[i]; }
kernel void three_vectors(global float *p, global const float *r, global const float *v, float beta, float omega, int n) { int i = get_global_id(0); if (i < n) p[i] = r[i] + beta * (p[i] - omega * v[i]); }
kernel void dot_partial(global float *d, global const float *a, global const float *b, int n, local float *t) {
    int l = get_local_id(0);
    float sum = 0;
    for (int i = get_global_id(0); i < n; i += get_global_size(0)) sum += a[i] * b[i];
    t[l] = sum;
    for (int k = get_local_size(0) >> 1; k; k >>= 1) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (l < k) t[l] += t[l + k];
    }
    if (l == 0) d[get_group_id(0)] = t[0];
}
kernel void jacobi_invert_diagonal(global float *d, global const float *a, int n) { int i = get_global_id(0); d[i] = 1.0f / a[i * n + i]; }
kernel void jacobi_off_diagonal(global float *d, global const float *a, int n) { int x = get_global_id(0), y = get_global_id(1); d[y * n + x] = x == y ? 0.0f : a[y * n + x]; }
kernel void gemm_alpha_beta(global float *c, global const float *a, global const float *b, float alpha, float beta, int ni, int nj, int nk) {
    int j = get_global_id(0), i = get_global_id(1);
    if (i < ni && j < nj) {
        c[i * nj + j] *= beta;
        for (int k = 0; k < nk; k++) c[i * nj + j] += alpha * a[i * nk + k] * b[k * nj + j];
    }
}
kernel void gemm_tiled(global float *c, global const float *a, global const float *b, int n) {
    local float ta[4][4], tb[4][4];
    int x = get_global_id(0), y = get_global_id(1), lx = get_local_id(0), ly = get_local_id(1);
    float sum = 0;
    for (int t = 0; t < n; t += 4) {
        ta[ly][lx] = a[y * n + t + lx];
        tb[ly][lx] = b[(t + ly) * n + x];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < 4; k++) sum += ta[ly][k] * tb[k][lx];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[y * n + x] = sum;
}
kernel void gemm_registers(global float *c, global const float *a, global const float *b, int n) {
    int x = get_global_id(0) * 2, y = get_global_id(1) * 2;
    float s[2][2] = {{0, 0}, {0, 0}};
    for (int k = 0; k < n; k++) for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) s[i][j] += a[(y + i) * n + k] * b[k * n + x + j];
    for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) c[(y + i) * n + x + j] = s[i][j];
}
kernel void gemm_vectors(global float4 *c, global const float *a, global const float4 *b, int n) { int x = get_global_id(0), y = get_global_id(1), w = n / 4; float4 sum = (float4)(0.0f); for (int k = 0; k < n; k++) sum = mad((float4)(a[y * n + k]), b[k * w + x], sum); c[y * w + x] = sum; }
kernel void two_mm_first(global float *tmp, global const float *a, global const float *b, float alpha, int ni, int nj, int nk) { int j = get_global_id(0), i = get_global_id(1); if (i < ni && j < nj) { tmp[i * nj + j] = 0; for (int k = 0; k < nk; ++k) tmp[i * nj + j] += alpha * a[i * nk + k] * b[k * nj + j]; } }
kernel void two_mm_second(global float *d, global const float *tmp, global const float *c, float beta, int ni, int nj, int nl) { int l = get_global_id(0), i = get_global_id(1); if (i < ni && l < nl) { d[i * nl + l] *= beta; for (int k = 0; k < nj; ++k) d[i * nl + l] += tmp[i * nj + k] * c[k * nl + l]; } }
kernel void three_mm_step(global float *e, global const float *a, global const float *b, int ni, int nj, int nk) { size_t j = get_global_id(0), i = get_global_id(1); if (i < ni && j < nj) { float sum = 0; for (size_t k = 0; k < nk; ++k) sum += a[i * nk + k] * b[k * nj + j]; e[i * nj + j] = sum; } }
kernel void atax_first(global float *tmp, global const float *a, global const float *x, int nx, int ny) { int i = get_global_id(0); if (i < nx) { tmp[i] = 0; for (int j = 0; j < ny; j++) tmp[i] += a[i * ny + j] * x[j]; } }
kernel void atax_second(global float *y, global const float *a, global const float *tmp, int nx, int ny) { int j = get_global_id(0); if (j < ny) { y[j] = 0; for (int i = 0; i < nx; i++) y[j] += a[i * ny + j] * tmp[i]; } }
kernel void bicg_q(global float *q, global const float *a, global const float *p, int nx, int ny) { int i = get_global_id(0); if (i < nx) { float sum = 0; for (int j = 0; j < ny; j++) sum += a[i * ny + j] * p[j]; q[i] = sum; } }
kernel void bicg_s(global float *s, global const float *a, global const float *r, int nx, int ny) { int j = get_global_id(0); if (j < ny) { s[j] = 0.0f; for (int i = 0; i < nx; i++) s[j] += a[i * ny + j] * r[i]; } }
kernel void gesummv(global float *y, global float *tmp, global const float *a, global const float *b, global const float *x, float alpha, float beta, int n) {
    int i = get_global_id(0);
    if (i >= n) return;
    tmp[i] = 0;
    y[i] = 0;
    for (int j = 0; j < n; j++) { tmp[i] += a[i * n + j] * x[j]; y[i] += b[i * n + j] * x[j]; }
    y[i] = alpha * tmp[i] + beta * y[i];
}
kernel void mvt_first(global float *x1, global const float *a, global const float *y1, int n) { int i = get_global_id(0); if (i < n) for (int j = 0; j < n; j++) x1[i] += a[i * n + j] * y1[j]; }
kernel void mvt_second(global float *x2, global const float *a, global const float *y2, int n) { int i = get_global_id(0); if (i < n) for (int j = 0; j < n; j++) x2[i] += a[j * n + i] * y2[j]; }
kernel void syrk(global float *c, global const float *a, float alpha, float beta, int n, int m) { int j = get_global_id(0), i = get_global_id(1); if (i < n && j <= i) { float v = beta * c[i * n + j]; for (int k = 0; k < m; k++) v += alpha * a[i * m + k] * a[j * m + k]; c[i * n + j] = v; } }
kernel void syr2k(global float *c, global const float *a, global const float *b, float alpha, float beta, int n, int m) { int j = get_global_id(0), i = get_global_id(1); if (i < n && j < n) { c[i * n + j] *= beta; for (int k = 0; k < m; k++) c[i * n + j] += alpha * a[i * m + k] * b[j * m + k] + alpha * b[i * m + k] * a[j * m + k]; } }
kernel void column_mean(global float *mean, global const float *data, int n, int m) { int j = get_global_id(0); if (j < m) { mean[j] = 0; for (int i = 0; i < n; i++) mean[j] += data[i * m + j]; mean[j] /= n; } }
kernel void column_deviation(global float *stddev, global const float *mean, global const float *data, int n, int m, float epsilon) { int j = get_global_id(0); if (j < m) { float v = 0; for (int i = 0; i < n; i++) v += (data[i * m + j] - mean[j]) * (data[i * m + j] - mean[j]); v = sqrt(v / n); stddev[j] = v <= epsilon ? 1.0f : v; } }
kernel void centre_and_scale(global float *data, global const float *mean, global const float *stddev, int n, int m) { int j = get_global_id(0), i = get_global_id(1); if (i < n && j < m) { data[i * m + j] -= mean[j]; data[i * m + j] /= sqrt((float)n) * stddev[j]; } }
kernel void centre(global float *data, global const float *mean, int n, int m) { int j = get_global_id(0), i = get_global_id(1); if (i < n && j < m) data[i * m + j] -= mean[j]; }
// both triangles by row owners: item j1 also writes column j1, which lies in other items' rows below its own
kernel void correlation(global float *c, global const float *data, int n, int m) {
    int j1 = get_global_id(0);
    if (j1 >= m - 1) return;
    c[j1 * m + j1] = 1.0f;
    for (int j2 = j1 + 1; j2 < m; j2++) {
        float sum = 0;
        for (int i = 0; i < n; i++) sum += data[i * m + j1] * data[i * m + j2];
        c[j1 * m + j2] = sum;
        c[j2 * m + j1] = sum;
    }
}
kernel void covariance(global float *c, global const float *data, int n, int m) {
    int j1 = get_global_id(0);
    if (j1 < m)
        for (int j2 = j1; j2 < m; j2++) {
            c[j1 * m + j2] = 0;
            for (int i = 0; i < n; i++) c[j1 * m + j2] += data[i * m + j1] * data[i * m + j2];
            c[j2 * m + j1] = c[j1 * m + j2];
        }
}
kernel void fdtd_2d_ey(global float *ey, global const float *hz, constant float *source, int t, int nx, int ny) { int j = get_global_id(0), i = get_global_id(1); if (i < nx && j < ny) { if (i == 0) ey[i * ny + j] = source[t]; else ey[i * ny + j] = ey[i * ny + j] - 0.5f * (hz[i * ny + j] - hz[(i - 1) * ny + j]); } }
kernel void fdtd_2d_ex(global float *ex, global const float *hz, int nx, int ny) { int j = get_global_id(0), i = get_global_id(1); if (i < nx && j < ny && j > 0) ex[i * (ny + 1) + j] = ex[i * (ny + 1) + j] - 0.5f * (hz[i * ny + j] - hz[i * ny + j - 1]); }
kernel void fdtd_2d_hz(global float *hz, global const float *ex, global const float *ey, int nx, int ny) { int j = get_global_id(0), i = get_global_id(1); if (i < nx && j < ny) hz[i * ny + j] -= 0.7f * (ex[i * (ny + 1) + j + 1] - ex[i * (ny + 1) + j] + ey[(i + 1) * ny + j] - ey[i * ny + j]); }
kernel void convolution_2d(global float *b, global const float *a, int ni, int nj) { int j = get_global_id(0), i = get_global_id(1); if (i < ni - 1 && j < nj - 1 && i > 0 && j > 0) b[i * nj + j] = 0.2f * a[(i - 1) * nj + j - 1] - 0.3f * a[(i - 1) * nj + j] + 0.5f * a[i * nj + j + 1] + 0.6f * a[(i + 1) * nj + j - 1] + 0.1f * a[(i + 1) * nj + j + 1]; }
kernel void convolution_3d(global float *b, global const float *a, int ni, int nj, int nk, int i) { int k = get_global_id(0), j = get_global_id(1); if (i < ni - 1 && j < nj - 1 && k < nk - 1 && i > 0 && j > 0 && k > 0) b[(i * nj + j) * nk + k] = a[((i - 1) * nj + j - 1) * nk + k - 1] + a[((i + 1) * nj + j - 1) * nk + k - 1] + 2.0f * a[(i * nj + j) * nk + k] + a[((i + 1) * nj + j + 1) * nk + k + 1]; }
kernel void jacobi_1d(global float *b, global const float *a, int n) { int i = get_global_id(0); if (i > 0 && i < n - 1) b[i] = 0.33333f * (a[i - 1] + a[i] + a[i + 1]); }
kernel void jacobi_1d_copy(global float *a, global const float *b, int n) { int i = get_global_id(0); if (i > 0 && i < n - 1) a[i] = b[i]; }
kernel void jacobi_2d(global float *b, global const float *a, int n) { int j = get_global_id(0), i = get_global_id(1); if (i > 0 && i < n - 1 && j > 0 && j < n - 1) b[i * n + j] = 0.2f * (a[i * n + j] + a[i * n + j - 1] + a[i * n + 1 + j] + a[(1 + i) * n + j] + a[(i - 1) * n + j]); }
kernel void jacobi_2d_copy(global float *a, global const float *b, int n) { int j = get_global_id(0), i = get_global_id(1); if (i >= 1 && i < n - 1 && j >= 1 && j < n - 1) a[i * n + j] = b[i * n + j]; }
kernel void attention_scores(global float *d, global const float *q, global const float *k, int beta, float scale) { int c = get_global_id(0), r = get_global_id(1); float sum = 0; for (int i = 0; i < beta; i++) sum += q[r * beta + i] * k[c * beta + i]; d[r * beta + c] = sum * scale; }
kernel void softmax_row_each(global float *d, global const float *s, int n) { int r = get_global_id(0); float top = s[r * n], sum = 0; for (int c = 1; c < n; c++) top = max(top, s[r * n + c]); for (int c = 0; c < n; c++) sum += d[r * n + c] = exp(s[r * n + c] - top); for (int c = 0; c < n; c++) d[r * n + c] /= sum; }
kernel void cholesky_column(global float *a, int n, int k) { int i = get_global_id(0) + k + 1; if (i < n) a[i * n + k] /= a[k * n + k]; }
kernel void cholesky_trailing(global float *a, int n, int k) { int j = get_global_id(0) + k + 1, i = get_global_id(1) + k + 1; if (i < n && j <= i) a[i * n + j] -= a[i * n + k] * a[j * n + k]; }
kernel void forward_substitution(global float *x, global const float *l, int n, int k) { int i = get_global_id(0); if (i > k && i < n) x[i] -= l[i * n + k] * x[k]; }
kernel void gaussian_multipliers(global float *m, global const float *a, int n, int t) { int i = get_global_id(0); if (i < n - 1 - t) m[n * (i + t + 1) + t] = a[n * (i + t + 1) + t] / a[n * t + t]; }
