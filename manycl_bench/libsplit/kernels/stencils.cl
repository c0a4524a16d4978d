// Stencils on grids of n points a side; the last dimension of the NDRange counts rows (planes in three dimensions).

kernel void conv2d(global float *b, global const float *a, int n)
{
    int j = get_global_id(0), i = get_global_id(1);
    if (i < 1 || j < 1 || i >= n - 1 || j >= n - 1)
        return;
    b[i * n + j] = 0.2f * a[(i - 1) * n + j - 1] - 0.3f * a[(i - 1) * n + j] + 0.4f * a[(i - 1) * n + j + 1]
                 + 0.5f * a[i * n + j - 1] + 0.6f * a[i * n + j] + 0.7f * a[i * n + j + 1]
                 - 0.8f * a[(i + 1) * n + j - 1] - 0.9f * a[(i + 1) * n + j] + 0.1f * a[(i + 1) * n + j + 1];
}

kernel void conv3d(global float *b, global const float *a, int n)
{
    int k = get_global_id(0), j = get_global_id(1), i = get_global_id(2);
    if (i < 1 || j < 1 || k < 1 || i >= n - 1 || j >= n - 1 || k >= n - 1)
        return;
    int at = (i * n + j) * n + k;
    b[at] = 0.5f * a[at] + 0.2f * (a[at - n * n] + a[at + n * n]) - 0.3f * (a[at - n] + a[at + n])
          + 0.4f * (a[at - 1] + a[at + 1]) + 0.1f * (a[at - n * n - n - 1] + a[at + n * n + n + 1]);
}

kernel void fdtd_y(global float *ey, global const float *hz, global const float *source, int step, int n)
{
    int j = get_global_id(0), i = get_global_id(1);
    if (i >= n || j >= n)
        return;
    if (i == 0)
        ey[j] = source[step];
    else
        ey[i * n + j] -= 0.5f * (hz[i * n + j] - hz[(i - 1) * n + j]);
}

kernel void fdtd_x(global float *ex, global const float *hz, int n)
{
    int j = get_global_id(0), i = get_global_id(1);
    if (i < n && j > 0 && j < n)
        ex[i * n + j] -= 0.5f * (hz[i * n + j] - hz[i * n + j - 1]);
}

kernel void fdtd_z(global float *hz, global const float *ex, global const float *ey, int n)
{
    int j = get_global_id(0), i = get_global_id(1);
    if (i < n - 1 && j < n - 1)
        hz[i * n + j] -= 0.7f * (ex[i * n + j + 1] - ex[i * n + j] + ey[(i + 1) * n + j] - ey[i * n + j]);
}

kernel void jacobi1d(global float *b, global const float *a, int n)
{
    int i = get_global_id(0);
    if (i > 0 && i < n - 1)
        b[i] = 0.33333f * (a[i - 1] + a[i] + a[i + 1]);
}

kernel void copy1d(global float *a, global const float *b, int n)
{
    int i = get_global_id(0);
    if (i > 0 && i < n - 1)
        a[i] = b[i];
}

kernel void jacobi2d(global float *b, global const float *a, int n)
{
    int j = get_global_id(0), i = get_global_id(1);
    if (i > 0 && j > 0 && i < n - 1 && j < n - 1)
        b[i * n + j] = 0.2f * (a[i * n + j] + a[i * n + j - 1] + a[i * n + j + 1] + a[(i - 1) * n + j] + a[(i + 1) * n + j]);
}

kernel void copy2d(global float *a, global const float *b, int n)
{
    int j = get_global_id(0), i = get_global_id(1);
    if (i > 0 && j > 0 && i < n - 1 && j < n - 1)
        a[i * n + j] = b[i * n + j];
}
