"""Shared objects of OpenCL C: with the built-in functions that it calls, made once for all processes of the user."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256

from manycl import flags
from manycl.analysis.reading.options import BuildOptions, read_options
from manycl.drivers.native import builtins
from manycl.drivers.native.compiler import clang
from manycl.utilities.disk_cache import DiskCache
from manycl.utilities.kept import Kept

_objects = DiskCache("native", 256 << 20)
_made: Kept[bytes, bytes] = Kept(128)  # tens of thousands of bytes each
CONTRACTS = frozenset({"-cl-mad-enable", "-cl-unsafe-math-optimizations", "-cl-fast-relaxed-math"})
"""Build options that allow a product and a sum to be rounded once."""
REORDERS = frozenset({"-cl-unsafe-math-optimizations", "-cl-fast-relaxed-math"})
"""Build options that allow sums in another order, and products with reciprocals. NaN, infinities and -0 are kept."""
_RECIPROCALS = 18  # the clang that has a pragma for them


def compile_kernels(text: str, options: Sequence[str] = (), *, defined: frozenset[str] = frozenset()) -> bytes:
    """A shared object of OpenCL C. ``text``: preprocessed, or nearly (``##`` makes no names of built-in functions; it
    includes nothing). ``options``: a program's build options. ``defined``: the functions that the text defines itself
    by names of built-in ones. Raises BuildError with the compiler's log, SourceError for options that are none,
    DriverError where there is no compiler or it has no room."""
    compiler, before = clang.find(), ""
    if flags.checks_bounds():
        from manycl.drivers.native.compiler import checks

        before = checks.TEXT
    read = read_options(options)
    single = "-cl-single-precision-constant" in read.flags
    head = _head(read, compiler.major)
    told = compiler.identity, builtins.identity(), repr(single), before + head, repr(sorted(defined)), text
    key = "\0".join(told).encode()
    known = sha256(key).digest()
    found = _made.get(known) or _objects.get(key)
    if found is None:
        from manycl.drivers.native.builtins.prelude import prelude  # most kernels were compiled by an earlier process

        called = prelude(before + text + head, defined, single=single)
        extra = ("-cl-single-precision-constant",) if single else ()
        rest = f'{head}#line 1 "program"\n{text}\n'
        with suppress(Exception):  # whatever cannot be checked runs all the same, and the driver says so
            if before:
                shown = (*extra, "-gline-tables-only", "-fno-discard-value-names")
                found = clang.build(compiler, called + before + rest, shown, lambda read: checks.Checks(read).text)
        found = found or clang.build(compiler, called + rest, extra)
        _objects.keep(key, found)
    return _made.keep(known, found)


def _head(options: BuildOptions, major: int) -> str:
    """Return what stands before a program: what its options say. Pragmas, so that built-in functions are not
    concerned."""
    lines = ["#define sampler_t unsigned"]  # nothing here reads images
    if options.flags & CONTRACTS:
        lines.append("#pragma clang fp contract(fast)")
    if options.flags & REORDERS:
        lines.append("#pragma clang fp reassociate(on)")
        if major >= _RECIPROCALS:
            lines.append("#pragma clang fp reciprocal(on)")
    if options.version in ("", "CL1.0", "CL1.1", "CL1.2"):
        lines.append("#define pipe manycl_pipe")  # a keyword since 2.0
    for name, value in options.macros:
        lines.append(f"#undef {name}" if value is None else f"#define {name.replace('(', '(', 1)} {value}")
    return "".join(f"{line}\n" for line in lines)
