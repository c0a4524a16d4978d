// Products of an n x n matrix and a vector, an element of the result a work-item.

kernel void rows_times(global float *y, global const float *a, global const float *x, int n)
{
    int i = get_global_id(0);
    if (i >= n)
        return;
    float sum = 0.0f;
    for (int j = 0; j < n; j++)
        sum += a[i * n + j] * x[j];
    y[i] = sum;
}

kernel void columns_times(global float *y, global const float *a, global const float *x, int n)
{
    int j = get_global_id(0);
    if (j >= n)
        return;
    float sum = 0.0f;
    for (int i = 0; i < n; i++)
        sum += a[i * n + j] * x[i];
    y[j] = sum;
}

kernel void gesummv(global float *y, global const float *a, global const float *b, global const float *x, float alpha,
                    float beta, int n)
{
    int i = get_global_id(0);
    if (i >= n)
        return;
    float left = 0.0f, right = 0.0f;
    for (int j = 0; j < n; j++) {
        left += a[i * n + j] * x[j];
        right += b[i * n + j] * x[j];
    }
    y[i] = alpha * left + beta * right;
}

kernel void mvt_rows(global float *x, global const float *a, global const float *y, int n)
{
    int i = get_global_id(0);
    if (i >= n)
        return;
    float sum = x[i];
    for (int j = 0; j < n; j++)
        sum += a[i * n + j] * y[j];
    x[i] = sum;
}

kernel void mvt_columns(global float *x, global const float *a, global const float *y, int n)
{
    int j = get_global_id(0);
    if (j >= n)
        return;
    float sum = x[j];
    for (int i = 0; i < n; i++)
        sum += a[i * n + j] * y[i];
    x[j] = sum;
}
