"""The part of the C library that objects may use: the functions that clang or our built-in functions call. Objects are
linked against a library that has only the names, and the C library's own name: so neither its headers nor its files for
linking are needed, what is missing is found when a kernel is compiled, and loaders find the real one."""

from __future__ import annotations

import os
import platform

_MATH = (
    "acos acosh asin asinh atan atan2 atanh cbrt cos cosh erf erfc exp exp10 exp2 expm1 fma fmod hypot ldexp lgamma_r"
    " log log10 log1p log2 pow remainder remquo sin sincos sinh tan tanh tgamma"
    " ceil floor trunc rint fmaf ceilf floorf truncf rintf fmodf"  # where the processor has no instruction for it
)
_OTHERS = "memcpy memmove memset memcmp _setjmp longjmp"  # the last two: of kernels with checks
_GUARD = "__stack_chk_fail" + (" __stack_chk_guard" if platform.machine() == "aarch64" else "")
NAMES = (*_MATH.split(), *_OTHERS.split(), *_GUARD.split())


def stand_in() -> str:
    """Return assembly of a library with the names."""
    return "".join(f".globl {name}\n{name}:\n" for name in NAMES)


def is_glibc() -> bool:
    try:
        return "glibc" in (os.confstr("CS_GNU_LIBC_VERSION") or "")
    except (ValueError, OSError):
        return False


def name() -> str:
    """Return what loaders know the mathematical library by. musl's has everything in one, by any such name."""
    return "libm.so.6" if is_glibc() else "libm.so"
