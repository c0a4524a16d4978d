// The arithmetic of subscripts: signs, widths, wrap-around, and the functions that work on integers.
kernel void divide_negative(global int *d, global const int *s) { int i = get_global_id(0); d[i] = s[(i - 8) / 4 + 4]; }
kernel void modulo_negative(global int *d) { int i = get_global_id(0); d[((i - 8) % 4 + 4) % 4 + i / 4 * 4] = i; }
kernel void shift_negative(global int *d, global const int *s) { int i = get_global_id(0); d[i] = s[((i - 9) >> 2) + 3]; }
kernel void mask_negative(global int *d) { int i = get_global_id(0); d[(i - 5) & 15] = i; }
kernel void mask_away(global int *d) { int i = get_global_id(0); d[(i & ~3) + 3 - (i & 3)] = i; }
kernel void or_bits(global int *d) { int i = get_global_id(0); for (int k = 0; k < 4; k++) d[i << 2 | k] = k; }
kernel void butterfly(global int *d, global const int *s) { int i = get_global_id(0); d[i] = s[i]; for (int k = 1; k < 16; k <<= 1) d[i] += s[i ^ k]; }
kernel void multiply_add_24(global int *d, int w) { int x = get_global_id(0), y = get_global_id(1); d[mad24(y, w, x)] = x; }
kernel void multiply_24(global int *d, int w) { d[mul24((int)get_global_id(0), w) + 1] = w; }
kernel void multiply_high(global int *d, global const int *s) { int i = get_global_id(0); d[i] = s[mul_hi(i, 0x55555556)]; }
kernel void multiply_high_store(global int *d) { uint i = get_global_id(0); d[mul_hi(i << 28, 16u)] = i; }
kernel void rotated_byte(global int *d) { uchar i = get_global_id(0); d[rotate((uchar)(i << 4), (uchar)5)] = i; }
kernel void rotated_word(global int *d, global const int *s) { uint i = get_global_id(0); d[i] = s[rotate(i, 31u) & 15u]; }
kernel void is_less(global int *d, float limit) { int i = get_global_id(0); if (isless((float)i, limit)) d[i] = 1; }
kernel void is_greater_equal(global int *d, float limit) { int i = get_global_id(0); d[isgreaterequal((float)i, limit) ? i : i + 16] = 1; }
kernel void select_store(global int *d, int n) { int i = get_global_id(0); d[select(i, n - 1 - i, i & 1)] = i; }
kernel void absolute_value(global int *d, global const int *s, int n) { int i = get_global_id(0); d[i] = s[abs(n - i)] + s[abs_diff(i, n)]; }
kernel void absolute_store(global int *d) { int i = get_global_id(0); d[abs(i - 16)] = i; }
kernel void average(global int *d, global const int *s, int n) { int i = get_global_id(0); d[i] = s[hadd(i, n)] + s[rhadd(i, n)]; }
kernel void leading_zeros(global int *d, global const int *s) { uint i = get_global_id(0); d[i] = s[clz(i + 1u) - 16]; }
kernel void set_bits(global int *d, global const int *s) { int i = get_global_id(0); d[i] = s[popcount(i)]; }
kernel void saturated(global int *d, global const int *s) { uchar i = get_global_id(0); d[i] = s[add_sat(i, (uchar)245) - 245] + s[sub_sat(i, (uchar)3)]; }
kernel void upsampled(global int *d) { uchar i = get_global_id(0); d[upsample((uchar)(i & 1), (uchar)(i >> 1)) >> 5 | i >> 1] = i; }
kernel void clamp_in_group(global int *d) { int l = get_local_id(0), g = get_group_id(0) * 4; d[g + clamp(l, 1, 2)] = g; }
kernel void min_of_three(global int *d, int n, int m) { int i = get_global_id(0); if (i == min(i, min(n, m))) d[i] = max(n, m); }
kernel void short_narrowing(global int *d) { int i = get_global_id(0); short k = (short)(i * 4096); d[k / 4096 + 8] = i; }
kernel void ushort_narrowing(global int *d) { ushort u = 65530; u += (ushort)get_global_id(0); d[u % 16] = u; }
kernel void char_narrowing(global int *d) { int i = get_global_id(0); char c = (char)(i * 16); d[(c >> 4) + 8] = i; }
kernel void uchar_wrapping_loop(global int *d) { int r = get_global_id(0); for (uchar k = 250; k != 4; k++) d[r * 10 + (uchar)(k + 6)] = k; }
kernel void char_of_letter(global int *d, int by) { char c = 'a' + (char)get_global_id(0); d[c - 'a' + by] = c; }
kernel void interval_by_one_compare(global int *d, uint lo, uint width) { uint i = get_global_id(0); if (i - lo < width) d[i] = 1; }
kernel void interval_by_cast(global int *d, int lo, int width) { int i = get_global_id(0); if ((uint)(i - lo) < (uint)width) d[i] = 1; }
kernel void outside_by_cast(global int *d, int lo, int width) { int i = get_global_id(0); if ((uint)(i - lo) >= (uint)width) d[i] = 1; }
kernel void mixed_signs(global int *d) { int i = get_global_id(0); if (i - 4 < get_local_size(0) * 2) d[i] = 1; }
kernel void mixed_signs_to_uint(global int *d, uint n) { int i = (int)get_global_id(0) - 4; if (i < n) d[i] = i; }
kernel void minus_one_as_size_t(global int *d) { int back = -3; size_t at = get_global_id(0) + 3; d[at + back] = 2; }
kernel void zero_extended(global int *d) { int i = get_global_id(0); long at = (long)(uint)(i - 3); if (at < 16) d[at] = i; }
kernel void sign_extended(global int *d) { int i = get_global_id(0); long at = (long)(i - 3); if (at >= 0) d[at] = i; }
kernel void hashed_read(global int *d, global const int *s) { uint i = get_global_id(0); d[i] = s[i * 2654435761u >> 28]; }
kernel void permuted_by_multiply(global int *d) { int i = get_global_id(0); d[(i * 5 + 3) & 15] = i; }
kernel void interleaved_bits(global int *d) { int x = get_global_id(0), y = get_global_id(1); d[(x & 1) | (y & 1) << 1 | (x & 2) << 1 | (y & 2) << 2] = x * 10 + y; }
kernel void three_from_linear(global int *d, int w, int h) {
    int i = get_global_id(0), x = i % w, y = i / w % h, z = i / (w * h);
    d[(x * h + y) * 4 + z] = i;
}
kernel void rotate_in_tiles(global int *d, int shift) { int l = get_local_id(0), m = get_local_size(0); d[get_group_id(0) * m + (l + shift) % m] = l; }
kernel void rotate_backwards_in_tiles(global int *d, int shift) { int l = get_local_id(0), m = get_local_size(0); d[(int)get_group_id(0) * m + ((l - shift) % m + m) % m] = l; }
kernel void wide_product(global int *d, int big) { long at = (long)get_global_id(0) * big * big / ((long)big * big); d[at * 2] = 1; }
kernel void ulong_quotient(global int *d, ulong n) { ulong i = get_global_id(0); d[i / n * n + (n - 1 - i % n)] = (int)i; }
kernel void added_comparison(global int *d, int n) { int i = get_global_id(0); d[2 * i + (i > n)] = i; }
kernel void bool_subscript(global int *d) { int i = get_global_id(0); bool b = i & 2; d[i + 16 * b] = i; }
kernel void logical_not(global int *d) { int i = get_global_id(0); d[i + 16 * !(i % 3)] = i; }
kernel void double_not(global int *d, int flags) { int i = get_global_id(0); d[i * 2 + !!(flags & 6)] = i; }
kernel void shift_by_id(global int *d) { int i = get_global_id(0); d[(i >> 2) * 16 + (1 << (i & 3))] = i; }
kernel void round_up(global int *d, int n, int unit) { int blocks = (n + unit - 1) / unit; int i = get_global_id(0); if (i < blocks) for (int k = i * unit; k < min(n, (i + 1) * unit); k++) d[k] = i; }
kernel void align_down(global int *d, global const int *s) { uint i = get_global_id(0); d[i] = s[i & -4u] + s[(i + 3u) & ~3u]; }
kernel void compound_assignments(global int *d) { int k = get_global_id(0); k <<= 2; k |= 1; k ^= 3; k += 5; k -= 5; k *= 3; k /= 3; k &= 0x3f; k >>= 1; k %= 64; d[k] = 1; }
kernel void ternary_chain(global int *d, int a, int b) { int i = get_global_id(0); d[i < a ? i : i < b ? i + 8 : i + 16] = i; }
kernel void ternary_widths(global int *d, global const int *s, int n) { int i = get_global_id(0); d[i] = s[i > n ? i - n : n - i]; }
kernel void quotient_of_unsigned_minus(global int *d, global const int *s, uint n) { uint i = get_global_id(0); d[i] = s[(i - n) % 16u] + s[(n - 1u - i) & 15u]; }
kernel void float_floor(global int *d, global const int *s, float by) { int i = get_global_id(0); d[i] = s[convert_int_rtn((float)i * by)] + s[(int)floor(i * 0.5f)]; }
kernel void size_of_stride(global int *d) { d[get_global_id(0) * sizeof(int4) / sizeof(int)] = sizeof(double); }
enum channel { RED, GREEN, BLUE, CHANNELS };
kernel void enumerated(global uchar *d, int which) { int i = get_global_id(0); d[i * CHANNELS + BLUE] = 7; if (which == GREEN) d[i * CHANNELS + GREEN] = 5; }
kernel void enumerated_variable(global int *d) { enum channel c = get_global_id(0) & 1 ? BLUE : RED; d[get_global_id(0) * CHANNELS + c] = c; }
kernel void literals_of_all_bases(global int *d) { int i = get_global_id(0); d[i + 0x10 - 020 + ('c' - 'a') + 1u + 0xFUL] = 'z'; }
kernel void character_switch(global int *d) { int i = get_global_id(0); switch ("rgba"[i & 3]) { case 'r': d[i] = 1; break; case 'b': d[i] = 3; break; } }
kernel void size_of_expression(global int *d) { int t[6]; t[0] = 1; d[get_global_id(0) * (sizeof t / sizeof *t)] = t[0]; }
