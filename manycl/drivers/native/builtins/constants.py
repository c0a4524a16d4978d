"""Types, limits and constants that OpenCL C has by name (OpenCL C 3.0, sections 6.3, 6.15.2 and 6.15.3)."""

from __future__ import annotations

import functools

from manycl.drivers.native.builtins.types import INTEGERS, WIDTHS

_PLAIN = {
    "size_t": "unsigned long", "ptrdiff_t": "long", "intptr_t": "long", "uintptr_t": "unsigned long",
    "uchar": "unsigned char", "ushort": "unsigned short", "uint": "unsigned int", "ulong": "unsigned long",
    "cl_mem_fence_flags": "unsigned int",
}  # fmt: skip
_DIGITS = {
    "E": "2.7182818284590452354", "LOG2E": "1.4426950408889634074", "LOG10E": "0.43429448190325182765",
    "LN2": "0.69314718055994530942", "LN10": "2.3025850929940456840", "PI": "3.14159265358979323846",
    "PI_2": "1.57079632679489661923", "PI_4": "0.78539816339744830962", "1_PI": "0.31830988618379067154",
    "2_PI": "0.63661977236758134308", "2_SQRTPI": "1.12837916709551257390", "SQRT2": "1.41421356237309504880",
    "SQRT1_2": "0.70710678118654752440",
}  # fmt: skip
_VALUES = {
    "NULL": "((void *)0)",
    "NAN": '__builtin_nanf("")', "INFINITY": "__builtin_inff()", "HUGE_VALF": "__builtin_inff()",
    "HUGE_VAL": "__builtin_inf()", "MAXFLOAT": "0x1.fffffep127f",
    "FLT_DIG": "6", "FLT_MANT_DIG": "24", "FLT_MAX_10_EXP": "+38", "FLT_MAX_EXP": "+128", "FLT_MIN_10_EXP": "-37",
    "FLT_MIN_EXP": "-125", "FLT_RADIX": "2", "FLT_MAX": "0x1.fffffep127f", "FLT_MIN": "0x1.0p-126f",
    "FLT_EPSILON": "0x1.0p-23f", "FP_ILOGB0": "(-2147483647 - 1)", "FP_ILOGBNAN": "2147483647",
    "DBL_DIG": "15", "DBL_MANT_DIG": "53", "DBL_MAX_10_EXP": "+308", "DBL_MAX_EXP": "+1024", "DBL_MIN_10_EXP": "-307",
    "DBL_MIN_EXP": "-1021", "DBL_RADIX": "2", "DBL_MAX": "0x1.fffffffffffffp1023", "DBL_MIN": "0x1.0p-1022",
    "DBL_EPSILON": "0x1.0p-52",
    "HALF_DIG": "3", "HALF_MANT_DIG": "11", "HALF_MAX_10_EXP": "+4", "HALF_MAX_EXP": "+16", "HALF_MIN_10_EXP": "-4",
    "HALF_MIN_EXP": "-13", "HALF_RADIX": "2",
    "CHAR_BIT": "8", "CHAR_MAX": "SCHAR_MAX", "CHAR_MIN": "SCHAR_MIN",
    "SCHAR_MAX": "127", "SCHAR_MIN": "(-127 - 1)", "SHRT_MAX": "32767", "SHRT_MIN": "(-32767 - 1)",
    "INT_MAX": "2147483647", "INT_MIN": "(-2147483647 - 1)", "LONG_MAX": "0x7fffffffffffffffL",
    "LONG_MIN": "(-0x7fffffffffffffffL - 1)", "UCHAR_MAX": "255", "USHRT_MAX": "65535", "UINT_MAX": "0xffffffffu",
    "ULONG_MAX": "0xffffffffffffffffUL",
    "CLK_LOCAL_MEM_FENCE": "0x01", "CLK_GLOBAL_MEM_FENCE": "0x02", "CLK_IMAGE_MEM_FENCE": "0x04",
    "CLK_ADDRESS_NONE": "0", "CLK_ADDRESS_CLAMP_TO_EDGE": "2", "CLK_ADDRESS_CLAMP": "4", "CLK_ADDRESS_REPEAT": "6",
    "CLK_ADDRESS_MIRRORED_REPEAT": "8", "CLK_NORMALIZED_COORDS_FALSE": "0", "CLK_NORMALIZED_COORDS_TRUE": "1",
    "CLK_FILTER_NEAREST": "0x10", "CLK_FILTER_LINEAR": "0x20",
    "ATOMIC_FLAG_INIT": "0", "FP_FAST_FMA": "1", "FP_FAST_FMAF": "1",
}  # fmt: skip
_ENUMERATIONS = {
    "memory_order": (
        ("relaxed", "__ATOMIC_RELAXED"),
        ("acquire", "__ATOMIC_ACQUIRE"),
        ("release", "__ATOMIC_RELEASE"),
        ("acq_rel", "__ATOMIC_ACQ_REL"),
        ("seq_cst", "__ATOMIC_SEQ_CST"),
    ),
    "memory_scope": (
        ("work_item", "__OPENCL_MEMORY_SCOPE_WORK_ITEM"),
        ("sub_group", "__OPENCL_MEMORY_SCOPE_SUB_GROUP"),
        ("work_group", "__OPENCL_MEMORY_SCOPE_WORK_GROUP"),
        ("device", "__OPENCL_MEMORY_SCOPE_DEVICE"),
        ("all_svm_devices", "__OPENCL_MEMORY_SCOPE_ALL_SVM_DEVICES"),
        ("all_devices", "__OPENCL_MEMORY_SCOPE_ALL_SVM_DEVICES"),
    ),
}


@functools.cache
def _all() -> dict[str, str]:
    known = {name: f"typedef {kind} {name};" for name, kind in _PLAIN.items()}
    for kind in [scalar.name for scalar in INTEGERS] + ["half", "float", "double"]:
        for width in WIDTHS:
            known[f"{kind}{width}"] = f"typedef {kind} {kind}{width} __attribute__((ext_vector_type({width})));"
    for name, digits in _DIGITS.items():
        known[f"M_{name}"] = f"#define M_{name} {digits}"
        known[f"M_{name}_F"] = f"#define M_{name}_F {digits}f"
    known |= {name: f"#define {name} {value}" for name, value in _VALUES.items()}
    for kind, members in _ENUMERATIONS.items():
        known[kind] = f"typedef enum {{ {', '.join(f'{kind}_{n} = {v}' for n, v in members)} }} {kind};"
        known |= {f"{kind}_{name}": f"#define manycl_{kind}_{name} ({kind})" for name, _ in members}
    return known


def source(name: str) -> str | None:
    """Return what defines a type or a constant, in terms of others perhaps."""
    return _all().get(name)
