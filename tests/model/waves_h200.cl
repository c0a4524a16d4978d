// The kernels of waves_h200.json, as they ran.
__kernel void nbody(__global const float4 *p, __global float4 *a, int n) { int i = get_global_id(0); float4 me = p[i], s = (float4)(0.0f);
  for (int j = 0; j < n; j++) { float4 d = p[j] - me; float r = rsqrt(d.x*d.x + d.y*d.y + d.z*d.z + 1e-3f); s += d * (p[j].w * r*r*r); } a[i] = s; }
__kernel void logistic(__global const float *x, __global float *y, int n) { int i = get_global_id(0); float v = x[i]; for (int k = 0; k < n; k++) v = 3.9f*v*(1.0f-v); y[i] = v; }
__kernel void triad(__global const float *a, __global const float *b, __global float *c, float s) { size_t i = get_global_id(0); c[i] = a[i]*s + b[i]; }
__kernel void stencil(__global const float *a, __global float *b, int n) { int x = get_global_id(0), y = get_global_id(1); if (x == 0 || y == 0 || x == n-1 || y == n-1) { b[y*n+x] = a[y*n+x]; return; } b[y*n+x] = 0.2f*(a[y*n+x] + a[y*n+x-1] + a[y*n+x+1] + a[(y-1)*n+x] + a[(y+1)*n+x]); }
__kernel void product(__global const float *a, __global const float *b, __global float *c, int n) { int x = get_global_id(0), y = get_global_id(1); float s = 0; for (int k = 0; k < n; k++) s += a[y*n+k]*b[k*n+x]; c[y*n+x] = s; }
__kernel void tiled(__global const float *a, __global const float *b, __global float *c, int n) { __local float s[16][16], t[16][16]; int x = get_global_id(0), y = get_global_id(1), i = get_local_id(0), j = get_local_id(1); float v = 0;
  for (int k = 0; k < n; k += 16) { s[j][i] = a[y*n+k+i]; t[j][i] = b[(k+j)*n+x]; barrier(CLK_LOCAL_MEM_FENCE); for (int q = 0; q < 16; q++) v += s[j][q]*t[q][i]; barrier(CLK_LOCAL_MEM_FENCE); } c[y*n+x] = v; }
__kernel void histogram(__global const uint *a, __global int *h, int per) { size_t i = get_global_id(0); for (int k = 0; k < per; k++) atomic_inc(&h[a[i*per+k] & 1023]); }
__kernel void mandel(__global int *o, int w, int h, int most) { int x = get_global_id(0), y = get_global_id(1); float cr = -2.2f + 3.0f*x/w, ci = -1.5f + 3.0f*y/h, a = 0, b = 0; int k = 0; while (k < most && a*a + b*b < 4.0f) { float t = a*a - b*b + cr; b = 2*a*b + ci; a = t; k++; } o[y*w+x] = k; }
__kernel void big_local(__global const float *x, __global float *y, __local float *s) { int l = get_local_id(0), g = get_global_id(0); s[l] = x[g]; barrier(CLK_LOCAL_MEM_FENCE); float v = 0; for (int r = 0; r < 64; r++) for (int k = 0; k < 128; k++) v += s[(l + k) & 127] * 0.5f; y[g] = v; }
