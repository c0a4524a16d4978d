"""The clang that compiles kernels for this processor: which one, for what, and how it is called. MANYCL_CLANG names
one; else it is the one in the package ``ziglang``, which is a whole clang with a linker. No headers and no libraries of
the system are needed: what objects use of the C library is found in the process that loads them."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from manycl import flags
from manycl.analysis.reading.options import TOLERANT
from manycl.drivers.driver import BuildError, DriverError
from manycl.drivers.native.compiler import libc
from manycl.utilities import limited
from manycl.utilities.disk_cache import DiskCache

LOWEST = 16  # major version
_SHOWN = 4000  # characters of a compiler's messages in an error
_PROBE = (
    "int probe(float x, __global float *y, char *frame) { __local int *l = (__local int *)frame; return *l + *y + x; }"
)
_MACHINES = {"x86_64": "-march=native", "aarch64": "-mcpu=native"}
_probes = DiskCache("compilers", 1 << 20, ("manycl/drivers/native/compiler",))

KERNELS = (
    "-cl-std=CL2.0", "-cl-no-stdinc", "-O3", "-fPIC", "-w", "-fno-builtin", "-fno-math-errno", "-fno-strict-aliasing",
    "-fwrapv", "-ffp-contract=off", "-fno-asynchronous-unwind-tables", "-fstack-protector-strong", "-ferror-limit=20",
    "-mllvm", "-trap-unreachable", *TOLERANT,
)  # fmt: skip
"""How OpenCL C is compiled: to LLVM's intermediate representation and, with ``total`` divisions, to an object.
OpenCL C 2.0 has the generic address space, which takes programs of 1.2 as they are but for
the name ``pipe``; contraction is allowed by pragmas behind the built-in functions, which have none; ``-fno-builtin``:
a program's own ``expf`` is none of C's; ``-fno-strict-aliasing``: kernels use memory as several types, and other
implementations let them; ``-trap-unreachable``, ``-fstack-protector-strong``: a kernel that leaves an array of its own
ends in a fault, of which is told (``runtime/faults.h``), and does not run on into what lies behind it."""
_READ = ("-x", "cl", "-S", "-emit-llvm", "-Xclang", "-disable-llvm-passes")
_DIVISION = re.compile(r"^  (%\S+) = ([su])(div|rem) (?:exact )?((?:<(\d+) x )?i(\d+)>?) (.*)$", re.M)
_FROM_UNSIGNED = re.compile(r" = uitofp (?:<\d+ x )?i(?:16|32|64)\b")
_APART = "-fno-slp-vectorize"
"""For what makes floats of unsigned integers. LLVM's vectorizer of straight code (22, at least) has them made of as few
bits as all of the integers have without copies of their signs, and without these signs:
``(float)(ulong)-2`` is ``(float)(uint)-2`` to it."""
_FOLDED = re.compile(r"^  (?!%\S+ = (?:insertelement|shufflevector) ).* poison\b.*$", re.M)
_LINK = ("-z", "defs", "-z", "noexecstack", "-Bsymbolic", "--hash-style=gnu", "--build-id=none", "-s")


@dataclass(frozen=True, slots=True)
class Clang:
    """``compiler``, ``linker``: how commands begin. ``version``: as it says. ``flags``: which processor it compiles
    for; ``processor``, ``features``: what clang takes that to be. ``identity``: all that an object depends on but its
    text and options, as a digest."""

    compiler: tuple[str, ...]
    linker: tuple[str, ...]
    version: str
    flags: tuple[str, ...]
    processor: str
    features: tuple[str, ...]
    identity: str

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])


def is_there() -> bool:
    """Return whether there is a file that may be a clang; nothing is started."""
    given = flags.clang()
    return shutil.which(given) is not None if given else limited.wheel() is not None


def find() -> Clang:
    """The clang to compile with: tried once in a process, and kept for later ones. Raises DriverError, with what was
    tried and what it said."""
    return _found(flags.clang())


def build(clang: Clang, text: str, extra: tuple[str, ...] = (), edit: Callable[[str], str] | None = None) -> bytes:
    """A shared object of OpenCL C, with an edit of its representation. Raises BuildError with the compiler's log."""
    with limited.scratch() as name:
        folder = Path(name)
        (folder / "names.so").write_bytes(names(clang))
        command = (*clang.compiler, *clang.flags, *KERNELS, *extra)
        _run((*command, *_READ, "-o", "kernels.ll", "-"), folder, text)
        read = (folder / "kernels.ll").read_text(encoding="utf-8")
        read = total(edit(read) if edit else read)
        apart = (_APART,) if _FROM_UNSIGNED.search(read) else ()
        _run((*command, *apart, "-x", "ir", "-c", "-o", "kernels.o", "-"), folder, read)
        _link(clang, folder, "kernels.so", "kernels.o", "names.so")
        return _made(clang, folder / "kernels.so")


def total(representation: str) -> str:
    """LLVM's intermediate representation with integer divisions that have a value for all operands. Processors
    interrupt a process that divides by zero, or the least integer by -1; in OpenCL C the value is unspecified. It is
    that of a division by 1 now, as on PoCL; 0 where clang has folded it."""
    folded = _FOLDED.sub(lambda line: re.sub(r" poison\b", " zeroinitializer", line[0]), representation)
    return _DIVISION.sub(_total, folded)


def _total(match: re.Match[str]) -> str:
    to, sign, operation, type_, lanes, bits, operands = match.groups()
    dividend, divisor, *rest = parts(operands)
    if re.fullmatch(r"-?\d+", divisor) and divisor not in ("0", "-1"):
        return match[0]
    one, least, minus = (
        f"<{', '.join([f'i{bits} {value}'] * int(lanes))}>" if lanes else f"{value}"
        for value in (1, -(1 << int(bits) - 1), -1)
    )
    flag, overflow = f"<{lanes} x i1>" if lanes else "i1", "zeroinitializer"
    at = f"%manycl.{match.start()}"
    lines = f"  {at}.zero = icmp eq {type_} {divisor}, zeroinitializer\n"
    if sign == "s":
        overflow = f"{at}.overflow"
        lines += f"  {at}.minus = icmp eq {type_} {divisor}, {minus}\n"
        lines += f"  {at}.least = icmp eq {type_} {dividend}, {least}\n"
        lines += f"  {overflow} = and {flag} {at}.minus, {at}.least\n"
    return f"""{lines}  {at}.none = or {flag} {at}.zero, {overflow}
  {at}.by = select {flag} {at}.none, {type_} {one}, {type_} {divisor}
  {to} = {sign}{operation} {type_} {", ".join([dividend, f"{at}.by", *rest])}"""


def parts(text: str) -> list[str]:
    """Return the operands in a text of LLVM's representation: it is cut at the commas outside of brackets."""
    depths = accumulate((char in "[{<(") - (char in "]})>") for char in text)
    cut = (at for at, (char, depth) in enumerate(zip(text, depths, strict=True)) if char == "," and not depth)
    return [text[a + 1 : b].strip() for a, b in pairwise((-1, *cut, len(text)))]


@functools.cache
def names(clang: Clang) -> bytes:
    """Return the library of names that objects are linked against, made once for all processes. Raises BuildError."""
    key = b"names" + clang.identity.encode()
    found = _probes.get(key)
    if found is None:
        found = _build_names(clang)
        _probes.keep(key, found)
    return found


def _build_names(clang: Clang) -> bytes:
    with limited.scratch() as name:
        folder = Path(name)
        _run((*clang.compiler, *clang.flags, "-x", "assembler", "-c", "-o", "names.o", "-"), folder, libc.stand_in())
        _link(clang, folder, "names.so", "names.o", "-soname", libc.name())
        return _made(clang, folder / "names.so")


def _made(clang: Clang, path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError:
        content = b""
    if not content.startswith(b"\x7fELF"):
        raise BuildError(f"{os.path.basename(clang.linker[0])} says that it made an object, and did not")
    return content


def _link(clang: Clang, folder: Path, name: str, *words: str) -> None:
    given = (*_LINK, *words)
    if clang.linker[-1] == "-nostdlib":  # a driver of compilers: what is for the linker is marked
        given = tuple(w if w.endswith((".o", ".so")) else f"-Wl,{w}" for w in _paired(given))
    _run((*clang.linker, "-o", name, *given), folder)


def _paired(words: tuple[str, ...]) -> list[str]:
    """``-z defs`` as ``-z,defs``."""
    return re.sub(r"(-z|-soname) ", r"\1,", " ".join(words)).split(" ")


def _run(command: tuple[str, ...], folder: Path, text: str = "") -> None:
    done = limited.run(command, given=text.encode(), folder=folder)
    if done.trouble:
        log = done.log.strip()
        shown = log if len(log) <= _SHOWN else log[:_SHOWN] + " ..."
        raise BuildError(f"{os.path.basename(command[0])} compiles no object: {done.trouble}\n{shown}".rstrip())


def wheel_version() -> str:
    """``ziglang 0.17.1``, or "" where it is not known; from the name of the folder that pip made beside the package,
    as reading what is in it takes as long as opening a device."""
    wheel = limited.wheel()
    names = [path.name for path in wheel.parent.parent.glob("ziglang-*.dist-info")] if wheel is not None else []
    return names[0].removesuffix(".dist-info").replace("-", " ", 1) if len(names) == 1 else ""


@functools.cache
def _found(given: str) -> Clang:
    if given:
        path = shutil.which(given)
        if path is None:
            raise DriverError(f"MANYCL_CLANG is {given!r}, which is no program", hint="it is a clang, 16 or newer")
        linker: tuple[str, ...] = (path, "-shared", "-nostdlib")
        if (Path(os.path.realpath(path)).parent / "ld.lld").exists():
            linker = (path, "-fuse-ld=lld", "-shared", "-nostdlib")
        return _probed((path,), linker)
    wheel = limited.wheel()
    if wheel is None:
        raise DriverError("there is no clang", hint="pip install ziglang, or name one in MANYCL_CLANG")
    return _probed((str(wheel), "clang"), (str(wheel), "ld.lld", "-shared"))


def _probed(compiler: tuple[str, ...], linker: tuple[str, ...]) -> Clang:
    try:
        state = os.stat(compiler[0])
    except OSError as error:
        raise DriverError(f"{compiler[0]} cannot be read: {error}") from None
    asked = repr((compiler, linker, state.st_size, state.st_mtime_ns, _processor(), libc.name())).encode()
    known = _probes.get(asked)
    if known is not None:
        told: dict[str, Any] = json.loads(known)
        return Clang(**told | {name: tuple(value) for name, value in told.items() if isinstance(value, list)})
    clang = _tried(compiler, linker)
    _probes.keep(asked, json.dumps(asdict(clang)).encode())
    return clang


def _tried(compiler: tuple[str, ...], linker: tuple[str, ...]) -> Clang:
    """Ask a compiler what it is. Another one than the wheel's, whose works, has to compile something."""
    machine = platform.machine()
    if machine not in _MACHINES:
        raise DriverError(f"native devices know no {machine} processors", hint="they know x86_64 and aarch64")
    for_here: tuple[str, ...] = (
        "-target",
        f"{machine}-linux-{'gnu' if libc.is_glibc() else 'musl'}",
        _MACHINES[machine],
    )
    if machine == "aarch64":
        for_here += ("-mno-outline-atomics",)
    else:  # a choice in a loop is no branch: which work-item chooses what is rarely foreseen
        for_here += ("-mllvm", "-x86-cmov-converter=false")
    version, processor, features = _said(compiler, for_here)
    if int(version.partition(".")[0]) >= 21:  # which relies on it that no index leaves an array: such loops never end
        for_here += ("-mllvm", "-constraint-elimination-max-rows=0")
    if "+avx512f" in features:
        for_here += ("-mprefer-vector-width=512",)
    told = (version, for_here, processor, features, KERNELS, _APART, _LINK, libc.name(), libc.NAMES)
    identity = hashlib.sha256(repr(told).encode()).hexdigest()
    clang = Clang(compiler, linker, version, for_here, processor, features, identity)
    try:
        if flags.clang():
            build(clang, _PROBE)
    except BuildError as error:
        raise DriverError(f"{compiler[0]} does not compile OpenCL C: {error.message}", hint=_hint()) from None
    return clang


def _said(compiler: tuple[str, ...], for_here: tuple[str, ...]) -> tuple[str, str, tuple[str, ...]]:
    """Return clang's version, and the processor and features that it compiles for: its words for what it would run."""
    with limited.scratch() as folder:
        command = (*compiler, *for_here, *KERNELS, "-x", "cl", "-c", "-###", "-o", "probe.o", "-")
        done = limited.run(command, folder=Path(folder), computing=10)
    match = re.search(r"clang version (\d+(?:\.\d+)*)", done.log)
    if match and int(match[1].partition(".")[0]) < LOWEST:
        raise DriverError(f"{compiler[0]} is clang {match[1]}, which is older than {LOWEST}", hint=_hint())
    lines = [line for line in done.log.splitlines() if "-cc1" in line]
    if done.trouble or match is None or not lines:
        said = done.trouble or f"it does not say {'its version' if match is None else 'what it would run'}"
        raise DriverError(f"{compiler[0]} is no clang that works: {said}", hint=_hint())
    words = shlex.split(lines[-1])
    after = [(word, then) for word, then in pairwise(words)]
    processor = next((then for word, then in after if word == "-target-cpu"), "")
    features = {then for word, then in after if word == "-target-feature" and then.startswith("+")}
    return match[1], processor, tuple(sorted(features))


def _hint() -> str:
    return "MANYCL_CLANG names another one" if not flags.clang() else "without MANYCL_CLANG it is that of ziglang"


_CHANGING = ("processor", "cpu mhz", "bogomips", "apicid", "core id", "initial apicid", "physical id", "microcode")


@functools.cache
def _processor() -> str:
    """Return what the system says of the first processor, without what differs from one to the next."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            first = file.read(1 << 14).partition("\n\n")[0]
    except OSError:
        return platform.processor()
    return "\n".join(line for line in first.splitlines() if not line.lower().startswith(_CHANGING))
