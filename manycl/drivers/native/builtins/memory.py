"""Built-in functions on memory: vectors at any place, halves, atomic operations, copies of work-groups, fences (OpenCL
C 3.0, sections 6.15.7 to 6.15.12). Pointers are generic, but for those that may be to constant memory: all address
spaces are one here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from manycl.drivers.native.builtins.types import LANES, SCALARS, named, numbered, spread

_VLOAD = re.compile(r"vload(2|3|4|8|16)")
_VSTORE = re.compile(r"vstore(2|3|4|8|16)")
_VLOAD_HALF = re.compile(r"vload(a?)_half(2|3|4|8|16)?")
_VSTORE_HALF = re.compile(r"vstore(a?)_half(2|3|4|8|16)?(_rte|_rtz|_rtp|_rtn)?")
_ATOMIC = re.compile(r"(manycl_unlocked_)?atom(?:ic)?_(add|sub|xchg|inc|dec|cmpxchg|min|max|and|or|xor)")
_SPACES = ("", "__constant ")
_WAYS = {"": 0, "_rte": 0, "_rtz": 1, "_rtp": 2, "_rtn": 3}
_COUNTED = ("int", "uint", "long", "ulong")


def source(name: str, widths: Sequence[int]) -> str | None:
    """Return all overloads of a function."""
    del widths
    if name in _TEXTS:
        return _TEXTS[name]
    for pattern, made in (
        (_VLOAD, _vload),
        (_VSTORE, _vstore),
        (_VLOAD_HALF, _vload_half),
        (_VSTORE_HALF, _vstore_half),
    ):
        match = pattern.fullmatch(name)
        if match is not None:
            return "\n".join(made(name, match))
    match = _ATOMIC.fullmatch(name)
    if match is None:
        return None
    return "\n".join(_atomic(name, match[2], is_locked=not match[1]))


def _vload(name: str, match: re.Match[str]) -> list[str]:
    """Element by element, as nothing more is aligned, and compilers vectorise that across work-items."""
    width = int(match[1])
    return [
        f"BUILTIN {named(kind, width)} {name}(size_t i, const {space}{kind} *p)"
        f" {{ p += i * {width}; return {numbered(spread(kind, width, 'p[@]'))}; }}"
        for kind in SCALARS
        for space in _SPACES
    ]


def _vstore(name: str, match: re.Match[str]) -> list[str]:
    width = int(match[1])
    stores = numbered("".join(f" p[{lane}] = x.s{lane};" for lane in LANES[:width]))
    return [
        f"BUILTIN void {name}({named(kind, width)} x, size_t i, {kind} *p) {{ p += i * {width};{stores} }}"
        for kind in SCALARS
    ]


def _step(aligned: str, width: int) -> int:
    return 4 if aligned and width == 3 else width


def _vload_half(name: str, match: re.Match[str]) -> list[str]:
    width = int(match[2] or 1)
    value = "manycl_from_half(h[0])" if width == 1 else numbered(spread("float", width, "manycl_from_half(h[@])"))
    return [
        f"BUILTIN {named('float', width)} {name}(size_t i, const {space}half *p)"
        f" {{ const {space}ushort *h = (const {space}ushort *)p + i * {_step(match[1], width)}; return {value}; }}"
        for space in _SPACES
    ]


def _vstore_half(name: str, match: re.Match[str]) -> list[str]:
    width, way = int(match[2] or 1), _WAYS[match[3] or ""]
    lanes = [""] if width == 1 else [f".s{lane}" for lane in LANES[:width]]
    stores = "".join(f" h[{i}] = manycl_to_half((double)x{lane}, {way});" for i, lane in enumerate(lanes))
    return [
        f"BUILTIN void {name}({named(kind, width)} x, size_t i, half *p)"
        f" {{ ushort *h = (ushort *)p + i * {_step(match[1], width)};{stores} }}"
        for kind in ("float", "double")
    ]


def _atomic(name: str, operation: str, is_locked: bool) -> list[str]:
    """Relaxed, as OpenCL C 1.x has them, or not locked: what they do for memory that no other thread uses."""
    given, call, value = _OPERATIONS[operation]
    parts = []
    for kind in _COUNTED:
        body = f"{{kind}} *q = ({{kind}} *)p; const {{kind}} old = *q; *q = {value}; return old;"
        if is_locked:
            body = f"return __atomic_{call}, __ATOMIC_RELAXED);"
        if is_locked and operation == "cmpxchg":
            body = f"__atomic_{call}, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED); return x;"
        text = f"BUILTIN {{kind}} {name}(volatile {{kind}} *p{given}) {{{{ {body} }}}}"
        parts.append(text.format(kind=kind, number="ulong" if kind.endswith("long") else "uint"))
    if operation == "xchg":
        body = "float *q = (float *)p; const float old = *q; *q = x; return old;"
        if is_locked:
            changed = "__atomic_exchange_n((volatile uint *)p, MANYCL_BITSF(x), __ATOMIC_RELAXED)"
            body = f"return MANYCL_FLOAT({changed});"
        parts.append(f"BUILTIN float {name}(volatile float *p, float x) {{ {body} }}")
    return parts


_OPERATIONS = {
    "add": (", {kind} x", "fetch_add(p, x", "({kind})(({number})old + ({number})x)"),  # (wraps around)
    "sub": (", {kind} x", "fetch_sub(p, x", "({kind})(({number})old - ({number})x)"),
    "inc": ("", "fetch_add(p, ({kind})1", "({kind})(({number})old + 1)"),
    "dec": ("", "fetch_sub(p, ({kind})1", "({kind})(({number})old - 1)"),
    "xchg": (", {kind} x", "exchange_n(p, x", "x"),
    "cmpxchg": (", {kind} x, {kind} y", "compare_exchange_n(p, &x, y", "old == x ? y : old"),
    "min": (", {kind} x", "fetch_min(p, x", "x < old ? x : old"),
    "max": (", {kind} x", "fetch_max(p, x", "x > old ? x : old"),
    "and": (", {kind} x", "fetch_and(p, x", "old & x"),
    "or": (", {kind} x", "fetch_or(p, x", "old | x"),
    "xor": (", {kind} x", "fetch_xor(p, x", "old ^ x"),
}
"""Of each atomic operation what it is given, its call, and the value without one."""


def _generic_atomics() -> dict[str, str]:
    """Return the functions of OpenCL C 2.0 and later, for all atomic types: macros, with an order and a scope where
    none is said."""
    call, scope = "__opencl_atomic_", "__OPENCL_MEMORY_SCOPE_DEVICE"
    of_one = ("store", "exchange", *(f"fetch_{n}" for n in ("add", "sub", "or", "xor", "and", "min", "max")))
    bodies = {name: ("p, x", f"{call}{name}(p, x, {{order}}, {{scope}})") for name in of_one} | {
        "load": ("p", f"{call}load(p, {{order}}, {{scope}})"),
        "flag_test_and_set": ("p", f"({call}exchange(p, 1, {{order}}, {{scope}}) != 0)"),
        "flag_clear": ("p", f"{call}store(p, 0, {{order}}, {{scope}})"),
    }
    for name in ("compare_exchange_strong", "compare_exchange_weak"):
        bodies[name] = "p, e, x", f"{call}{name}(p, e, x, {{order}}, {{bad}}, {{scope}})"
    texts = {"atomic_init": f"#define atomic_init(p, x) {call}init(p, x)"}
    for name, (given, body) in bodies.items():
        usual = body.format(order="__ATOMIC_SEQ_CST", bad="__ATOMIC_SEQ_CST", scope=scope)
        texts[f"atomic_{name}"] = f"#define atomic_{name}({given}) {usual}"
        said = f"{given}, order, bad" if "{bad}" in body else f"{given}, order"
        texts[f"atomic_{name}_explicit"] = (
            f"#define atomic_{name}_explicit({given}, ...) manycl_{name}_({given}, __VA_ARGS__, {scope}, 0)\n"
            f"#define manycl_{name}_({said}, scope, ...) {body.format(order='order', bad='bad', scope='scope')}"
        )
    return texts


_FENCE = "__atomic_thread_fence(__ATOMIC_ACQ_REL);"
_TEXTS = _generic_atomics() | {
    "mem_fence": f"BUILTIN void mem_fence(uint flags) {{ {_FENCE} }}",
    "read_mem_fence": f"BUILTIN void read_mem_fence(uint flags) {{ {_FENCE} }}",
    "write_mem_fence": f"BUILTIN void write_mem_fence(uint flags) {{ {_FENCE} }}",
    "atomic_work_item_fence": "#define atomic_work_item_fence(flags, order, scope) __atomic_thread_fence(order)",
    "prefetch": "#define prefetch(p, n) ((void)(p), (void)(n))",
    "wait_group_events": "BUILTIN void wait_group_events(int n, event_t *events) {}",
    # whoever calls copies all: of a work-group it is to be called once
    "async_work_group_copy": (
        "#define async_work_group_copy(d, s, n, e) manycl_copy(d, s, sizeof(*(d)), n, e)\n"
        "BUILTIN event_t manycl_copy(void *d, const void *s, size_t size, size_t n, event_t e)"
        " { __builtin_memcpy(d, s, size * n); return e; }"
    ),
    "async_work_group_strided_copy": (
        "#define async_work_group_strided_copy(d, s, n, by, e) manycl_strided_copy(d, s, sizeof(*(d)), n, by, e)\n"
        "BUILTIN event_t manycl_strided_copy(__local void *d, const __global void *s, size_t size, size_t n, size_t by,"
        " event_t e) { manycl_strides((char *)d, (const char *)s, size, n, size, by * size); return e; }\n"
        "BUILTIN event_t manycl_strided_copy(__global void *d, const __local void *s, size_t size, size_t n, size_t by,"
        " event_t e) { manycl_strides((char *)d, (const char *)s, size, n, by * size, size); return e; }"
    ),
    "manycl_strides": (
        "PURE void manycl_strides(char *d, const char *s, size_t size, size_t n, size_t to, size_t from)"
        " { for (size_t i = 0; i < n; i++) __builtin_memcpy(d + i * to, s + i * from, size); }"
    ),
}
