"""Shared objects of OpenCL C: with the built-in functions that it calls, made once for all processes of the user."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from manycl.analysis.options import BuildOptions, read_options
from manycl.disk_cache import cache_folder
from manycl.drivers.driver import DriverError
from manycl.drivers.native import builtins, clang
from manycl.drivers.native.objects import KeptObject, Objects, own_folder

KEPT = 256 << 20
"""Bytes of objects in the user's cache folder."""
CONTRACTS = frozenset({"-cl-mad-enable", "-cl-unsafe-math-optimizations", "-cl-fast-relaxed-math"})
"""Build options that allow a product and a sum to be rounded once."""
REORDERS = frozenset({"-cl-unsafe-math-optimizations", "-cl-fast-relaxed-math"})
"""Build options that allow sums in another order, and products with reciprocals. NaN, infinities and signs of zero are
kept."""
_RECIPROCALS = 18  # the clang that has a pragma for them


def compile_kernels(
    text: str, options: Sequence[str] = (), *, defined: frozenset[str] = frozenset(), metadata: str = ""
) -> KeptObject:
    """A shared object of OpenCL C.

    ``text``: preprocessed, or nearly (``##`` makes no names of built-in functions; it includes nothing). ``options``: a
    program's build options. ``defined``: the functions that the text defines itself by names of built-in ones.
    ``metadata`` is kept with an object that is made; that of one that was there is what was kept with it. Raises
    BuildError with the compiler's log, SourceError for options that are none, DriverError where there is no compiler or
    nothing can be written.
    """
    compiler = clang.find()
    read = read_options(options)
    single = "-cl-single-precision-constant" in read.flags
    head = _head(read, compiler.major)
    key = "\0".join((compiler.identity, builtins.identity(), repr(single), head, repr(sorted(defined)), text)).encode()
    objects = store()
    found = objects.get(key)
    if found is not None:
        return found
    prelude = builtins.prelude(text + head, defined, single=single)
    extra = ("-cl-single-precision-constant",) if single else ()
    content = clang.build(compiler, f'{prelude}{head}#line 1 "program"\n{text}\n', _names(compiler, objects), extra)
    return _keep(objects, key, content, metadata)


def _names(compiler: clang.Clang, objects: Objects) -> bytes:
    key = b"names\0" + compiler.identity.encode()
    found = objects.get(key) or _keep(objects, key, clang.build_names(compiler), "")
    try:
        return found.path.read_bytes()
    except OSError:  # another process has just forgotten it
        return clang.build_names(compiler)


def _keep(objects: Objects, key: bytes, content: bytes, metadata: str) -> KeptObject:
    try:
        return objects.keep(key, content, metadata)
    except OSError as error:
        raise DriverError(f"objects cannot be written to {objects.folder}: {error}") from None


def store() -> Objects:
    """Where objects lie: in the user's cache folder, or, where there is none of the user's own, in one of this process.

    Raises DriverError if neither can be written."""
    return _store(cache_folder())


@functools.cache
def _store(cache: Path | None) -> Objects:
    if cache is not None and own_folder(cache / "native"):
        return Objects(cache / "native", KEPT)
    try:
        folder = tempfile.mkdtemp(prefix="manycl-")
    except OSError as error:
        raise DriverError(f"there is no folder for objects: {error}") from None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Objects(Path(folder), KEPT)


def _head(options: BuildOptions, major: int) -> str:
    """What stands before a program: what its options say. Pragmas, so that built-in functions are not concerned."""
    lines = []
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
