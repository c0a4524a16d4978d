"""Built-in functions on memory: vectors at any place, halves, atomic operations, copies of work-groups, fences (OpenCL
C 3.0, sections 6.15.7 to 6.15.12). Pointers are generic, but for those that may be to constant memory: all address
spaces are one here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from manycl.drivers.native.builtins.types import LANES, SCALARS, WIDTHS, named, spread

_VLOAD = re.compile(r"vload(2|3|4|8|16)")
_VSTORE = re.compile(r"vstore(2|3|4|8|16)")
_VLOAD_HALF = re.compile(r"vload(a?)_half(2|3|4|8|16)?")
_VSTORE_HALF = re.compile(r"vstore(a?)_half(2|3|4|8|16)?(_rte|_rtz|_rtp|_rtn)?")
_ATOMIC = re.compile(r"(manycl_unlocked_)?atom(?:ic)?_(add|sub|xchg|inc|dec|cmpxchg|min|max|and|or|xor)")
_SPACES = ("", "__constant ")
_WAYS = {"": 0, "_rte": 0, "_rtz": 1, "_rtp": 2, "_rtn": 3}
_COUNTED = ("int", "uint", "long", "ulong")


def names() -> list[str]:
    operations = ["add", "sub", "xchg", "inc", "dec", "cmpxchg", "min", "max", "and", "or", "xor"]
    found = [f"{prefix}_{name}" for prefix in ("atomic", "atom") for name in operations]
    for width in WIDTHS:
        found += [f"vload{width}", f"vstore{width}", f"vloada_half{width}", f"vload_half{width}"]
        found += [f"vstore{a}_half{width}{way}" for a in ("", "a") for way in _WAYS]
    return [
        *found,
        "vload_half",
        "vloada_half",
        *(f"vstore{a}_half{way}" for a in ("", "a") for way in _WAYS),
        *(n for n in _TEXTS if not n.startswith("manycl")),
    ]


def source(name: str, widths: Sequence[int]) -> str | None:
    """All overloads of a function."""
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
    return "\n".join(_unlocked(name, match[2]) if match[1] else _atomic(name, match[2]))


def _numbered(text: str) -> str:
    for lane, number in zip("abcdef", range(10, 16), strict=True):
        text = text.replace(f"[{lane}]", f"[{number}]")
    return text


def _vload(name: str, match: re.Match[str]) -> list[str]:
    """Element by element, as nothing more is aligned, and compilers vectorise that across work-items."""
    width = int(match[1])
    return [
        f"BUILTIN {named(kind, width)} {name}(size_t i, const {space}{kind} *p)"
        f" {{ p += i * {width}; return {_numbered(spread(kind, width, 'p[@]'))}; }}"
        for kind in SCALARS
        for space in _SPACES
    ]


def _vstore(name: str, match: re.Match[str]) -> list[str]:
    width = int(match[1])
    stores = _numbered("".join(f" p[{lane}] = x.s{lane};" for lane in LANES[:width]))
    return [
        f"BUILTIN void {name}({named(kind, width)} x, size_t i, {kind} *p) {{ p += i * {width};{stores} }}"
        for kind in SCALARS
    ]


def _step(aligned: str, width: int) -> int:
    return 4 if aligned and width == 3 else width


def _vload_half(name: str, match: re.Match[str]) -> list[str]:
    width = int(match[2] or 1)
    value = "manycl_from_half(h[0])" if width == 1 else _numbered(spread("float", width, "manycl_from_half(h[@])"))
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


def _atomic(name: str, operation: str) -> list[str]:
    """Relaxed, as OpenCL C 1.x has them."""
    order = "__ATOMIC_RELAXED"
    parts = []
    for kind in _COUNTED:
        head = f"BUILTIN {kind} {name}(volatile {kind} *p"
        if operation in ("inc", "dec"):
            parts.append(
                f"{head}) {{ return __atomic_fetch_{'add' if operation == 'inc' else 'sub'}(p, ({kind})1, {order}); }}"
            )
        elif operation == "cmpxchg":
            change = f"__atomic_compare_exchange_n(p, &x, y, 0, {order}, {order})"
            parts.append(f"{head}, {kind} x, {kind} y) {{ {change}; return x; }}")
        else:
            call = "exchange_n" if operation == "xchg" else f"fetch_{operation}"
            parts.append(f"{head}, {kind} x) {{ return __atomic_{call}(p, x, {order}); }}")
    if operation == "xchg":
        body = f"return MANYCL_FLOAT(__atomic_exchange_n((volatile uint *)p, MANYCL_BITSF(x), {order}));"
        parts.append(f"BUILTIN float {name}(volatile float *p, float x) {{ {body} }}")
    return parts


def _unlocked(name: str, operation: str) -> list[str]:
    """What an atomic operation does, for memory that no other thread uses."""
    parts = []
    for kind in _COUNTED:
        number = "ulong" if kind.endswith("long") else "uint"  # sums of these wrap around
        value = {
            "add": f"({kind})(({number})old + ({number})x)",
            "sub": f"({kind})(({number})old - ({number})x)",
            "inc": f"({kind})(({number})old + 1)",
            "dec": f"({kind})(({number})old - 1)",
            "xchg": "x",
            "cmpxchg": "old == x ? y : old",
            "min": "x < old ? x : old",
            "max": "x > old ? x : old",
            "and": "old & x",
            "or": "old | x",
            "xor": "old ^ x",
        }[operation]
        given = {"inc": "", "dec": "", "cmpxchg": f", {kind} x, {kind} y"}.get(operation, f", {kind} x")
        head = f"BUILTIN {kind} {name}(volatile {kind} *p{given})"
        parts.append(f"{head} {{ {kind} *q = ({kind} *)p; const {kind} old = *q; *q = {value}; return old; }}")
    if operation == "xchg":
        head = f"BUILTIN float {name}(volatile float *p, float x)"
        parts.append(f"{head} {{ float *q = (float *)p; const float old = *q; *q = x; return old; }}")
    return parts


def _generic_atomics() -> dict[str, str]:
    """Those of OpenCL C 2.0 and later, for all atomic types: macros, with an order and a scope where none is said."""
    call, order, scope = "__opencl_atomic_", "__ATOMIC_SEQ_CST", "__OPENCL_MEMORY_SCOPE_DEVICE"
    texts = {"atomic_init": f"#define atomic_init(p, x) {call}init(p, x)"}
    of_one = {"store": "store", "exchange": "exchange"} | {f"fetch_{n}": f"fetch_{n}" for n in _FETCHED}
    for name, made in of_one.items():
        texts[f"atomic_{name}"] = f"#define atomic_{name}(p, x) {call}{made}(p, x, {order}, {scope})"
        texts[f"atomic_{name}_explicit"] = (
            f"#define atomic_{name}_explicit(p, x, ...) manycl_{name}_(p, x, __VA_ARGS__, {scope}, 0)\n"
            f"#define manycl_{name}_(p, x, order, scope, ...) {call}{made}(p, x, order, scope)"
        )
    texts["atomic_load"] = f"#define atomic_load(p) {call}load(p, {order}, {scope})"
    texts["atomic_load_explicit"] = (
        f"#define atomic_load_explicit(p, ...) manycl_load_(p, __VA_ARGS__, {scope}, 0)\n"
        f"#define manycl_load_(p, order, scope, ...) {call}load(p, order, scope)"
    )
    for strength in ("strong", "weak"):
        name = f"compare_exchange_{strength}"
        texts[f"atomic_{name}"] = f"#define atomic_{name}(p, e, x) {call}{name}(p, e, x, {order}, {order}, {scope})"
        texts[f"atomic_{name}_explicit"] = (
            f"#define atomic_{name}_explicit(p, e, x, good, ...)"
            f" manycl_{name}_(p, e, x, good, __VA_ARGS__, {scope}, 0)\n"
            f"#define manycl_{name}_(p, e, x, good, bad, scope, ...) {call}{name}(p, e, x, good, bad, scope)"
        )
    flag = "(__opencl_atomic_exchange(p, 1, order, scope) != 0)"
    texts["atomic_flag_test_and_set"] = "#define atomic_flag_test_and_set(p) " + flag.replace("order", order).replace(
        "scope", scope
    )
    texts["atomic_flag_test_and_set_explicit"] = (
        f"#define atomic_flag_test_and_set_explicit(p, ...) manycl_flag_set_(p, __VA_ARGS__, {scope}, 0)\n"
        f"#define manycl_flag_set_(p, order, scope, ...) {flag}"
    )
    texts["atomic_flag_clear"] = f"#define atomic_flag_clear(p) {call}store(p, 0, {order}, {scope})"
    texts["atomic_flag_clear_explicit"] = (
        f"#define atomic_flag_clear_explicit(p, ...) manycl_flag_clear_(p, __VA_ARGS__, {scope}, 0)\n"
        f"#define manycl_flag_clear_(p, order, scope, ...) {call}store(p, 0, order, scope)"
    )
    return texts


_FETCHED = ("add", "sub", "or", "xor", "and", "min", "max")
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
