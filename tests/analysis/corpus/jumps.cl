// Jumps. Comments say what is easily got wrong.
kernel void goto_as_do(global int *d, global const int *s, int n) {
    int i = get_global_id(0), j = 0, sum = 0;
again:
    sum += s[i * n + j];
    j++;
    if (j < n) goto again;
    d[i] = sum;
}
kernel void goto_as_while(global int *d, int n) {
    int r = get_global_id(0), k = 0;
top:
    if (k >= n) goto done;
    d[r * n + k] = k;
    k += 2;
    goto top;
done:
    d[r * n + 1] = 7;
}
kernel void goto_skips(global int *d, int n) {
    int i = get_global_id(0);
    int at = i;
    if (i % 2) goto odd;
    at = i + n;
    goto write;
odd:
    at = i + 2 * n;
write:
    d[at] = 1;
}
// the second jump goes on with the outer loop
kernel void goto_goes_on_outside(global int *d, int n) {
    int r = get_global_id(0), i = -1;
next:
    i++;
    if (i < n) {
        for (int j = 0; j < n; j++) {
            if (j > i) goto next;
            d[(r * n + i) * n + j] = 1;
        }
        goto next;
    }
}
kernel void goto_nested(global int *d, int n) {
    int r = get_global_id(0), i = 0, j;
rows:
    j = 0;
columns:
    d[(r * n + i) * n + j] = i + j;
    if (++j < n) goto columns;
    if (++i < n) goto rows;
}
// neither loop lies in the other
kernel void goto_crossed(global int *d, int n) {
    int r = get_global_id(0), k = 0, w = 0;
first:
    d[r * 16 + k] = 1;
    k++;
second:
    w++;
    if (k < n) goto first;
    if (w < n + 3) goto second;
    d[r * 16 + w] = 2;
}
kernel void goto_by_data(global int *d, global const int *s, int n) {
    int i = get_global_id(0), k = 0;
again:
    d[i * 8 + k] = 1;
    if (s[(i + k) % n] > 2 && k < 7) { k++; goto again; }
    d[i * 8 + k] = 2;
}
int goto_first(global const int *s, int n, int least) {
    int k = 0;
look:
    if (s[k] >= least) goto found;
    if (++k < n) goto look;
    k = 0;
found:
    return k;
}
kernel void goto_in_function(global int *d, global const int *s, int n) { int i = get_global_id(0); d[i * n + goto_first(s, n, i)] = 1; }
// what the loop declared is not known behind it
kernel void goto_keeps(global int *d, int n) {
    int i = get_global_id(0), k = 0;
again:;
    int j = k * 2;
    k++;
    if (k < n) goto again;
    d[i * 16 + j] = 1;
}
kernel void goto_out_of_switch(global int *d, int mode) {
    int i = get_global_id(0);
    switch ((i + mode) % 3) {
        case 0: goto out;
        case 1: d[i] = 1; break;
        default: d[i + 16] = 2;
    }
    d[i + 32] = 3;
out:
    d[i + 48] = 4;
}
kernel void goto_leaves_many(global int *d, global const int *s, int n) {
    int r = get_global_id(0), i, j = 0;
    for (i = 0; i < n; i++)
        for (j = 0; j < n; j++)
            if (s[i * n + j] > 4) goto found;
    i = j = 0;
found:
    d[(r * (n + 1) + i) * (n + 1) + j] = 1;
}
