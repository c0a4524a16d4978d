"""PoCL is told what a processor is like that its compiler does not know: in a structure of our own, and for real."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace

import pytest

from manycl.drivers.opencl import processor
from manycl.drivers.opencl.processor import introduce, nearest, rename

V2 = "cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2"
AVX = f"{V2} avx aes pclmulqdq xsave"
HASWELL = f"{AVX} avx2 fma bmi1 bmi2 f16c movbe abm rdrand fsgsbase"
SKYLAKE = f"{HASWELL} avx512f avx512bw avx512cd avx512dq avx512vl adx clflushopt clwb"


class Structure(ctypes.Structure):
    """A device as PoCL's might be: numbers, texts, and texts that only begin like the name."""

    _fields_ = (
        ("number", ctypes.c_size_t),
        ("wrong", ctypes.c_size_t),
        ("text", ctypes.c_char_p),
        ("longer", ctypes.c_char_p),
        ("cpu", ctypes.c_char_p),
        ("other", ctypes.c_char_p),
        ("rest", ctypes.c_char * 2048),
    )


def a_device(cpu: bytes) -> Structure:
    return Structure(7, 0xDEAD_BEEF, b"pthread", b"generic-rv64", cpu, b"generic", b"")


def memory() -> processor._Memory:
    return processor._Memory(Path("/proc/self/maps").read_text(encoding="ascii"))


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ("", "x86-64"),
        (V2, "nehalem"),
        (AVX, "sandybridge"),
        (f"{AVX} avx2 fma", "sandybridge"),
        (HASWELL, "haswell"),
        (f"{HASWELL} avx512f", "haswell"),
        (SKYLAKE, "skylake-avx512"),
        (f"{SKYLAKE} avx512_vp2intersect", "skylake-avx512"),
    ],
)
def test_the_nearest_processor_has_no_instruction_that_is_not_here(flags: str, name: str) -> None:
    assert nearest(set(flags.split())) == name


def test_only_the_unknown_name_is_replaced() -> None:
    device = a_device(b"generic")
    assert rename(ctypes.addressof(device), "haswell", memory())
    assert (device.cpu, device.text, device.longer, device.number) == (b"haswell", b"pthread", b"generic-rv64", 7)
    known = a_device(b"znver3")
    known.other = b"another"
    assert not rename(ctypes.addressof(known), "haswell", memory())
    assert known.cpu == b"znver3"


def test_a_device_is_told_what_is_nearest_to_this_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(processor, "nearest", lambda flags: "haswell" if "sse2" in flags else "x86-64")
    text = "".join(f"flags\t\t: {f}\n" for f in ("fpu sse2", "fpu"))
    maps = Path("/proc/self/maps").read_text(encoding="ascii")
    monkeypatch.setattr(Path, "read_text", lambda path, **_: text if path.name == "cpuinfo" else maps)
    device = a_device(b"generic")
    assert introduce(SimpleNamespace(int_ptr=ctypes.addressof(device))) == "haswell"
    assert device.cpu == b"haswell"
    monkeypatch.setattr(processor.platform, "machine", lambda: "aarch64")
    assert introduce(SimpleNamespace(int_ptr=ctypes.addressof(a_device(b"generic")))) == ""


def test_memory_that_must_not_be_written_is_left_alone() -> None:
    device = a_device(b"generic")
    at = ctypes.addressof(device)
    assert not rename(at, "haswell", processor._Memory(f"{at - 4096:x}-{at + 4096:x} r--p 0 0:0 0\n"))
    assert not rename(at, "haswell", processor._Memory(""))
    assert device.cpu == b"generic"


def test_pocl_builds_kernels_whatever_the_processor() -> None:
    """It knows its processor, or it has been told before; then there is nothing to tell."""
    import pyopencl as cl

    from manycl.drivers.survey import survey

    pocl = [r.handle.cl for r in survey().roots if "portable" in r.device.platform.lower()]
    if not pocl:
        pytest.skip("no PoCL here")
    assert introduce(pocl[0]) == ""
    context = cl.Context([pocl[0]])
    built = cl.Program(context, "kernel void f(global float *a) { a[get_global_id(0)] += native_sin(0.0f) + 1; }")
    assert built.build().all_kernels()
