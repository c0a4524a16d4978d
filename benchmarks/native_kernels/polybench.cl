// Kernels that compute what PolyBench's do, in the manner of its ports to GPUs: sums are built up in global memory, and
// matrices are n x n. The code is our own.

#define HERE int j = get_global_id(0), i = get_global_id(1)

kernel void gemm(global float *c, global const float *a, global const float *b, float alpha, float beta, int n)
{
    HERE;
    if (i < n && j < n) {
        c[i * n + j] *= beta;
        for (int k = 0; k < n; k++)
            c[i * n + j] += alpha * a[i * n + k] * b[k * n + j];
    }
}

kernel void product(global float *c, global const float *a, global const float *b, float alpha, int n)
{
    HERE;
    if (i < n && j < n) {
        c[i * n + j] = 0.0f;
        for (int k = 0; k < n; k++)
            c[i * n + j] += alpha * a[i * n + k] * b[k * n + j];
    }
}

kernel void syrk(global float *c, global const float *a, float alpha, float beta, int n)
{
    HERE;
    if (i < n && j < n) {
        c[i * n + j] *= beta;
        for (int k = 0; k < n; k++)
            c[i * n + j] += alpha * a[i * n + k] * a[j * n + k];
    }
}

kernel void syr2k(global float *c, global const float *a, global const float *b, float alpha, float beta, int n)
{
    HERE;
    if (i < n && j < n) {
        c[i * n + j] *= beta;
        for (int k = 0; k < n; k++) {
            c[i * n + j] += alpha * a[i * n + k] * b[j * n + k];
            c[i * n + j] += alpha * b[i * n + k] * a[j * n + k];
        }
    }
}

// Vectors: y is a matrix times a vector, by rows and by columns.

kernel void by_rows(global float *y, global const float *a, global const float *x, int n)
{
    int i = get_global_id(0);
    if (i < n)
        for (int j = 0; j < n; j++)
            y[i] += a[i * n + j] * x[j];
}

kernel void by_columns(global float *y, global const float *a, global const float *x, int n)
{
    int j = get_global_id(0);
    if (j < n)
        for (int i = 0; i < n; i++)
            y[j] += a[i * n + j] * x[i];
}

kernel void gesummv(global float *y, global float *t, global const float *a, global const float *b,
                    global const float *x, float alpha, float beta, int n)
{
    int i = get_global_id(0);
    if (i < n) {
        t[i] = 0.0f;
        y[i] = 0.0f;
        for (int j = 0; j < n; j++) {
            t[i] += a[i * n + j] * x[j];
            y[i] += b[i * n + j] * x[j];
        }
        y[i] = alpha * t[i] + beta * y[i];
    }
}

kernel void rank_two(global float *a, global const float *u1, global const float *v1, global const float *u2,
                     global const float *v2, int n)
{
    HERE;
    if (i < n && j < n)
        a[i * n + j] += u1[i] * v1[j] + u2[i] * v2[j];
}

kernel void gemver_columns(global float *x, global const float *a, global const float *y, global const float *z,
                           float beta, int n)
{
    int i = get_global_id(0);
    if (i < n) {
        for (int j = 0; j < n; j++)
            x[i] += beta * a[j * n + i] * y[j];
        x[i] += z[i];
    }
}

kernel void gemver_rows(global float *w, global const float *a, global const float *x, float alpha, int n)
{
    int i = get_global_id(0);
    if (i < n)
        for (int j = 0; j < n; j++)
            w[i] += alpha * a[i * n + j] * x[j];
}

// Statistics: data[i * n + j] is observation i of variable j; a work-item has a whole row of the result.

kernel void means(global float *out, global const float *data, int n)
{
    int j = get_global_id(0);
    if (j < n) {
        out[j] = 0.0f;
        for (int i = 0; i < n; i++)
            out[j] += data[i * n + j];
        out[j] /= (float)n;
    }
}

kernel void deviations(global float *out, global const float *data, global const float *mean, int n)
{
    int j = get_global_id(0);
    if (j < n) {
        out[j] = 0.0f;
        for (int i = 0; i < n; i++)
            out[j] += (data[i * n + j] - mean[j]) * (data[i * n + j] - mean[j]);
        out[j] = sqrt(out[j] / (float)n);
        if (out[j] <= 0.005f)
            out[j] = 1.0f;
    }
}

kernel void centred(global float *out, global const float *data, global const float *mean, int n)
{
    HERE;
    if (i < n && j < n)
        out[i * n + j] = data[i * n + j] - mean[j];
}

kernel void standard(global float *out, global const float *data, global const float *mean,
                     global const float *deviation, int n)
{
    HERE;
    if (i < n && j < n)
        out[i * n + j] = (data[i * n + j] - mean[j]) / (sqrt((float)n) * deviation[j]);
}

kernel void pairs(global float *out, global const float *data, int n)
{
    int first = get_global_id(0);
    if (first < n)
        for (int second = first; second < n; second++) {
            float sum = 0.0f;
            for (int i = 0; i < n; i++)
                sum += data[i * n + first] * data[i * n + second];
            out[first * n + second] = sum;
            out[second * n + first] = sum;
        }
}

// Stencils.

kernel void fdtd_y(global float *ey, global const float *hz, global const float *source, int turn, int n)
{
    HERE;
    if (i < n && j < n) {
        if (i == 0)
            ey[i * n + j] = source[turn];
        else
            ey[i * n + j] = ey[i * n + j] - 0.5f * (hz[i * n + j] - hz[(i - 1) * n + j]);
    }
}

kernel void fdtd_x(global float *ex, global const float *hz, int n)
{
    HERE;
    if (i < n && j < n && j > 0)
        ex[i * n + j] = ex[i * n + j] - 0.5f * (hz[i * n + j] - hz[i * n + j - 1]);
}

kernel void fdtd_z(global float *hz, global const float *ex, global const float *ey, int n)
{
    HERE;
    if (i < n - 1 && j < n - 1)
        hz[i * n + j] = hz[i * n + j]
                      - 0.7f * (ex[i * n + j + 1] - ex[i * n + j] + ey[(i + 1) * n + j] - ey[i * n + j]);
}

kernel void jacobi2d(global float *b, global const float *a, int n)
{
    HERE;
    if (i >= 1 && i < n - 1 && j >= 1 && j < n - 1)
        b[i * n + j] = 0.2f * (a[i * n + j] + a[i * n + j - 1] + a[i * n + j + 1] + a[(i + 1) * n + j] + a[(i - 1) * n + j]);
}

kernel void conv2d(global float *b, global const float *a, int n)
{
    HERE;
    const float c[3][3] = {{0.2f, -0.3f, 0.4f}, {0.5f, 0.6f, 0.7f}, {-0.8f, -0.9f, 0.1f}};
    if (i >= 1 && i < n - 1 && j >= 1 && j < n - 1) {
        float sum = 0.0f;
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < 3; x++)
                sum += c[y][x] * a[(i + y - 1) * n + j + x - 1];
        b[i * n + j] = sum;
    }
}

// A work-item goes through all planes.
kernel void conv3d(global float *b, global const float *a, int n)
{
    int k = get_global_id(0), j = get_global_id(1);
    if (j >= 1 && j < n - 1 && k >= 1 && k < n - 1)
        for (int i = 1; i < n - 1; i++) {
            int at = (i * n + j) * n + k;
            b[at] = 0.5f * a[at] + 0.2f * (a[at - n * n] + a[at + n * n]) - 0.3f * (a[at - n] + a[at + n])
                  + 0.4f * (a[at - 1] + a[at + 1]);
        }
}

// Gram-Schmidt: the columns after k lose what they have in common with column k.

kernel void column_length(global float *r, global const float *a, int k, int n)
{
    if (get_global_id(0) == 0) {
        float sum = 0.0f;
        for (int i = 0; i < n; i++)
            sum += a[i * n + k] * a[i * n + k];
        r[k * n + k] = sqrt(sum);
    }
}

kernel void direction(global float *q, global const float *a, global const float *r, int k, int n)
{
    int i = get_global_id(0);
    if (i < n)
        q[i * n + k] = a[i * n + k] / r[k * n + k];
}

kernel void remove_direction(global float *a, global float *r, global const float *q, int k, int n)
{
    int j = get_global_id(0);
    if (j > k && j < n) {
        r[k * n + j] = 0.0f;
        for (int i = 0; i < n; i++)
            r[k * n + j] += q[i * n + k] * a[i * n + j];
        for (int i = 0; i < n; i++)
            a[i * n + j] -= q[i * n + k] * r[k * n + j];
    }
}

kernel void doitgen(global float *sum, global const float *a, global const float *c, int n)
{
    int p = get_global_id(0), q = get_global_id(1), r = get_global_id(2);
    if (p < n && q < n && r < n) {
        sum[(r * n + q) * n + p] = 0.0f;
        for (int s = 0; s < n; s++)
            sum[(r * n + q) * n + p] += a[(r * n + q) * n + s] * c[s * n + p];
    }
}
