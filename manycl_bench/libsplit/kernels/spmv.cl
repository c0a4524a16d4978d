// A sparse matrix (compressed rows) times a vector, a row a work-item.
kernel void spmv(global float *y, global const float *values, global const int *columns, global const int *starts,
                 global const float *x, int rows)
{
    int row = get_global_id(0);
    if (row >= rows)
        return;
    float sum = 0.0f;
    for (int k = starts[row]; k < starts[row + 1]; k++)
        sum += values[k] * x[columns[k]];
    y[row] = sum;
}
