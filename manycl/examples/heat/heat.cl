// A plate whose border keeps its temperature: every point goes halfway to the mean of its neighbours.
kernel void relax(global const float *old, global float *new, int n)
{
    int j = get_global_id(0), i = get_global_id(1);
    if (i >= n || j >= n)
        return;
    int at = i * n + j;
    if (i == 0 || j == 0 || i == n - 1 || j == n - 1)
        new[at] = old[at];
    else
        new[at] = 0.5f * old[at] + 0.125f * (old[at - 1] + old[at + 1] + old[at - n] + old[at + n]);
}
