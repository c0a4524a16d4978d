// Stores of every kind, and what decides about them: (int *d, const int *s, const float *f), with i.
typedef struct { int a; float b[3]; uchar c; } Record;
typedef struct { float4 v; short s[2]; } Wide;
typedef struct { int key; struct { char k; int n; } in; } __attribute__((packed)) Packed;
void put(global int *p, int at, int value);
void put(global int *p, int at, int value) { p[at] = value; }
int put_and_tell(global int *p, int at, float weight) { p[at] = (int)weight; return at + 1; }
Record make(global const float *s, int i) { Record r = { 1, { s[i], s[i] * 2 }, 3 }; return r; }
float heavy(global const float *s, int i) { float sum = 0; for (int k = 0; k < i; k++) sum += s[k] * s[k]; return sum; }
int step(int *k) { return (*k)++; }
void nested(global int *p, int n, float v) { if (n > 2) { put(p, n, (int)v); return; } put(p, n + 20, 1); }
int early(global const int *s, int i) { if (s[i] > 500) return 1; return 2; }
int counted(local int *t, int l) { t[l] = 2 * l; barrier(CLK_LOCAL_MEM_FENCE); return t[(l + 1) % 4]; }
void noted(local int *t, int l, int v) { t[l] = v; barrier(CLK_LOCAL_MEM_FENCE); }
#define ARGS global int *d, global const int *s, global const float *f
#define I int i = get_global_id(0)
kernel void record_member(ARGS) { I; global Record *r = (global Record *)d; r[i].b[1] = f[i]; r[i].c = s[i]; }
kernel void record_whole(ARGS) { I; ((global Record *)d)[i] = make(f, i); }
kernel void record_wide(ARGS) { I; global Wide *w = (global Wide *)d; Wide v; v.v = f[i]; v.s[0] = v.s[1] = 3; w[i] = v; }
kernel void record_packed(ARGS) { I; global Packed *w = (global Packed *)d; w[i].in.n = s[i]; if (i & 1) w[i].in.k = 3; }
kernel void through_prototype(ARGS) { I; put(d, i, (int)heavy(f, i)); put(d, i + 20, d[i]); }
kernel void result_and_effect(ARGS) { I; d[put_and_tell(d, 2 * i, heavy(f, i))] = 3; }
kernel void effect_in_condition(ARGS) { I; if (put_and_tell(d, i, f[i]) > 7) d[i + 20] = 1; }
kernel void nested_calls(ARGS) { I; nested(d, i, heavy(f, 3)); }
kernel void stepped_argument(ARGS) { I; d += 3; d[2 * i] = s[i]; d++; d[2 * i] = s[i]; }
kernel void shadowing(ARGS) { I; { global int *e = d; int d = 3; e[i + d] = d; } }
kernel void value_used(ARGS) { I; int v = d[i] = s[i]; if (v > 500) d[i + 20] = v; }
kernel void chain(ARGS) { I; int v; d[i] = v = d[i + 20] = s[i]; if (v > 300) d[i + 40] = d[i]; }
kernel void compound(ARGS) { I; d[i] += s[i]; d[i + 20] <<= 2; d[i + 40] ^= (int)f[i] + 1; }
kernel void crement(ARGS) { I; d[i]++; --d[i + 20]; int v = d[i + 40]--; d[i + 16] = v; }
kernel void crement_address(ARGS) { I; int k = 2 * i; d[k++] = s[i]; d[k--] += s[k]; d[++k + 40] = s[0]; }
kernel void side_effect_in_value(ARGS) { I; int k = i, j = 0; d[k] = s[k + j++] + step(&j); d[k + 20 + j] = 1; }
kernel void side_effect_in_dead_condition(ARGS) { I; int k = i, x = 0; if (s[i] > 500 && k++ > 2) x = 3; d[k] = x; }
kernel void dead_ternary_effect(ARGS) { I; int k = 2 * i; float x = s[i] > 500 ? f[k++] : 0; d[k] = x; }
kernel void ternary_of_stores(ARGS) { I; s[i] > 500 ? (d[i] = 1) : (d[i + 20] = 2); }
kernel void and_of_stores(ARGS) { I; s[i] > 500 && (d[i] = 1); s[i] > 200 || (d[i + 20] = 1); }
kernel void comma_of_stores(ARGS) { I; d[i] = (d[i + 20] = 3, s[i]); }
kernel void in_for_head(ARGS) { I; for (int k = 0; k < 2; d[20 * k + i] = k, k++); }
kernel void break_on_input(ARGS) { I; for (int k = 0; k < 8; k++) { if (s[k] > 700) break; if (s[k] < 100) continue; d[8 * i + k] = (int)f[k]; } }
kernel void search_then_store(ARGS) { I; int k = 0; float best = 0; while (k < 7 && s[k] < 600) { best = fmax(best, f[k]); k++; } d[8 * i + k] = (int)best; }
kernel void dead_loop(ARGS) { I; float sum = 0; for (int k = 0; k < 8; k++) { if (f[k] < 1) continue; sum += f[k]; if (sum > 4) break; } d[i] = sum; }
kernel void dead_declarations(ARGS) { I; const float a = f[i], b[2] = { f[i], 3 }; float t[] = { a, b[0] }; const int n = s[i] & 1; d[2 * i + n] = t[1]; }
kernel void switch_falls_through(ARGS) { I; float x = 0; switch (s[i] & 3) { case 0: x = f[i]; case 1: d[i] = x; break; case 2: x = 2; break; default: d[i + 20] = x; } }
kernel void switch_into_block(ARGS) { I; float x = 1; switch (s[i] & 3) { case 0: d[i] = 1; break; if (x > 3) { case 1: x = 3; } d[i + 20] = x; } }
kernel void goto_over(ARGS) { I; float x = f[i]; if (s[i] < 400) goto end; x *= 2; d[i] = x; end: if (i == 3) d[20 + i] = x; }
kernel void returns_by_input(ARGS) { I; if (early(s, i) == 1) return; d[i] = 4; }
kernel void pointer_walk(ARGS) { I; global int *p = d + 4 * i, *end = p + 4; while (p != end) *p++ = s[i]; }
kernel void vectors(ARGS) { I; global int4 *v = (global int4 *)d; v[i].zx = (int2)(s[i], 2); v[i].w += 3; }
kernel void vector_subscript(ARGS) { I; global int4 *v = (global int4 *)d; v[i][s[i] & 3] = 7; }
kernel void vector_cast(ARGS) { I; ((global float4 *)d)[i] = (float4)(f[i]); vstore3((float3)(1), i, (global float *)d + 80); }
kernel void bytes(ARGS) { I; vstore2((uchar2)(1), i, (global uchar *)d + 1); ((global short *)d)[40 + i] = s[i]; }
kernel void halves(ARGS) { I; vstore_half(f[i], i, (global half *)d); vstorea_half3((float3)(f[i]), i, (global half *)(d + 40)); }
kernel void through_function(ARGS) { I; float whole; float part = fract(f[i], &whole); ((global float *)d)[i] = part + whole; }
kernel void function_to_argument(ARGS) { I; float v = modf(f[i], (global float *)d + i) + sincos(f[i], (global float *)d + i + 20); d[40 + i] = v; }
kernel void own_table(ARGS) { I; int t[4] = { 3, 2, 1, 0 }; int *p = t; if (s[i] > 500) p[i & 3] = 5; d[8 * i + t[i & 3]] = f[i]; }
kernel void local_steers(ARGS) { I; local int t[4]; int l = get_local_id(0); d[4 * (i / 4) + counted(t, l) / 2] = f[i]; }
kernel void local_dropped(ARGS) { I; local int t[4]; int l = get_local_id(0); noted(t, l, s[i]); d[i] = t[3 - l]; }
kernel void local_counts(ARGS) { I; local int n; if (get_local_id(0) == 0) n = 0; barrier(CLK_LOCAL_MEM_FENCE); if (s[i] > 500) atomic_inc(&n); barrier(CLK_LOCAL_MEM_FENCE); if (n > 1) d[i] = n; }
kernel void group_copies(ARGS) { I; local int t[4]; event_t e = async_work_group_copy(t, s + 4 * (i / 4), 4, 0); wait_group_events(1, &e); e = async_work_group_copy(d + 8 * (i / 4) + (t[0] & 3), t, 4, 0); wait_group_events(1, &e); }
kernel void printed(ARGS) { I; if (s[i] < 0) printf("%d", d[i]); d[i] = printf(""); }
kernel void absent(ARGS) { I; float x = f[i]; }
kernel void dead_cases(ARGS) { I; int v = 0; switch (s[i] & 3) { case 0: v = 2; break; case 1: v = 3; default: v += 4; } d[i] = v; }
kernel void subscript_first(ARGS) { I; i[d] = s[i]; }
