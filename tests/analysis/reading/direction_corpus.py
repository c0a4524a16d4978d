"""Small kernels, each with the directions its buffers have, written down by hand.

``expected`` has one letter per buffer, image or pipe, in the order of the parameters: r(ead), w(ritten),
b(oth), u(nused). ``runs``: harmless to run with any contents of its buffers (64 work-items in groups of 16,
buffers of 4096 bytes, scalars 3), so that the dynamic oracle can judge the same words.
"""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    name: str
    expected: str
    source: str
    runs: bool = True
    standard: str = "CL1.2"
    reason: str = ""  # must occur in the reason of every argument that is widened


_I = "int i = get_global_id(0);"


def _case(name: str, expected: str, parameters: str, body: str, before: str = "", **more: object) -> Case:
    return Case(name, expected, f"{before}\nkernel void {name}({parameters}) {{ {_I} {body} }}\n", **more)  # type: ignore[arg-type]


G = "global int *a, global int *b"
H = f"{G}, global int *c"
_P = "struct pair { int x; int y; float4 v; int list[4]; };"
_HOLD = "typedef struct { global int *p; int n; } holder;"

CASES: tuple[Case, ...] = (
    # plain accesses
    _case("copy", "wr", G, "a[i] = b[i];"),
    _case("unused", "uw", G, "b[i] = i;"),
    _case("nothing", "u", "global int *a", ""),
    _case("deref", "wr", G, "*(a + i) = *(b + i);"),
    _case("reversed_subscript", "wr", G, "i[a] = i[b];"),
    _case("compound", "br", G, "a[i] += b[i];"),
    _case("shift_assign", "b", "global int *a", "a[i] <<= 1;"),
    _case("increment", "bb", G, "a[i]++; --b[i];"),
    _case("post_value", "wb", G, "a[i] = b[i]++;"),
    _case("condition_reads", "rw", G, "if (a[i] > 3) b[i] = 1;"),
    _case("index_reads", "rw", G, "b[(a[i] & 0) + i] = i;"),
    _case("loop_reads", "rw", G, "int s = 0; for (int k = 0; k < a[0] % 8; k++) s = 3 * s + k; b[i] = s;"),
    _case("while_reads", "rw", G, "int s = a[i] & 7; while (s > (a[0] & 3)) s--; b[i] = s;"),
    _case("do_reads", "rw", G, "int s = 0; do { s++; } while (s < (a[i] & 7)); b[i] = s;"),
    _case("switch_case", "rww", H, "switch (a[i] & 3) { case 0: b[i] = 1; break; default: c[i] = 2; }"),
    _case("void_cast_reads", "r", "global int *a", "(void)a[i];"),
    _case("sizeof_reads_not", "uw", G, "b[i] = sizeof(a[i]) + sizeof(*a);"),
    _case("address_reads_not", "uw", G, "b[i] = (&a[i] == a);"),
    _case("null_test", "uw", G, "if (a != 0 && !(!a)) b[i] = 1;"),
    _case("chain", "wwr", H, "a[i] = b[i] = c[i];"),
    _case("comma", "wr", G, "int t = (a[i] = 1, b[i]); (void)t;"),
    _case("logical", "rrw", H, "c[i] = a[i] && b[i] || !a[0];"),
    _case("conditional_value", "rrw", H, "c[i] = i > 3 ? a[i] : b[i];"),
    _case("array_parameter", "br", "global int a[], global int b[16]", "a[i] += b[0]; sizeof(b);"),
    _case("two_dimensional", "wr", "global int (*a)[4], global int *b", "a[i][1] = b[i];"),
    # aliases
    _case("alias", "wr", G, "global int *p = a; p[i] = b[i];"),
    _case("alias_later", "wr", G, "global int *p; p = a; global int *q = p; q[i] = b[i];"),
    _case("alias_two", "bbw", H, "global int *p = i & 1 ? a : b; c[i] = p[i]; p[i] = 4;"),
    _case("alias_if", "rrw", H, "global int *p = a; if (i & 1) p = b; c[i] = p[i];"),
    _case(
        "alias_swap",
        "bb",
        G,
        "global int *p = a, *q = b; for (int k = 0; k < 2; k++) { q[i] = p[i]; global int *t = p; p = q; q = t; }",
    ),
    _case("walk", "wr", G, "global int *p = a + i, *q = &b[i]; *p++ = *q++; p += 3; p--;"),
    _case("step_in_condition", "rw", G, "global int *p = a; int n = 0; while (p++ < a + 5) n += *p; b[i] = n;"),
    _case("conditional_lvalue", "wwr", H, "*(i & 1 ? a : b) = c[i];"),
    _case("elvis", "rrw", H, "c[i] = (a ?: b)[i];"),
    _case("parenthesised", "wr", G, "((a))[i] = (*(&(b[i])));"),
    _case("const_alias", "rw", G, "const global int *p = a; b[i] = p[i];"),
    _case("restrict_const", "rw", "global const int *restrict a, global int *restrict b", "b[i] = a[i];"),
    _case("const_cast_away", "b", "global const int *a", "((global int *)a)[i] += 1;"),
    _case("constant_space", "rw", "constant int *a, global int *b", "b[i] = a[i];"),
    _case("volatile_space", "br", "volatile global int *a, global int *b", "a[i] = a[i] + b[i];"),
    _case("pointer_array", "bbb", H, "global int *t[3] = {a, b, c}; t[i & 1][i] = t[2][i];"),
    _case("pointer_struct", "wb", G, "holder h; h.p = a; h.n = 1; holder g = h; g.p[i] = b[i]; h.p = b;", _HOLD),
    _case("pointer_struct_one", "wr", G, "holder h = {a, 1}; h.p[i] = b[i];", _HOLD),
    _case("designated", "wr", G, "holder h = {.n = 1, .p = a}; h.p[i] = b[i];", _HOLD),
    _case("pointer_to_pointer", "wr", G, "global int *p; global int **q = &p; *q = a; p[i] = b[i];"),
    _case("typeof_alias", "wr", "global int a[], global int *b", "__typeof__(a) p = a; p[i] = b[i];"),
    _case("union_alias", "wr", G, "union { global int *p; global char *q; } u; u.p = a; u.q[i] = b[i];"),
    # casts
    _case("cast_vector", "wr", G, "((global int4 *)a)[i] = ((global int4 *)b)[i];"),
    _case("cast_char", "wr", G, "*(global char *)((global char *)a + i) = *((global uchar *)b + i);"),
    _case("cast_void", "wr", G, "global void *v = a; ((global float *)v)[i] = b[i];"),
    _case("cast_array", "wr", G, "global int (*m)[8] = (global int (*)[8])a; m[i][2] = b[i];"),
    _case("as_type", "wr", "global int *a, global float4 *b", "a[i] = as_int(b[i].x) + as_int(b->y);"),
    # members and vectors
    _case(
        "member",
        "wr",
        "global struct pair *a, global struct pair *b",
        "a[i].x = b[i].y; (a + i)->list[2] = b->list[1];",
        _P,
    ),
    _case(
        "member_swizzle",
        "br",
        "global struct pair *a, global struct pair *b",
        "a[i].v.xy = b[i].v.zw; a[i].v.w *= 2;",
        _P,
    ),
    _case("struct_copy", "wr", "global struct pair *a, global struct pair *b", "a[i] = b[i];", _P),
    _case(
        "struct_by_value",
        "wr",
        "global struct pair *a, global struct pair *b",
        "a[i].y = sum(b[i]);",
        _P + " int sum(struct pair p) { p.x = 1; return p.x + p.y; }",
    ),
    _case(
        "swizzles",
        "wr",
        "global float4 *a, global float4 *b",
        "a[i].s0 = b[i].hi.x; a[i].lo = b[i].wz; a[i].odd = b[i].even;",
    ),
    _case("arrow_swizzle", "wr", "global float4 *a, global float4 *b", "(a + i)->x = (b + i)->yz.y;"),
    _case("swizzle_compound", "b", "global float4 *a", "a[i].x += 1; a[i].y++;"),
    _case(
        "vector_literal",
        "wr",
        "global float4 *a, global float *b",
        "a[i] = (float4)(b[i], b[i + 1], (float2)(0.0f, b[0]));",
    ),
    # functions
    _case("helper_reads", "wr", G, "a[i] = get(b, i);", "int get(const global int *p, int k) { return p[k]; }"),
    _case("helper_writes", "wr", G, "put(a + i, b[i]);", "void put(global int *p, int v) { *p = v; }"),
    _case(
        "helper_swapped",
        "rbw",
        H,
        "mv(b, a, i); mv(c, b, i);",
        "void mv(global int *d, global int *s, int k) { d[k] = s[k]; }",
    ),
    _case(
        "helper_returns",
        "wr",
        G,
        "*at(a, i) = *at(b, i);",
        "global int *at(global int *p, int k) { return p + k; }",
    ),
    _case(
        "helper_chooses",
        "bbr",
        H,
        "pick(a, b, i)[i] = 0; c[i] + pick(b, a, i)[0];",
        "global int *pick(global int *p, global int *q, int k) { if (k & 1) return p; return q; }",
    ),
    _case(
        "helper_out",
        "wr",
        G,
        "global int *p; find(a, &p); p[i] = b[i];",
        "void find(global int *p, global int **out) { *out = p; }",
    ),
    _case(
        "helper_through",
        "rw",
        G,
        "global int *p = a; b[i] = second(&p);",
        "int second(global int **pp) { return (*pp)[1]; }",
    ),
    _case(
        "helper_struct",
        "wr",
        G,
        "holder h = make(a); store(h, b[i], i);",
        _HOLD + "holder make(global int *p) { holder h; h.p = p; h.n = 2; return h; }"
        " void store(holder h, int v, int k) { h.p[k] = v; }",
    ),
    _case(
        "helper_declared_first",
        "wr",
        G,
        "late(a, b, i);",
        "void late(global int *p, global int *q, int k);",
        runs=True,
    ),
    _case(
        "kernel_calls_kernel",
        "rw",
        G,
        "inner_kernel(b, a);",
        "kernel void inner_kernel(global int *d, global int *s) { d[get_global_id(0)] = s[get_global_id(0)]; }",
    ),
    _case(
        "overloaded",
        "wr",
        "global float *a, global int *b",
        "f(a, i); f(b, i);",
        "void __attribute__((overloadable)) f(global float *p, int k) { p[k] = 1; }"
        " int __attribute__((overloadable)) f(global int *p, int k) { return p[k]; }",
        runs=False,
    ),
    _case(
        "macro",
        "wr",
        G,
        "SET(a, i, GET(b)); NEGATE(b);",
        "#define GET(p) p[i]\n#define SET(p, k, v) do { (p)[k] = (v); } while (0)\n#define M -1\n"
        "#define NEGATE(p) (void)(1 -M * p[i])",
    ),
    # built-in functions
    _case("vectors_of_pointer", "wr", "global float *a, global float *b", "vstore4(vload4(i, b), i, a);"),
    _case(
        "half_vectors",
        "wr",
        "global half *a, global half *b",
        "vstore_half(vload_half(i, b), i, a); vstorea_half4_rte(vloada_half4(i, b), i, a);",
    ),
    _case("vector_three", "wr", "global int *a, constant int *b", "vstore3(vload3(i, b), i, a);"),
    _case(
        "async_in",
        "rw",
        "global int *a, global int *b, local int *l",
        "event_t e = async_work_group_copy(l, a, 16, 0); wait_group_events(1, &e); b[i] = l[i & 15];",
    ),
    _case(
        "async_out",
        "wr",
        "global int *a, global int *b, local int *l",
        "l[get_local_id(0)] = b[i]; barrier(CLK_LOCAL_MEM_FENCE);"
        "event_t e = async_work_group_copy(a + 16 * get_group_id(0), l, 16, 0); wait_group_events(1, &e);",
    ),
    _case(
        "async_strided",
        "rw",
        "global int *a, global int *b, local int *l",
        "event_t e = async_work_group_strided_copy(l, a, 16, 2, 0); wait_group_events(1, &e); b[i] = l[0];",
    ),
    _case("prefetched", "ru", G, "prefetch(a, 16);", runs=True),
    _case("atomics", "bbb", H, "atomic_add(a + i, 1); atomic_cmpxchg(&b[i], 0, 1); atomic_inc(c);"),
    _case(
        "old_atomics",
        "bb",
        G,
        "atom_add(a, 1); atom_min(b, 3);",
        "#pragma OPENCL EXTENSION cl_khr_global_int32_base_atomics : enable",
    ),
    _case("atomic_exchange_float", "b", "volatile global float *a", "atomic_xchg(a, 2.0f);"),
    _case(
        "out_parameters",
        "wwrw",
        "global float *a, global int *b, global float *c, global float *d",
        "fract(c[i], a + i); frexp(c[i], &b[i]); modf(c[i], d + i);",
    ),
    _case(
        "out_parameters_more",
        "wwrw",
        "global float *a, global int *b, global float *c, global float *d",
        "sincos(c[i], a + i); lgamma_r(c[i], b + i); remquo(c[i], 2.0f, b + i); d[i] = 1;",
    ),
    _case("printf_string", "ru", "global char *a, global int *b", 'printf("%s %p", a, 0);', runs=False),
    # local and private memory are nobody's business
    _case(
        "through_local",
        "rw",
        "global int *a, global int *b",
        "local int t[16]; t[get_local_id(0)] = a[i]; barrier(CLK_LOCAL_MEM_FENCE); b[i] = t[15];",
    ),
    _case("through_private", "rw", G, "int t[4]; t[i & 3] = a[i]; int *p = t; p[0] += 1; b[i] = p[i & 3];"),
    # widened, with a reason
    _case("address_to_integer", "bw", G, "b[i] = ((ulong)a >> 4) & 1;", runs=False, reason="integer"),
    _case("address_from_integer", "bb", G, "*(global int *)((ulong)a + 4) = b[i];", runs=False, reason="integer"),
    _case(
        "unknown_function",
        "br",
        G,
        "extern_put(a); int t = b[i];",
        "void extern_put(global int *p);",
        runs=False,
        reason="extern_put",
    ),
    _case(
        "unknown_function_const",
        "br",
        "global const int *a, global int *b",
        "look(a); int t = b[i];",
        "void look(const global int *p);",
        runs=False,
        reason="look",
    ),
    _case(
        "unknown_gets_struct",
        "br",
        G,
        "holder h = {a, 1}; give(&h); int t = b[i];",
        _HOLD + "void give(holder *h);",
        runs=False,
        reason="give",
    ),
    _case("pun_bytes", "wb", G, "global int *p = a; *(ulong *)&p = b[i]; *p = 1;", runs=False),
    _case("pun_union", "wb", G, "union { global int *p; ulong u; } w; w.u = b[i]; *w.p = 1;", runs=False),
    _case("pointer_distance", "bb", G, "ulong d = b - a; a[d] = 1;", runs=False, reason="distance"),
    # images, samplers, pipes, later standards
    _case(
        "image_read",
        "rw",
        "read_only image2d_t m, sampler_t s, global float4 *b",
        "b[i] = read_imagef(m, s, (int2)(i, 0)) + get_image_width(m);",
        runs=False,
    ),
    _case(
        "image_write",
        "wr",
        "write_only image2d_t m, global float4 *b",
        "write_imagef(m, (int2)(i, 0), b[i]);",
        runs=False,
    ),
    _case(
        "image_helper",
        "rwu",
        "image2d_t m, write_only image2d_t n, read_only image3d_t o",
        "blit(n, m, i);",
        "void blit(write_only image2d_t d, read_only image2d_t s, int k)"
        " { write_imageui(d, (int2)(k, 0), read_imageui(s, (int2)(k, 0))); }",
        runs=False,
    ),
    _case(
        "image_asked",
        "uw",
        "read_only image2d_t m, global int *b",
        "b[i] = get_image_height(m) + get_image_dim(m).x;",
        runs=False,
    ),
    _case(
        "image_both",
        "b",
        "read_write image2d_t m",
        "write_imagef(m, (int2)(i, 0), read_imagef(m, (int2)(i, 0)));",
        runs=False,
        standard="CL2.0",
    ),
    _case(
        "image_read_of_both",
        "r",
        "read_write image2d_t m",
        "float4 f = read_imagef(m, (int2)(i, 0));",
        runs=False,
        standard="CL2.0",
    ),
    _case(
        "c11_atomics",
        "rwwbb",
        "global atomic_int *l, global atomic_int *s, global atomic_int *n, global atomic_int *f, global int *e",
        "int t = atomic_load(l); atomic_store_explicit(s, 1, memory_order_relaxed, memory_scope_device);"
        " atomic_init(n, 3); atomic_compare_exchange_strong(f, e, 3); atomic_fetch_add(f, 2);",
        runs=False,
        standard="CL2.0",
    ),
    _case(
        "c11_flags",
        "bw",
        "global atomic_flag *f, global atomic_flag *g",
        "atomic_flag_test_and_set(f); atomic_flag_clear(g);",
        runs=False,
        standard="CL2.0",
    ),
    _case(
        "compiler_atomics",
        "rwb",
        "global atomic_int *l, global atomic_int *s, global atomic_int *f",
        "int t = __opencl_atomic_load(l, memory_order_relaxed, memory_scope_device);"
        " __opencl_atomic_store(s, t, memory_order_relaxed, memory_scope_device);"
        " __opencl_atomic_fetch_add(f, 1, memory_order_relaxed, memory_scope_device);",
        runs=False,
        standard="CL2.0",
    ),
    _case(
        "generic_pointer",
        "wr",
        G,
        "int x; int *p = &x; if (i) p = a; *p = 1; int *q = b; x = *q;",
        runs=False,
        standard="CL2.0",
    ),
    _case("to_global_cast", "wr", G, "int *p = a; *to_global(p) = b[i];", runs=False, standard="CL2.0"),
    _case(
        "pipes",
        "bbwr",
        "read_only pipe int p, write_only pipe int q, global int *a, global int *b",
        "read_pipe(p, a + i); write_pipe(q, b + i);",
        runs=False,
        standard="CL2.0",
    ),
    _case(
        "block_captures",
        "wrr",
        H,
        "void (^f)(void) = ^{ a[i] = b[i]; }; f(); int t = c[i];",
        runs=False,
        standard="CL2.0",
    ),
    _case(
        "kept_in_program_scope",
        "br",
        G,
        "kept = a; int t = b[i];",
        "global int *global kept;",
        runs=False,
        standard="CL2.0",
        reason="program scope",
    ),
    _case(
        "taken_from_program_scope",
        "ww",
        G,
        "held[i] = 1;",
        "global int *global held;",
        runs=False,
        standard="CL2.0",
        reason="program scope",
    ),
    _case(
        "nested_pointers",
        "bb",
        "global holder *a, global int *b",
        "a[i].p[0] = b[i];",
        _HOLD,
        runs=False,
        standard="CL2.0",
        reason="loaded",
    ),
)

CASES = tuple(
    case._replace(source=case.source + "void late(global int *p, global int *q, int k) { p[k] = q[k]; }\n")
    if case.name == "helper_declared_first"
    else case
    for case in CASES
)
