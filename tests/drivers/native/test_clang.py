"""The compiler of native devices: whichever is there, whatever it does."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from manycl.analysis.reading.frontend import load
from manycl.analysis.reading.options import read_options
from manycl.analysis.work_group.function import work_group_function
from manycl.drivers.driver import BuildError, DriverError
from manycl.drivers.native.builtins.prelude import prelude
from manycl.drivers.native.compiler import clang, compiling, library
from manycl.drivers.native.compiler.library import load_object
from manycl.utilities import limited
from manycl.utilities.disk_cache import DiskCache
from manycl.utilities.kept import Kept
from tests.drivers.native.builtins.native_calls import TYPES, entry, run


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of compilers from other tests."""
    monkeypatch.setattr(clang, "_found", clang._found.__wrapped__)


def program(folder: Path, body: str) -> str:
    path = folder / "clang"
    path.write_text(f"#!{sys.executable}\nimport os, sys\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_what_is_there() -> None:
    found = clang.find()
    assert clang.is_there()
    assert found.major >= clang.LOWEST
    assert found.processor not in ("", "native")
    assert found.features


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("sys.exit(3)", "ended with status 3"),
        ("os.abort()", "SIGABRT"),
        ("while True: pass", "s of computing"),
        ("x = bytearray(1 << 60)", "ended with status 1"),
        ("print('cl' * 1000)", "does not say its version"),
        ("sys.stderr.write('clang version 15.0.7')", "older than 16"),
        ("sys.stderr.write('clang version 18.1.0 -cc1 garbage')", "does not compile OpenCL C"),
        ("os.write(2, b'clang version 19.1.0 -cc1'); '-###' in sys.argv or os.kill(os.getpid(), 11)", "SIGSEGV"),
        (
            "import signal; signal.signal(25, signal.SIG_DFL)\nwhile True: os.write(1, b'x' * (1 << 20))",
            "after writing",
        ),
        ("sys.stderr.write('clang version 18.1.0 -cc1'); open('names.so', 'w').write('no')", "OpenCL C"),
    ],
)
def test_a_broken_compiler_is_an_error(body: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "OUTPUT", 4 << 20)
    run = limited.run
    monkeypatch.setattr(limited, "run", lambda command, **words: run(command, **words | {"computing": 1}))
    monkeypatch.setenv("MANYCL_CLANG", program(tmp_path, body))
    assert clang.is_there()
    with pytest.raises(DriverError, match=said) as caught:
        clang.find()
    assert "MANYCL_CLANG" in caught.value.hint


def test_a_compiler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_CLANG", "/nowhere/clang")
    assert not clang.is_there()
    with pytest.raises(DriverError, match="/nowhere/clang"):
        compiling.compile_kernels("void k(void) {}")
    monkeypatch.delenv("MANYCL_CLANG")
    monkeypatch.setattr(limited, "wheel", lambda: None)
    assert not clang.is_there()
    with pytest.raises(DriverError, match="pip install ziglang"):
        clang.find()


def test_another_compiler_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the same, by a script that is a driver of compilers and links as such."""
    wheel = limited.wheel()
    script = "args = sys.argv[1:]\nopen(os.path.dirname(__file__) + '/used', 'a').write(' '.join(args) + '\\n')\n"
    script += f"zig = {str(wheel)!r}\nif '-nostdlib' in args and '-x' not in args:\n"
    script += (
        "  words = [w for a in args for w in (a[4:].split(',') if a[:4] == '-Wl,' else [a]) if w != '-nostdlib']\n"
    )
    script += "  os.execv(zig, [zig, 'ld.lld', *words])\nos.execv(zig, [zig, 'clang', *args])"
    monkeypatch.setenv("MANYCL_CLANG", program(tmp_path, script))
    kept = compiling.compile_kernels("float another(float x) { return sqrt(x) + 3; }")
    function = load_object(kept, ctypes.CDLL).another
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float]
    assert function(16.0) == 7.0
    assert "-Wl,-z,defs" in (tmp_path / "used").read_text()


def test_what_is_known_of_a_compiler_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(clang, "_probes", DiskCache("compilers", 1 << 20, ("manycl/drivers/native/compiler",)))
    first = clang.find()
    monkeypatch.setattr(clang, "_tried", lambda *words: pytest.fail("asked again"))
    assert clang.find() == first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("void k(void) { int x = ; }", "program:1:24: error: expected expression"),
        ("void k(void) {\n unknown(1); }", "program:2:2"),
        ("double helper(double x);\nvoid k(__global double *x) { *x = helper(*x); }", "undefined symbol: helper"),
        ("#error no", "no"),
        ("void k(void) { #", "error"),
        ("\0\x80", "error"),
        ("struct s { struct s x; }; void k(void) {}", "incomplete"),
    ],
)
def test_programs_that_do_not_compile(text: str, said: str) -> None:
    with pytest.raises(BuildError, match=said):
        compiling.compile_kernels(text)


def test_errors_are_short() -> None:
    with pytest.raises(BuildError) as caught:
        compiling.compile_kernels("\n".join(f"void k{i}(void) {{ unknown{i}(); }}" for i in range(3000)))
    assert len(str(caught.value)) < 5000


def ran(text: str, options: tuple[str, ...], *values: float) -> float:
    kept = compiling.compile_kernels(text, options)
    x, r = np.array(values, np.float32), np.zeros(1, np.float32)
    load_object(kept, ctypes.CDLL).k(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(r.ctypes.data))
    return float(r[0])


PRODUCT = "void k(__global const float *x, __global float *r) { r[0] = x[0] * x[1] + x[2]; }"
FUSED = (1 + 2.0**-12, 1 + 2.0**-12, -(1 + 2.0**-11))


@pytest.mark.parametrize("option", [None, "-cl-mad-enable", "-cl-fast-relaxed-math", "-cl-unsafe-math-optimizations"])
def test_products_and_sums_are_fused_where_options_say_so(option: str | None) -> None:
    if "+fma" not in clang.find().features and "+neon" not in clang.find().features:
        pytest.skip("the processor fuses nothing")
    assert ran(PRODUCT, (option,) if option else (), *FUSED) == (2.0**-24 if option else 0.0)


def test_options_do_not_change_built_in_functions() -> None:
    """They round products before sums, whatever a program may do; NaN and infinities stay what they are."""
    text = "void k(__global const float *x, __global float *r) { r[0] = sin(x[0]) + 0 * exp(x[1]); }"
    wanted = ran(text, (), 1e7, -3.0)
    for option in ("-cl-fast-relaxed-math", "-cl-unsafe-math-optimizations", "-cl-single-precision-constant"):
        assert ran(text, (option,), 1e7, -3.0) == wanted
    text = "void k(__global const float *x, __global float *r) { r[0] = isnan(x[0]) + 2 * isinf(x[1]); }"
    assert ran(text, ("-cl-fast-relaxed-math", "-cl-finite-math-only"), np.nan, np.inf) == 3


_DIVIDED = {kind: np.iinfo(dtype) for kind, dtype in TYPES.items() if np.dtype(dtype).kind in "iu"}


@functools.cache
def divisions(kind: str) -> str:
    """Every way to divide, and to shift, in one integer type."""
    made = ((name, call, width) for name, call in _CALLS.items() for width in _WIDE)
    return "\n".join(entry(f"{name}{width}", call, kind, (kind, kind), width) for name, call, width in made)


_WIDE = (1, 3, 8)
_CALLS = {
    "div": "a / b",
    "rem": "a % b",
    "own_div": "a; v /= b",
    "own_rem": "a; v %= b",
    "left": "a << b",
    "right": "a; v >>= b",
}


def divided(name: str, a: int, b: int, bits: int) -> int:
    """What Python makes of it: C rounds quotients towards zero."""
    if name in ("left", "right"):
        return a << b % bits if name == "left" else a >> b % bits
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient if name.endswith("div") else a - b * quotient


@pytest.mark.parametrize("kind", _DIVIDED)
def test_whatever_is_divided_or_shifted_has_a_value(kind: str) -> None:
    """By zero, of the least integer by -1, and by as many bits as there are; the right one, where there is one."""
    info, rng = _DIVIDED[kind], np.random.default_rng(1)
    ends = {0, 1, 7, info.bits - 1, info.bits, info.min, info.min + 1, info.max, max(info.min, -1)}
    pairs = [(x, y) for x in ends for y in ends]
    pairs += [
        tuple(map(int, rng.integers(info.min, info.max, 2, info.dtype, endpoint=True)))
        for _ in range(24 * 6 - len(pairs))
    ]
    a, b = (np.array(side, info.dtype) for side in zip(*pairs, strict=True))
    for name in _CALLS:
        for width in _WIDE:
            found = run(divisions(kind), f"{name}{width}", kind, (a, b), width)
            for (x, y), value in zip(pairs, found, strict=True):
                if y or name in ("left", "right"):
                    want = divided(name, x, y, info.bits if width > 1 else max(info.bits, 32))
                    assert (want - int(value)) % 2**info.bits == 0, (name, width, x, y)


def test_constants_divided_by_zero_leave_the_rest_of_a_kernel_as_it_is() -> None:
    text = """void k(ulong n, __global int *r, __global const int *a) {
        const int z = 0;
        r[0] = 5 / 0; r[1] = a[1] % 0; r[2] = (-2147483647 - 1) / -1;
        if (7 / 0) r[3] = 1; else r[3] = 1;
        switch (9 % z) { case 0: r[4] = 1; break; default: r[4] = 1; }
        int4 v = (int4)(8) / (int4)(0, 2, 0, 4);
        r[5] = v.y; r[6] = v.w; r[7] = (int4)(a[7], 9, 9, 9 / 0).y;
    }"""
    found = run(text, "k", "int", [np.arange(8, dtype=np.int32)])
    assert found[3:].tolist() == [1, 1, 4, 2, 9]


def test_divisors_that_are_known_are_not_looked_at() -> None:
    lines = ["  %3 = sdiv i32 %1, 7", "  %4 = urem <2 x i16> <i16 1, i16 2>, %2, !tag !1", "  %x.y = srem i64 9, %z"]
    assert clang.total("\n".join(lines[:1])) == lines[0]
    for line in lines[1:]:
        assert len(clang.total(line).split("\n")) > 3
        assert line.split(" = ")[0] in clang.total(line).split("\n")[-1]


def test_operands_that_are_expressions_are_whole() -> None:
    """As LLVM writes constants that it does not compute where it reads programs."""
    text = """__constant int constants[2] = {1, 2};
    void k(ulong n, __global int *r, __global const int *a) {
        int2 v = as_int2((long)(8l << 32 | 64)), w = (int2)(7, 9);
        v /= as_int2((long)(3l << 32 | 64)); w %= as_int2((long)(5l << 32));
        r[0] = v.x; r[1] = v.y; r[2] = w.y; r[3] = (int)((ulong)&constants[1] / (ulong)&constants[1]);
    }"""
    assert run(text, "k", "int", [np.zeros(4, np.int32)]).tolist() == [1, 2, 4, 1]
    given = "bitcast (<1 x i64> splat (i64 64) to <2 x i32>)", "select (i1 icmp eq (ptr @a, ptr @b), i32 1, i32 2)"
    for divisor in given:
        line = f"  %1 = sdiv i32 {divisor}, {divisor}, !dbg !3"
        found = clang.total(line).split("\n")
        assert found[0].endswith(f" = icmp eq i32 {divisor}, zeroinitializer")
        assert found[-1] == f"  %1 = sdiv i32 {divisor}, %manycl.0.by, !dbg !3"


@pytest.mark.parametrize("real", ["float", "double"])
def test_floats_of_unsigned_integers_that_are_signed_ones_of_fewer_bits(real: str) -> None:
    """Also where these stand side by side."""
    for kind, to in (("char", "ushort"), ("short", "uint"), ("short", "ulong"), ("int", "ulong")):
        each = entry("k", "(REAL4)((REAL)(TO)a.x, (REAL)(TO)a.y, (REAL)(TO)a.z, (REAL)(TO)a.w)", real, (kind,), 4)
        a = np.array([-2, 5, -1, 7], TYPES[kind])
        found = run(each.replace("REAL", real).replace("TO", to), "k", real, [a], 4)
        assert found.tolist() == a.astype(TYPES[to]).astype(TYPES[real]).tolist(), (kind, to)


def test_sums_that_overflow_wrap() -> None:
    """Also where built-in functions make use of them."""
    text = entry("k", "hadd(2147483647, a) + popcount(a) + (a + b > a ? 0 : 1)", "int", ("int", "int"))
    a = np.array([2147483647, 5], np.int32)
    found = run(text, "k", "int", (a, np.array([1, 1], np.int32)))
    assert found.tolist() == [2147483647 + 31 + 1 - 2**32, (2147483647 + 5 >> 1) + 2]


def test_constants_are_of_single_precision_where_options_say_so() -> None:
    text = "void k(__global const float *x, __global float *r) { r[0] = x[0] + (0.1 - 0.1f != 0); }"
    assert ran(text, (), 0) == 1
    assert ran(text, ("-cl-single-precision-constant",), 0) == 0


def test_macros_are_the_programs() -> None:
    text = "void k(__global const float *x, __global float *r) { r[0] = exp(x[0]) + a + F(2); }"
    assert ran(text, ("-D", "a=3", "-DF(x)=x*x", "-Dy=", "-D", "bits_=1"), 0) == 8


@pytest.fixture
def another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """With a cache of the test's own; called, what this process has made itself is forgotten."""
    monkeypatch.setenv("MANYCL_CACHE", str(tmp_path / "cache"))

    def begins() -> None:
        monkeypatch.setattr(compiling, "_made", Kept(8))

    begins()
    return begins


def test_what_was_made_is_found(another_process: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    text = "float k(float x, float y) { return x * y + 1; }"
    first = compiling.compile_kernels(text)
    other = compiling.compile_kernels(text, ("-cl-mad-enable",))
    another_process()
    monkeypatch.setattr(clang, "build", lambda *words: pytest.fail("made again"))
    assert compiling.compile_kernels(text) == first
    assert compiling.compile_kernels(text, ("-cl-mad-enable",)) == other != first


def test_what_was_damaged_is_made_again(another_process: Callable[[], None], tmp_path: Path) -> None:
    text = "float k(float x) { return x + 19; }"
    first = compiling.compile_kernels(text)
    (path,) = (p for p in (tmp_path / "cache" / "native").iterdir() if p.read_bytes().endswith(first))
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:100], b"", whole[:64] + b"\0" + whole[65:], whole + b"\0"):
        path.write_bytes(damaged)
        another_process()
        assert compiling.compile_kernels(text) == first
        assert path.read_bytes() == whole


def test_objects_are_loaded_however_many_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    content = compiling.compile_kernels("int k(void) { return 5; }")
    descriptors = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(library, "_loads", count(10**9))
    first, second = load_object(content, ctypes.CDLL), load_object(content, ctypes.CDLL)
    assert first.k() == second.k() == 5
    assert first._handle != second._handle
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads assembly of x86-64")
def test_sums_that_wrap_leave_ids_consecutive() -> None:
    """A product of matrices, in variables of 31 bits, is compiled to vectors alone: there is no second loop for ids
    that might have wrapped around."""
    text = """__kernel void f(__global const float *a, __global const float *b, __global float *c, int n) {
      int i = get_global_id(0), j = get_global_id(1); float s = 0;
      for (int k = 0; k < n; k++) s += a[j * n + k] * b[k * n + i];
      c[j * n + i] = s; }"""
    source = work_group_function(
        load(text, "<source>", None, read_options(()), everything=True), "f", (16, 16, 1)
    ).source
    compiler = clang.find()
    source = prelude(source, frozenset(), single=False) + source
    command = [*compiler.compiler, *compiler.flags, *clang.KERNELS, "-x", "cl", "-S", "-o", "-", "-"]
    assembly = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    full = re.search(r"^manycl_full:(.*?)^\.Lfunc_end", assembly, re.M | re.S)
    assert full
    assert "mulps" in full[1]
    assert "mulss" not in full[1]
