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
