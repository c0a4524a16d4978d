// The kernels of one transformer layer: matrix product, transpose, softmax over rows.

// C (m x n) = A (m x k) * B (k x n), row-major; one work-item per element of C, dimension 0 along the rows of C.
__kernel void gemm(__global const float *A, __global const float *B, __global float *C, int m, int n, int k)
{
    const int column = get_global_id(0);
    const int row = get_global_id(1);
    if (row >= m || column >= n)
        return;
    float sum = 0.0f;
    for (int i = 0; i < k; i++)
        sum += A[row * k + i] * B[i * n + column];
    C[row * n + column] = sum;
}

// out (n x m) = the transpose of in (m x n); one work-item per element.
__kernel void transpose(__global const float *in, __global float *out, int m, int n)
{
    const int column = get_global_id(0);
    const int row = get_global_id(1);
    if (row < m && column < n)
        out[column * m + row] = in[row * n + column];
}

// Each row of out (m x n) = softmax(scale * row of in); one work-item per row. The largest element is subtracted
// before exponentiation, which changes nothing but keeps exp() from overflowing.
__kernel void softmax(__global const float *in, __global float *out, int m, int n, float scale)
{
    const int row = get_global_id(0);
    if (row >= m)
        return;
    __global const float *x = in + row * n;
    __global float *y = out + row * n;
    float largest = x[0];
    for (int i = 1; i < n; i++)
        largest = fmax(largest, x[i]);
    float sum = 0.0f;
    for (int i = 0; i < n; i++)
        sum += exp(scale * (x[i] - largest));
    for (int i = 0; i < n; i++)
        y[i] = exp(scale * (x[i] - largest)) / sum;
}
