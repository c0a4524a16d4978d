// Products of n x n matrices, an element of the result a work-item; dimension 1 counts rows.

kernel void gemm(global float *c, global const float *a, global const float *b, float alpha, float beta, int n)
{
    int j = get_global_id(0), i = get_global_id(1);
    if (i >= n || j >= n)
        return;
    float sum = 0.0f;
    for (int k = 0; k < n; k++)
        sum += a[i * n + k] * b[k * n + j];
    c[i * n + j] = alpha * sum + beta * c[i * n + j];
}

kernel void product(global float *c, global const float *a, global const float *b, float alpha, int n)
{
    int j = get_global_id(0), i = get_global_id(1);
    if (i >= n || j >= n)
        return;
    float sum = 0.0f;
    for (int k = 0; k < n; k++)
        sum += a[i * n + k] * b[k * n + j];
    c[i * n + j] = alpha * sum;
}

kernel void syrk(global float *c, global const float *a, float alpha, float beta, int n)
{
    int j = get_global_id(0), i = get_global_id(1);
    if (i >= n || j >= n)
        return;
    float sum = 0.0f;
    for (int k = 0; k < n; k++)
        sum += a[i * n + k] * a[j * n + k];
    c[i * n + j] = alpha * sum + beta * c[i * n + j];
}

kernel void syr2k(global float *c, global const float *a, global const float *b, float alpha, float beta, int n)
{
    int j = get_global_id(0), i = get_global_id(1);
    if (i >= n || j >= n)
        return;
    float sum = 0.0f;
    for (int k = 0; k < n; k++)
        sum += a[i * n + k] * b[j * n + k] + b[i * n + k] * a[j * n + k];
    c[i * n + j] = alpha * sum + beta * c[i * n + j];
}

// Statistics of n variables with n observations each: data[i * n + j] is observation i of variable j.

kernel void means(global float *mean, global const float *data, int n)
{
    int j = get_global_id(0);
    if (j >= n)
        return;
    float sum = 0.0f;
    for (int i = 0; i < n; i++)
        sum += data[i * n + j];
    mean[j] = sum / (float)n;
}

kernel void deviations(global float *deviation, global const float *data, global const float *mean, int n)
{
    int j = get_global_id(0);
    if (j >= n)
        return;
    float sum = 0.0f;
    for (int i = 0; i < n; i++) {
        float d = data[i * n + j] - mean[j];
        sum += d * d;
    }
    float found = sqrt(sum / (float)n);
    deviation[j] = found > 0.005f ? found : 1.0f;
}

kernel void centre(global float *out, global const float *data, global const float *mean, int n)
{
    int j = get_global_id(0), i = get_global_id(1);
    if (i < n && j < n)
        out[i * n + j] = data[i * n + j] - mean[j];
}

kernel void standardise(global float *out, global const float *data, global const float *mean,
                        global const float *deviation, int n)
{
    int j = get_global_id(0), i = get_global_id(1);
    if (i < n && j < n)
        out[i * n + j] = (data[i * n + j] - mean[j]) / deviation[j];
}

// The upper triangle of data^T data / n, an element a work-item: the first rows have the most.
kernel void triangle(global float *out, global const float *data, int n)
{
    int j = get_global_id(0), i = get_global_id(1);
    if (i >= n || j >= n || j < i)
        return;
    float sum = 0.0f;
    for (int k = 0; k < n; k++)
        sum += data[k * n + i] * data[k * n + j];
    out[i * n + j] = sum / (float)n;
}
