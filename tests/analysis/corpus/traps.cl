// Kernels that look splittable and are not, and some that look unsplittable and are.
kernel void overlap_at_border(global int *d) {
    int i = get_global_id(0), n = get_global_size(0);
    d[i] = i;
    if (get_local_id(0) == get_local_size(0) - 1 && i + 1 < n) d[i + 1] = -i;
}
kernel void overlap_before_border(global int *d) { int i = get_global_id(0); d[i] = i; if (get_local_id(0) == 0 && i > 0) d[i - 1] = -i; }
kernel void overlap_in_last_group(global int *d) { int i = get_global_id(0); d[i] = i; if (get_group_id(0) == get_num_groups(0) - 1 && get_local_id(0) == 0) d[0] = -i; }
kernel void overlap_by_one_item(global int *d, int who) { int i = get_global_id(0); d[i == who ? 2 : i] = i; }
kernel void overlap_in_tail(global int *d, int n) { int i = get_global_id(0); d[min(i, n - 1)] = i; }
kernel void overlap_of_loops(global int *d, int n) { int r = get_global_id(0); for (int k = 0; k <= n; k++) d[r * n + k] = r; }
kernel void overlap_of_strides(global int *d, int a, int b) { int i = get_global_id(0); d[i * a] = i; d[i * b + 1] = -i; }
kernel void overlap_of_stored_vectors(global int *d) { int i = get_global_id(0); vstore4((int4)(i), 0, d + 3 * i); }
kernel void overlap_by_modulo(global int *d, int n) { int i = get_global_id(0); d[i % n] = i; }
kernel void overlap_by_division(global int *d) { int i = get_global_id(0); d[i / 8] = i; }
kernel void overlap_by_byte(global int *d) { int i = get_global_id(0); d[(uchar)(i * 16)] = i; }
kernel void overlap_by_wrap(global int *d) { uint i = get_global_id(0); d[(i << 30) >> 28] = i; }
kernel void overlap_by_short(global int *d, global const int *s) { int i = get_global_id(0); d[(short)(i * 8192) / 8192 + 4] = s[i]; }
kernel void overlap_by_unsigned_difference(global int *d, uint n) { uint i = get_global_id(0); d[(i - n) & 7u] = i; }
kernel void overlap_by_mirror(global int *d, int n) { int i = get_global_id(0); d[i < n ? i : 2 * n - 1 - i] = i; }
kernel void overlap_by_sum(global int *d) { d[get_global_id(0) + get_global_id(1)] = get_global_id(0); }
kernel void overlap_along_x(global int *d, int n) { int x = get_global_id(0), y = get_global_id(1); d[y * n + x % n] = x; }
kernel void overlap_of_pitch(global int *d, int pitch) { int x = get_global_id(0), y = get_global_id(1); d[y * pitch + x] = y; }
kernel void overlap_of_rotated_tiles(global int *d, int shift) { int i = get_global_id(0), n = get_global_size(0); d[(i + shift) % n] = i; d[i + n] = i; if (i == 0) d[n - 1] = 77; }
kernel void bytes_beside_words(global int *d) { int i = get_global_id(0); global uchar *p = (global uchar *)d; p[i * 4] = i; if (i > 0) p[i * 4 - 1] = 1; }
kernel void bytes_of_words(global int *d) { int i = get_global_id(0); global uchar *p = (global uchar *)d; p[i * 4] = i; p[i * 4 + 3] = 1; }
kernel void halves_across_words(global int *d) { int i = get_global_id(0); global short *p = (global short *)d + 1; p[i] = i; }
kernel void words_written_shorts_read(global int *d, int n) { int i = get_global_id(0); global short *p = (global short *)d; int v = p[2 * n - 1 - i]; d[i] = v; }
kernel void doubles_over_floats(global float *d) { int i = get_global_id(0); global double *p = (global double *)d; if (i & 1) p[i / 2 + 8] = 1.0; else d[i] = 2.0f; }
kernel void doubles_over_floats_overlapping(global float *d) { int i = get_global_id(0); ((global double *)d)[i] = 1.0 + i; d[i] = 2.0f; }
kernel void reads_next_group(global int *d) { int i = get_global_id(0), n = get_global_size(0); int v = d[get_local_id(0) == get_local_size(0) - 1 && i + 1 < n ? i + 1 : i]; d[i] = v + 1; }
kernel void reads_group_before(global int *d) { int i = get_global_id(0); int v = get_local_id(0) == 0 && i > 0 ? d[i - 1] : 0; d[i] = i + v; }
kernel void reads_first_of_all(global int *d) { int i = get_global_id(0); d[i] = d[0] + i + 1; }
kernel void reads_last_of_all(global int *d, int n) { int i = get_global_id(0); int v = d[n - 1]; if (i < n) d[i] = v + i; }
kernel void reads_everything(global int *d, int n) { int i = get_global_id(0), sum = 0; for (int k = 0; k < n; k++) sum += d[k]; d[i] = sum; }
kernel void reads_other_half(global int *d, int n) { int i = get_global_id(0); d[i] = d[(i + n / 2) % n] + 1; }
kernel void reads_upper_writes_lower(global int *d, int n) { int i = get_global_id(0); d[i] = d[i + n] + d[2 * n - 1 - i]; }
kernel void reads_odd_writes_even(global int *d) { int i = get_global_id(0); d[2 * i] = d[2 * i + 1] + d[2 * i + 3]; }
kernel void red_black(global float *d, int n, int colour) {
    int x = get_global_id(0) + 1, y = get_global_id(1) + 1;
    if (x < n - 1 && y < n - 1 && (x + y) % 2 == colour) d[y * n + x] = 0.25f * (d[y * n + x - 1] + d[y * n + x + 1] + d[(y - 1) * n + x] + d[(y + 1) * n + x]);
}
kernel void gauss_seidel(global float *d, int n) { int x = get_global_id(0) + 1; if (x < n - 1) d[x] = 0.5f * (d[x - 1] + d[x + 1]); }
kernel void transposed_in_place(global int *d, int n) { int x = get_global_id(0), y = get_global_id(1); int v = d[x * n + y]; d[y * n + x] = v; }
kernel void transposed_by_swap(global int *d, int n) { int r = get_global_id(0); for (int c = 0; c < r; c++) { int v = d[r * n + c]; d[r * n + c] = d[c * n + r]; d[c * n + r] = v; } }
kernel void swap_halves(global int *d, int n) { int i = get_global_id(0), v = d[i]; d[i] = d[i + n]; d[i + n] = v; }
kernel void swap_from_both_ends(global int *d, int n) { int i = get_global_id(0), v = d[i]; if (2 * i + 1 < n) { d[i] = d[n - 1 - i]; d[n - 1 - i] = v; } }
kernel void exchanged_neighbours(global int *d) { int i = get_global_id(0); int v = d[i ^ 1]; d[i] = v; }
kernel void shifted_copy(global int *d, global const int *s, int by) { int i = get_global_id(0); d[i] = s[i + by]; }
kernel void stencil_of_copy(global float *d, global const float *s, int n) { int i = get_global_id(0) + 1; if (i < n - 1) d[i] = s[i - 1] + s[i] + s[i + 1]; }
kernel void column_in_place(global int *d, int w, int from, int to) { int r = get_global_id(0); d[r * w + to] += d[r * w + from]; }
kernel void row_in_place(global int *d, int w, int from, int to) { int c = get_global_id(0); d[to * w + c] += d[from * w + c]; }
kernel void first_group_writes(global int *d) { if (get_group_id(0) == 0) d[get_local_id(0)] = 5; }
kernel void first_group_writes_all_read(global int *d, global int *e) { if (get_group_id(0) == 0) d[get_local_id(0)] = 5; e[get_global_id(0)] = d[get_local_id(0)]; }
kernel void one_item_writes_total(global int *d, global const int *s, int n) { int i = get_global_id(0); if (i == n - 1) { int sum = 0; for (int k = 0; k < n; k++) sum += s[k]; d[0] = sum; } }
kernel void any_flag(global int *found, global const int *s) { if (s[get_global_id(0)] > 900) found[0] = 1; }
kernel void group_writes_one_cell(global int *d) { int g = get_group_id(0); d[get_global_id(0) / 4] = g; }
kernel void twice_apart(global int *d, int n) { int i = get_global_id(0); d[i] = i; d[i + n] = -i; }
kernel void even_and_odd_lists(global int *d, int n) { int i = get_global_id(0); if (i % 2) d[n + i / 2] = i; else d[i / 2] = i; }
kernel void three_way_interleave(global int *d, global const int *s) { int i = get_global_id(0); for (int k = 0; k < 3; k++) d[3 * i + (k * 2) % 3] = s[i + k]; }
kernel void bits_of_words(global uint *d) { int i = get_global_id(0); d[i] |= 1u << (i & 3); }
kernel void scatter_data_times_groups(global int *d, global const int *where) { int i = get_global_id(0); d[get_group_id(0) * 8 + (where[i] & 7)] = 3; }
kernel void scatter_wraps_out(global int *d, global const int *where) { int i = get_global_id(0); d[get_group_id(0) * 8 + (where[i] & 15)] = i; }
