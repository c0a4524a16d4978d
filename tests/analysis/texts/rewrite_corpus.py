"""Kernels for the tests of sub-kernels: ``(o, in)``, every work-item writes what no other one does.

``SLOT`` is a place of o of a work-item's own, made of what a global offset alone keeps right.
"""

from __future__ import annotations

SPAN = 24  # global ids stay below this in each dimension
SLOTS = SPAN**3

_HEAD = f"""
#define SLOT ((get_global_id(2) * {SPAN} + get_global_id(1)) * {SPAN} + get_global_id(0))
#define GROUP(d) get_group_id(d)
#define FLAT_GROUP ((GROUP(2) * get_num_groups(1) + GROUP(1)) * get_num_groups(0) + GROUP(0))
#define ALL(q) (q(0) + 100 * q(1) + 10000 * q(2) + 1000000 * q(3))
#define TWICE(f, x) (f(x) + f((x) & 1))
#define IN (__global ulong *o, __global const int *in)
size_t declared_twice(int x, uint d);
size_t declared_twice(int x, uint d);
ulong nothing(void);
ulong nothing(void) {{ return get_num_groups(0); }}
ulong empty() {{ return get_group_id(1); }}
size_t level3(uint d) {{ return get_group_id(d) * 7 + get_global_size(d); }}
static size_t level2(const uint d, int (unused)) {{ return level3(d) + level3(d ^ 1) + unused; }}
static inline size_t level1 (uint d) /* a ) comment */ {{ return level2(d, (int)level2(0, 1)) + nothing() + empty( ); }}
size_t declared_twice(int x, uint d) {{ return x + get_global_offset(d); }}
__attribute__((noinline)) ulong attributed(__global const int *p, uint n) {{ return p[get_group_id(0) % n]; }}
size_t several(uint a,
               uint b // the last )
               ) {{ return get_group_id(a) + get_num_groups(b); }}
ulong by_pointer(__private ulong *p, uint d) {{ *p += get_group_id(d); return get_num_groups(d); }}
ulong own_name(ulong get_group_id) {{ return get_group_id + get_num_groups(0); }}
int not_asked(int x) {{ return x * 3 + (int)get_local_id(0) + (int)get_local_size(1); }}
typedef struct {{ ulong a, b; }} Pair;
Pair pair(uint d) {{ Pair p = {{ get_group_id(d), get_global_size(d) }}; return p; }}
ulong4 vector(ulong4 v) {{ return v + (ulong4)(get_group_id(0), get_num_groups(1), get_global_offset(2), 1); }}
__attribute__((overloadable)) ulong overloaded(int a) {{ return get_group_id(0) + a; }}
__attribute__((overloadable)) ulong overloaded(float a) {{ return get_num_groups(0) * (ulong)a; }}
ulong array_parameter(ulong t[2], const uint d) {{ return t[1] + get_group_id(d); }}
__global const int *moved(__global const int *p) {{ return p + get_group_id(0); }}
ulong hidden_names(ulong4 manycl_first_group, ulong4 v) {{ return manycl_first_group.y + v.x + get_group_id(0); }}
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
"""

_EXPRESSIONS = {
    "group_0": "get_group_id(0)",
    "group_1": "get_group_id(1)",
    "group_2": "get_group_id(2)",
    "group_all": "ALL(get_group_id)",
    "groups_0": "get_num_groups(0)",
    "groups_all": "ALL(get_num_groups)",
    "size_0": "get_global_size(0)",
    "size_all": "ALL(get_global_size)",
    "offset_0": "get_global_offset(0)",
    "offset_all": "ALL(get_global_offset)",
    "flat_group": "FLAT_GROUP",
    "everything": "ALL(get_group_id) ^ ALL(get_num_groups) ^ (ALL(get_global_size) << 3) ^ ALL(get_global_offset)",
    "dynamic": "get_group_id(in[0] & 3) + get_global_size(in[1] & 3) * 5",
    "dynamic_helper": "level3(in[2] & 1)",
    "three_deep": "level1(1)",
    "nested_calls": "level3(level3(get_group_id(0)) % 3) + get_num_groups(get_group_id(get_group_id(0) & 1) & 1)",
    "two_prototypes": "declared_twice(in[3], 0) + declared_twice(1, 2)",
    "no_parameters": "nothing() + empty()",
    "attributes": "attributed(in + get_group_id(1), 3)",
    "comments": "several(0 /* ) */, 1) + get_group_id /* ( */ ( 0 )",
    "shadowed_name": "own_name(in[SLOT % 7])",
    "structure": "pair(0).a + pair(1).b",
    "vectors": "vector((ulong4)(1, 2, 3, 4)).x + vector((ulong4)(get_group_id(1))).y",
    "conditional": "get_group_id(0) > 0 ? get_num_groups(0) : get_group_id(1) ? level3(0) : 9",
    "in_sizeof": "sizeof(get_group_id(0)) + get_group_id(0)",
    "short_circuit": "(get_group_id(0) && get_group_id(1)) + ((get_num_groups(0) > 2) || nothing())",
    "comma": "(get_group_id(1), get_group_id(0))",
    "casts": "(uint)get_group_id(0) + (uchar)get_global_size(0) + (ulong)(float)get_num_groups(0)",
    "unsigned_wrap": "get_group_id(0) - get_num_groups(0)",
    "strings": "(ulong)(\")(\"[0]) + get_group_id(0) + ')'",
    "line": "__LINE__ + get_group_id(0)",
    "overloads": "overloaded(3) + overloaded(2.5f) * 100",
    "hidden_in_names": "hidden_names((ulong4)(1, 2, 3, 4), (ulong4)(5)) + get_num_groups(1)",
    "pointer_from_call": "*moved(in) + moved(in + 3)[get_group_id(1)]",
    "comments_for_arguments": "nothing(/* ) */) + empty(// )\n)",
    "calls_in_macros": "TWICE(get_group_id, TWICE(level3, 1) & 1)",
    "not_evaluated": "vec_step(get_group_id(0)) + sizeof level3(1) + empty()",
    "dim_and_local": "get_work_dim() * get_group_id(0) + get_local_size(0) + get_local_id(0)",
}

_STATEMENTS = {
    "local_reduction": """
  __local int part[64]; size_t l = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) *
    get_local_id(2)), n = get_local_size(0) * get_local_size(1) * get_local_size(2);
  part[l] = in[SLOT % 61]; barrier(CLK_LOCAL_MEM_FENCE);
  int sum = 0; for (size_t i = 0; i < n; ++i) sum += part[i];
  if (l == 0) o[FLAT_GROUP] = sum;""",
    "local_rotation": """
  __local ulong part[64]; size_t l = get_local_id(0), n = get_local_size(0);
  for (uint i = 0; i < get_num_groups(0); ++i) {
    part[l] = get_group_id(0) * i + l; barrier(CLK_LOCAL_MEM_FENCE);
    if (!get_local_id(1) && !get_local_id(2)) o[SLOT] = part[(l + 1) % n];
    barrier(CLK_LOCAL_MEM_FENCE); }""",
    "grid_stride": """
  if (get_global_id(1) == get_global_offset(1) && get_global_id(2) == get_global_offset(2))
    for (size_t i = get_global_id(0) - get_global_offset(0); i < 100; i += get_global_size(0)) o[i] = in[i % 64];""",
    "early_return": """
  if (get_group_id(0) == get_num_groups(0) - 1) return;
  o[SLOT] = 5;""",
    "out_parameter": """
  ulong x = 4; x *= by_pointer(&x, 0); by_pointer(&x, 1); o[SLOT] = x;""",
    "switched": """
  switch (get_group_id(0)) { case 0: o[SLOT] = 1; break; case 1: o[SLOT] = get_group_id(1); break;
    default: o[SLOT] = get_num_groups(1); }""",
    "loops": """
  ulong s = 0; uint d = 0; do { s = s * 10 + get_group_id(d++); } while (d < 3);
  while (s > get_global_size(0) * 1000) s /= 2; o[SLOT] = s;""",
    "shadowed_variable": """
  size_t get_global_size = 11; o[SLOT] = get_global_size + get_num_groups(0);""",
    "array": """
  ulong ids[3] = { get_group_id(0), get_group_id(1), level2(0, 2) }; o[SLOT] = ids[in[5] % 3] + ids[2];""",
    "own_prototype": """
  size_t level3(uint d); ulong empty(); o[SLOT] = level3(0) + empty();""",
    "type_of_call": """
  __typeof__(get_group_id(0)) x = get_group_id(0); __typeof__(level3(0)) y = level3(x & 1); o[SLOT] = x + y;""",
    "initial_values": """
  const size_t n = get_num_groups(0), m = n * get_group_id(1); ulong t[2] = { n, get_group_id(0) };
  ulong u = array_parameter(t, 0);
  for (size_t i = get_group_id(0), k = empty(); i < n; i += n, k++) o[SLOT] = t[i & 1] * m + u + k;""",
    "side_effects": """
  uint d = 0; o[SLOT] = get_group_id(d++) + d; """,
    "calls_a_kernel": """
  group_0(o, in); """,
    "doubles": """
  o[SLOT] = as_ulong(sqrt((double)get_group_id(0)) / get_global_size(0));""",
}

_PLAIN = {
    "plain_id": "get_global_id(0) * 3 + get_local_id(1) + get_work_dim()",
    "plain_helper": "not_asked(in[SLOT % 31]) + get_local_size(0)",
}

_PLAIN_STATEMENTS = """
__kernel void plain_local IN { __local int t[64]; t[get_local_id(0)] = in[get_local_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE); if (!get_local_id(1) && !get_local_id(2)) o[SLOT] = t[get_local_size(0) - 1 -
  get_local_id(0)]; }
"""

_NEW_EXPRESSIONS = {
    "linear_id": "get_global_linear_id()",
    "linear_helper": "linear(3) + get_group_id(0)",
    "linear_local": "get_local_linear_id() + get_enqueued_local_size(0) * get_group_id(0)",
    "linear_all": "get_global_linear_id() * 1000 + ALL(get_group_id) + get_global_offset(0)",
}


def _kernel(name: str, body: str) -> str:
    return f"__kernel void {name} IN {{ {body} }}\n"


def _expression(name: str, words: str) -> str:
    return _kernel(name, f"o[SLOT] = (ulong)({words});")


ASKING = "".join(
    [
        _HEAD,
        *(_expression(name, words) for name, words in _EXPRESSIONS.items()),
        *(_kernel(name, words) for name, words in _STATEMENTS.items()),
        *(_expression(name, words) for name, words in _PLAIN.items()),
        _PLAIN_STATEMENTS,
    ]
)
ASKING_NEW = "".join(
    [
        _HEAD,
        "ulong linear(ulong x) { return x * get_global_linear_id(); }\n",
        *(_expression(name, words) for name, words in _NEW_EXPRESSIONS.items()),
    ]
)

OLD = (*_EXPRESSIONS, *_STATEMENTS)
NEW = tuple(_NEW_EXPRESSIONS)
PLAIN = (*_PLAIN, "plain_local")
