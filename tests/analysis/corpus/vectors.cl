// Vector types, swizzles, vloadN and vstoreN, half and packed data.
kernel void float4_copy(global float4 *d, global const float4 *s) { int i = get_global_id(0); d[i] = s[i]; }
kernel void float3_copy(global float3 *d, global const float3 *s) { int i = get_global_id(0); d[i] = s[i]; }
kernel void float8_scale(global float8 *d, float by) { d[get_global_id(0)] *= by; }
kernel void write_x_w(global float4 *d, global const float *s) { int i = get_global_id(0); d[i].x = s[i]; d[i].w = -s[i]; }
kernel void write_lo(global float4 *d, global const float2 *s) { int i = get_global_id(0); d[i].lo = s[i].yx; }
kernel void write_odd(global int8 *d, global const int4 *s) { int i = get_global_id(0); d[i].odd = s[i]; }
kernel void write_hexadecimal(global int16 *d, global const int4 *s) { int i = get_global_id(0); d[i].s0aF3 = s[i]; }
kernel void write_permuted(global float4 *d, global const float4 *s) { int i = get_global_id(0); d[i].zyx = s[i].wwx; }
kernel void read_even(global float2 *d, global const float4 *s) { int i = get_global_id(0); d[i] = s[i].even; }
kernel void element_of_vector(global float4 *d, int n) { global float *p = (global float *)(d + get_global_id(0)); for (int k = 0; k < n; k++) p[k] = k; }
kernel void load_store_4(global float *d, global const float *s) { int i = get_global_id(0); vstore4(vload4(i, s) + 1.0f, i, d); }
kernel void load_store_3(global int *d, global const int *s) { int i = get_global_id(0); vstore3(vload3(i, s), i, d); }
kernel void load_unaligned(global float *d, global const float *s, int by) { int i = get_global_id(0); vstore2(vload2(i, s + by), 2 * i, d + 1); }
kernel void store_16(global uchar *d, global const uchar *s) { int i = get_global_id(0); vstore16(vload16(i, s), i, d); }
kernel void store_half_one(global half *d, global const float *s) { int i = get_global_id(0); vstore_half(s[i], 2 * i, d); }
kernel void store_half_four(global half *d, global const float4 *s) { int i = get_global_id(0); vstore_half4(s[i], i, d); }
kernel void load_half_four(global float4 *d, global const half *s) { int i = get_global_id(0); d[i] = vload_half4(i, s); }
kernel void vector_scalar_argument(global float4 *d, float4 by, int2 at) { d[get_global_id(0) + at.y] = by; }
kernel void vector_id(global int *d, int w) { int2 p = (int2)(get_global_id(0), get_global_id(1)); p += (int2)(1, 1); d[p.y * w + p.x] = p.x; }
kernel void vector_literal(global float4 *d, global const float *s) { int i = get_global_id(0); d[i] = (float4)(s[2 * i], s[2 * i + 1], (float2)(0.0f, 1.0f)); }
kernel void packed_bytes(global uchar4 *d, global const float4 *s) { int i = get_global_id(0); d[i] = convert_uchar4_sat(s[i] * 100.0f); }
kernel void as_bits(global uint *d, global const float *s) { int i = get_global_id(0); d[i] = as_uint(s[i]) >> 3; }
kernel void shuffled(global int4 *d, global const int4 *s) { int i = get_global_id(0); d[i] = shuffle(s[i], (uint4)(3, 2, 1, 0)); }
kernel void selected(global int *d, global const int *a, global const int *b, int n) { int i = get_global_id(0); d[i] = select(a[i], b[n - 1 - i], i < n / 2); }
typedef struct { float4 position; int neighbours[3]; uchar kind; } cell;
kernel void struct_of_vector(global cell *d, global const float *s) { int i = get_global_id(0); d[i].position.yz = (float2)(s[i], s[i + 1]); d[i].neighbours[1] = i; }
kernel void struct_array_loop(global cell *d, int n) { int i = get_global_id(0); for (int k = 0; k < n; k++) d[i].neighbours[k] = -k; }
union word { uint all; uchar4 part; };
kernel void union_of_bytes(global uint *d, global const uint *s) { int i = get_global_id(0); union word w; w.all = s[i]; w.part = w.part.wzyx; d[i] = w.all; }
kernel void double_precision(global double *d, global const double *s) { int i = get_global_id(0); d[i] = s[i] * 0.5; }
kernel void short_and_char(global short *d, global const char *s) { int i = get_global_id(0); d[i * 2 + 1] = s[i]; }
kernel void long_elements(global long *d, global const int *s) { int i = get_global_id(0); d[i] = (long)s[i] << 33; }
kernel void two_d_array(global int d[][6], global const int *s) { int x = get_global_id(0), y = get_global_id(1); d[y][x] = s[x]; }
kernel void load_store_2(global short *d, global const short *s, int n) { int i = get_global_id(0); for (int k = 0; k < n; k++) vstore2(vload2(i * n + k, s).yx, i * n + k, d); }
kernel void load_store_8(global int *d, global const int *s) { int i = get_global_id(0); vstore8(vload8(i, s + 3), 2 * i, d); }
kernel void load_store_16(global char *d, global const char *s) { int i = get_global_id(0); vstore16(vload16(0, s + 4 * i), i, d); }
kernel void store_3_apart(global float *d, float by) { int i = get_global_id(0); vstore3((float3)(by), i, d + i + 1); }
kernel void load_4_of_3(global float *d, global const float *s) { int i = get_global_id(0); d[i] = vload4(0, s + 3 * i).w + vload3(i + 1, s).z; }
kernel void load_half_one(global float *d, global const half *s) { int i = get_global_id(0); d[i] = vload_half(2 * i + 1, s); }
kernel void load_half_three(global float *d, global const half *s) { int i = get_global_id(0); vstore3(vload_half3(i, s), i, d); }
kernel void load_half_aligned_three(global float *d, global const half *s) { int i = get_global_id(0); d[i] = vloada_half3(i, s).z; }
kernel void store_half_two(global half *d, global const float2 *s) { int i = get_global_id(0); vstore_half2_rtz(s[i], i, d + 2); }
kernel void store_half_aligned_three(global half *d, global const float *s) { int i = get_global_id(0); vstorea_half3(vload3(i, s), i, d); }
kernel void store_half_eight(global half *d, float by) { int i = get_global_id(0); vstore_half8((float8)(by), i, d); }
kernel void write_hi_of_lo(global float8 *d, global const float2 *s) { int i = get_global_id(0); d[i].lo.hi = s[i]; }
kernel void write_through_pointer(global float4 *d, float by) { global float4 *p = d + get_global_id(0); p->y = by; (*p).zw = (float2)(by, 1.0f); }
kernel void write_swizzle_loop(global int4 *d, int n) { int i = get_global_id(0); for (int k = i * n; k < (i + 1) * n; k++) { d[k].x = k; d[k].yz += 1; } }
kernel void swizzled_private(global int *d, global const int4 *s) { int i = get_global_id(0); int4 v = s[i]; v.xy = v.yx; v.w = v.s2; d[i + v.x / 1000] = v.w; }
kernel void vector_of_ids(global int *d, int w) { int4 p = (int4)(get_global_id(0), get_global_id(1), w, 1); int2 q = p.xy * (int2)(2, 1) + p.ww; d[q.y * p.z + q.x] = q.x; }
kernel void vector_min_max(global int *d, global const int *s, int w, int h) { int2 p = (int2)(get_global_id(0), get_global_id(1)); int2 q = clamp(p + (int2)(2, -1), (int2)(0), (int2)(w - 1, h - 1)); d[p.y * w + p.x] = s[q.y * w + q.x]; }
kernel void vector_condition(global int *d, int n) { int2 p = (int2)(get_global_id(0), get_global_id(1)); if (all(p < (int2)(n, n - 2))) d[p.y * n + p.x] = any(p == 0); }
kernel void vector_shift_mask(global int *d) { int i = get_global_id(0); int2 p = ((int2)(i) >> (int2)(0, 2)) & (int2)(3, 7); d[p.x * 4 + p.y] = i; }
kernel void vector_select(global int4 *d, global const int4 *s, int4 by) { int i = get_global_id(0); d[i] = select(s[i], by, s[i] > by); }
kernel void converted_vector(global short4 *d, global const float4 *s) { int i = get_global_id(0); d[i].even = convert_short2_sat_rte(s[i].lo); }
kernel void as_other_vector(global uchar8 *d, global const int2 *s) { int i = get_global_id(0); d[i] = as_uchar8(s[i]); }
kernel void as_wider_subscript(global int *d) { uint i = get_global_id(0); ushort2 h = as_ushort2(i << 16 | i); d[h.y * 2 + 1] = h.x; }
kernel void vector_array_private(global float *d, global const float4 *s, int n) { float4 t[2]; int i = get_global_id(0); t[0] = s[i]; t[1] = t[0] * 2.0f; for (int k = 0; k < n; k++) d[i * n + k] = t[k & 1].x; }
kernel void dot_and_length(global float *d, global const float4 *a, global const float4 *b) { int i = get_global_id(0); d[i] = dot(a[i], b[i]) / length(a[i].xyz); }
kernel void bytes_of_vector(global uchar *d, global const uint4 *s) { int i = get_global_id(0); global const uchar *p = (global const uchar *)(s + i); for (int k = 0; k < 4; k++) d[4 * i + k] = p[4 * k + 1]; }
kernel void ternary_vector(global int2 *d, int n) { int i = get_global_id(0); d[i < n ? i : i + n].s1 = i; }
kernel void double_vectors(global double2 *d, global const double *s) { int i = get_global_id(0); d[i].x = s[i]; vstore2(d[i], 16 + i, (global double *)d); }
kernel void vector_increment(global int4 *d) { d[get_global_id(0)].w++; }
