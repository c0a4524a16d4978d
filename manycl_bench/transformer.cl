// One transformer layer with kernels of the kind that PySchedCL's experiments use: like PolyBench's, the matrix product
// accumulates in global memory. Deliberately plain: the experiment is about queues, not about kernels.

__kernel void gemm(__global const float *A, __global const float *B, __global float *C, int m, int n, int k)
{
    const int column = get_global_id(0);
    const int row = get_global_id(1);
    if (row >= m || column >= n)
        return;
    C[row * n + column] = 0.0f;
    for (int i = 0; i < k; i++)
        C[row * n + column] += A[row * k + i] * B[i * n + column];
}

__kernel void transpose(__global const float *in, __global float *out, int m, int n)
{
    const int column = get_global_id(0);
    const int row = get_global_id(1);
    if (row < m && column < n)
        out[column * m + row] = in[row * n + column];
}

// softmax of scale * in over each row; one work-item per row
__kernel void softmax(__global const float *in, __global float *out, int m, int n, float scale)
{
    const int row = get_global_id(0);
    if (row >= m)
        return;
    float largest = in[row * n];
    for (int i = 1; i < n; i++)
        largest = fmax(largest, in[row * n + i]);
    float sum = 0.0f;
    for (int i = 0; i < n; i++) {
        out[row * n + i] = exp(scale * (in[row * n + i] - largest));
        sum += out[row * n + i];
    }
    for (int i = 0; i < n; i++)
        out[row * n + i] /= sum;
}
