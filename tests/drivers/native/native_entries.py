"""Programs of native devices, written in C by hand: what a compiler of OpenCL C would make of kernels of these names.

The functions keep to the contract of ``manycl/drivers/native/runtime/device.h`` and share nothing with the compiler.
"""

from __future__ import annotations

import ctypes
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from manycl.drivers import choice
from manycl.drivers import kinds as kinds_module
from manycl.drivers import survey as survey_module
from manycl.drivers.driver import BuildError, DriverError, Found, Source
from manycl.drivers.kinds import Kind
from manycl.drivers.native.compiler.compiled import NativeEntry, Parameter
from manycl.drivers.native.compiler.library import compile_shared, compilers
from manycl.drivers.native.devices import found_with
from manycl.machine import Device

NAME = "entries"
MOST_ITEMS = 4096
CODE = r"""
#include "device.h"
#undef add
typedef __UINT32_TYPE__ uint;
#define MEMORY(type, i) (*(type *const *)args[i])
#define VALUE(type, i) (*(const type *)args[i])
#define KERNEL(name) __attribute__((visibility("default"))) void name(const void *const *args, \
    const struct manycl_range *r, size_t first, size_t end, char *frame)
#define UNUSED (void)args, (void)r, (void)first, (void)end, (void)frame

/* The first global id of a work-group in a dimension, without the offset. */
static size_t origin(const struct manycl_range *r, size_t group, int d) {
    for (int i = 0; i < d; i++) group /= r->groups[i];
    return group % r->groups[d] * r->local_size[d];
}
static void add_to(const void *const *args, const struct manycl_range *r, size_t first, size_t end, char *frame) {
    (void)frame;
    for (size_t i = first * r->local_size[0]; i < end * r->local_size[0]; i++)
        MEMORY(uint, 0)[i + r->offset[0]] += VALUE(uint, 1);
}
KERNEL(add) { add_to(args, r, first, end, frame); }
KERNEL(slow) {
    UNUSED;
    for (size_t i = first * r->local_size[0]; i < end * r->local_size[0]; i++) {
        uint v = MEMORY(uint, 0)[i];
        for (int n = 0; n < 200000; n++) {
            v = v * 1664525u + 1013904223u;
            __asm__ volatile("" : "+r"(v));
        }
        MEMORY(uint, 0)[i] += VALUE(uint, 1) + (v & 0u);
    }
}
KERNEL(places) {
    UNUSED;
    for (size_t g = first; g < end; g++)
        for (size_t z = 0; z < r->local_size[2]; z++)
            for (size_t y = 0; y < r->local_size[1]; y++)
                for (size_t x = 0; x < r->local_size[0]; x++) {
                    size_t i[3] = {origin(r, g, 0) + x, origin(r, g, 1) + y, origin(r, g, 2) + z};
                    MEMORY(u64, 0)[(i[2] * r->global_size[1] + i[1]) * r->global_size[0] + i[0]] =
                        (i[0] + r->offset[0]) | (i[1] + r->offset[1]) << 16 | (i[2] + r->offset[2]) << 32;
                }
}
KERNEL(turned) { /* its frame: 64 bytes of its own, then the local argument */
    UNUSED;
    size_t n = r->local_size[0];
    uint *t = (uint *)(frame + VALUE(size_t, 1));
    memset(frame, 0xA5, 64);
    for (size_t g = first; g < end; g++) {
        uint *x = MEMORY(uint, 0) + g * n + r->offset[0];
        for (size_t i = 0; i < n; i++) t[i] = x[i];
        for (size_t i = 0; i < n; i++) x[i] = t[n - 1 - i];
    }
}
KERNEL(offset_of) {
    UNUSED;
    for (size_t g = first; g < end; g++) MEMORY(u64, 0)[g] = r->offset[0];
}
KERNEL(nothing) { UNUSED; }
KERNEL(mixed) { /* (uchar a, ulong b, a struct of 12 bytes, float16-like 64 bytes, ulong *out) */
    UNUSED;
    u64 *out = MEMORY(u64, 4);
    out[0] = VALUE(unsigned char, 0);
    out[1] = VALUE(u64, 1);
    out[2] = VALUE(struct { uint a[3]; }, 2).a[2];
    out[3] = (u64)args[1] % 8 | (u64)args[2] % 4 | (u64)args[3] % 64 | (u64)frame % 128;
    out[4] = VALUE(struct { u64 a[8]; }, 3).a[7];
}
KERNEL(once) { /* counts each work-group, and takes a while for each */
    UNUSED;
    for (size_t g = first; g < end; g++) {
        for (u64 since = now(), ns = VALUE(uint, 1); ns && now() - since < ns;) relax();
        __atomic_add_fetch(MEMORY(uint, 0) + g, 1, __ATOMIC_RELAXED);
    }
}
KERNEL(busy) { /* has its core for a while; for how many ns it had it, by work-group */
    UNUSED;
    for (size_t g = first; g < end; g++) {
        u64 since = clock_of(OF_THREAD), took = 0;
        while (took < VALUE(uint, 1)) took = clock_of(OF_THREAD) - since;
        MEMORY(u64, 0)[g] = took;
    }
}
KERNEL(crossed) { /* x[i] = x[i] * 3 + y[i]: two of these in a wrong order leave something else */
    UNUSED;
    for (size_t i = first * r->local_size[0]; i < end * r->local_size[0]; i++)
        MEMORY(uint, 0)[i] = MEMORY(uint, 0)[i] * 3 + MEMORY(uint, 1)[i];
}
KERNEL(where) { /* the core that each work-group runs on; each takes a while */
    UNUSED;
    for (size_t g = first; g < end; g++) {
        uint core = 0, node = 0;
        for (u64 since = now(); now() - since < 100000;) relax();
        syscall(SYS_GETCPU, &core, &node, NULL);
        MEMORY(uint, 0)[g] = core;
    }
}
static u64 float_state_here(void) {
    u64 state;
#if defined(__x86_64__)
    uint word;
    __asm__ volatile("stmxcsr %0" : "=m"(word));
    state = word & ~0x3fu; /* less what has happened so far */
#else
    __asm__ volatile("mrs %0, fpcr" : "=r"(state));
#endif
    return state;
}
static void flush_tiny(void) {
#if defined(__x86_64__)
    uint word = 0x9fc0;
    __asm__ volatile("ldmxcsr %0" : : "m"(word));
#else
    __asm__ volatile("msr fpcr, %0" : : "r"((u64)1 << 24));
#endif
}
/* Called as a function: tiny numbers are 0 for this thread from now on; its state. */
__attribute__((visibility("default"))) u64 flushed(void) {
    flush_tiny();
    return float_state_here();
}
__attribute__((visibility("default"))) u64 floats_of_thread(void) { return float_state_here(); }
KERNEL(who) { /* what runs each work-group, and how that treats tiny numbers; with 4 MiB of private memory */
    UNUSED;
    for (size_t g = first; g < end; g++) {
        volatile char room[4 << 20];
        room[0] = room[sizeof room - 1] = 1;
        for (u64 since = now(); now() - since < 2000;) relax();
        MEMORY(u64, 0)[2 * g] = (u64)syscall(SYS_GETTID) + (u64)(room[0] - room[sizeof room - 1]);
        MEMORY(u64, 0)[2 * g + 1] = float_state_here();
    }
}
KERNEL(huge) { add_to(args, r, first, end, frame); } /* in a large frame */
KERNEL(flag) { /* ends when somebody writes to its memory */
    UNUSED;
    while (!__atomic_load_n(MEMORY(uint, 0), __ATOMIC_ACQUIRE)) relax();
}
KERNEL(laps) { /* counts, and computes what it has counted, until somebody writes to its memory */
    UNUSED;
    u64 *out = MEMORY(u64, 0), count = 0, v = 1;
    volatile double sum = 0.0;
    *__errno_location() = 77;
    while (!__atomic_load_n(out, __ATOMIC_ACQUIRE)) {
        v = v * 6364136223846793005u + 1442695040888963407u;
        sum = sum + 0.5;
        __atomic_store_n(out + 1, ++count, __ATOMIC_RELEASE);
    }
    out[2] = v, out[3] = (u64)(2.0 * sum), out[4] = (u64)*__errno_location();
}
KERNEL(last_waits) { /* the last work-group ends when somebody writes to its memory */
    UNUSED;
    while (end == r->groups[0] && !__atomic_load_n(MEMORY(uint, 0), __ATOMIC_ACQUIRE)) relax();
}
"""
MEMORY, UINT, LOCAL = Parameter("memory"), Parameter("value", 4), Parameter("local")
KERNELS: dict[str, tuple[int, tuple[Parameter, ...]]] = {
    "add": (0, (MEMORY, UINT)),
    "slow": (0, (MEMORY, UINT)),
    "places": (0, (MEMORY,)),
    "turned": (64, (MEMORY, LOCAL)),
    "nothing": (0, ()),
    "offset_of": (0, (MEMORY,)),
    "mixed": (
        1,
        (Parameter("value", 1), Parameter("value", 8), Parameter("value", 12), Parameter("value", 64), MEMORY),
    ),
    "once": (1, (MEMORY, UINT)),
    "busy": (0, (MEMORY, UINT)),
    "crossed": (0, (MEMORY, MEMORY)),
    "huge": (1 << 27, (MEMORY, UINT)),
    "where": (0, (MEMORY,)),
    "flag": (0, (MEMORY,)),
    "who": (0, (MEMORY,)),
    "last_waits": (0, (MEMORY,)),
    "laps": (0, (MEMORY,)),
}


ALL = Source(" ".join(f"kernel void {name}();" for name in KERNELS))
"""A source that defines all of them."""


@cache
def functions() -> Any:
    """All of them, as a loaded library."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "entries.c", Path(folder) / "entries.so"
        source.write_text(CODE)
        include = Path(kinds_module.__file__).parent / "native" / "runtime"
        compile_shared(compilers()[0], source, target, (f"-I{include}", "-Wno-unused-function"))
        return ctypes.CDLL(str(target))


@dataclass(frozen=True)
class HandWritten:
    name: str
    frame: int
    parameters: tuple[Parameter, ...]
    most_items: int = MOST_ITEMS
    asked: list[bool] = field(default_factory=list)
    refused: DriverError | None = None
    counted: tuple[int, ...] = ()

    def entry(self, local_size: tuple[int, int, int], dims: int, wide: bool = False) -> NativeEntry:
        assert 1 <= dims <= 3
        self.asked.append(wide)
        assert local_size[dims:] == (1,) * (3 - dims)
        address = ctypes.cast(getattr(functions(), self.name), ctypes.c_void_p).value
        assert address is not None
        return NativeEntry(address, self.frame)

    def choose_local(self, global_size: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(next(n for n in (4, 3, 2, 1) if items % n == 0) for items in global_size)


@dataclass(frozen=True)
class HandWrittenProgram:
    names: frozenset[str] = field(default_factory=lambda: frozenset(KERNELS))

    def kernel(self, name: str) -> HandWritten:
        if name not in self.names:
            raise DriverError(f"the program has no kernel {name}")
        return HandWritten(name, *KERNELS[name])


def compile_entries(source: Source, device: Device) -> HandWrittenProgram:
    """The hand-written kernels of the names that a source defines."""
    names = re.findall(r"\bkernel\s+void\s+(\w+)\s*\(", source.text)
    missing = [name for name in names if name not in KERNELS]
    if missing or not names:
        raise BuildError(f"there is no code for {', '.join(missing) or 'anything'}")
    return HandWrittenProgram(frozenset(names))


def _look(notes: list[str]) -> list[Found]:
    return [found_with(compile_entries)._replace(rank=9)]


def add(patch: pytest.MonkeyPatch, look: Callable[[list[str]], list[Found]] = _look) -> None:
    """A device that runs them, called ``entries``, to the list of kinds."""
    there = (*kinds_module.kinds(), Kind(NAME, look, ""))
    patch.setattr(survey_module, "kinds", lambda: there)
    found = survey_module.survey.__wrapped__()
    patch.setattr(choice, "survey", lambda: found)
    patch.setattr(choice, "processor_alone", lambda: None)
