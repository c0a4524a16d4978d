// The kernels of A^2 B B^T C B: matrix product and transpose.

// C (m x n) = A (m x k) * B (k x n), row-major; one work-item per element of C, dimension 0 along the rows of C.
__kernel void matmul(__global const float *A, __global const float *B, __global float *C, int m, int n, int k)
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
