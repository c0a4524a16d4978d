"""The library that C programs are given as ``libOpenCL.so.1``: its text, and how it is compiled, once for each Python.

It is compiled where it is needed, with the C compiler that is there: it belongs to one Python.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from manycl.errors import ManyclError
from manycl.utilities.disk_cache import cache_folder
from manycl_c.signatures import LETTERS, SIGNATURES, ApiFunction

NAME = "libOpenCL.so.1"
_COMPILERS = ("cc", "gcc", "clang")
_RELEASED = ("clRelease", "clRetain")
_CHANGE = ("clCreate", "clClone", "clRelease", "clSetKernelArgSVM")
_UNCHANGED = ("clReleaseEvent",)
"""What programs call again and again, of what no argument of a kernel can be."""
_VERSIONS = ("1.0", "1.1", "1.2", "2.0", "2.1", "2.2", "3.0")


def library_folder() -> Path:
    """The folder with the library, which is made if it is not there. Raises ManyclError where it cannot be."""
    cache = cache_folder()
    if cache is None:
        raise ManyclError("MANYCL_CACHE is 0", hint="what C programs need is compiled once, and kept there")
    text = source(_shared_python())
    folder = Path(cache, "c_programs", hashlib.sha256((text + _version_script()).encode()).hexdigest()[:32])
    if not (folder / NAME).exists():
        try:
            _build(text, folder)
        except OSError as failure:
            raise ManyclError(f"{folder}: {failure.strerror or failure}") from None
    if folder.stat().st_uid != os.getuid():
        raise ManyclError(f"{folder} is somebody else's", hint="MANYCL_CACHE is a folder of one's own")
    return folder


def _shared_python() -> Path:
    """Python's own library. Raises ManyclError where Python is a program without one."""
    names: list[str | None] = [sysconfig.get_config_var(name) for name in ("INSTSONAME", "LDLIBRARY")]
    places: list[str | None] = [*map(sysconfig.get_config_var, ("LIBDIR", "LIBPL")), f"{sys.base_prefix}/lib"]
    multiarch = sysconfig.get_config_var("MULTIARCH")
    places += [f"/usr/lib/{multiarch}"] if multiarch else []
    for place in filter(None, places):
        for name in filter(None, names):
            path = Path(place) / name
            if ".so" in str(name) and path.exists():
                return path
    raise ManyclError(
        f"{sys.executable} has no shared library",
        hint="C programs need a Python that has one (Debian: apt install libpython3-dev; configure --enable-shared)",
    )


def _compiler() -> list[str]:
    """The machine's C compiler, or the one in the package ``ziglang``."""
    found = next(filter(None, map(shutil.which, _COMPILERS)), None)
    return [found] if found else [sys.executable, "-m", "ziglang", "cc"]


def _build(text: str, folder: Path) -> None:
    """Compile it beside the place where it is to be, which has it all at once."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "made"
        made.mkdir(mode=0o700)
        (made / "library.c").write_text(text, encoding="utf-8")
        (made / "versions").write_text(_version_script(), encoding="utf-8")
        command = [*_compiler(), "-shared", "-fPIC", "-O2", "-o", NAME, "library.c", "-pthread", "-ldl"]
        command += [f"-Wl,-soname,{NAME}", "-Wl,-Bsymbolic", "-Wl,--version-script=versions"]
        own = {"ZIG_GLOBAL_CACHE_DIR": scratch, "ZIG_LOCAL_CACHE_DIR": scratch}
        done = subprocess.run(command, cwd=made, capture_output=True, text=True, env=os.environ | own)
        if done.returncode:
            raise ManyclError(f"the library for C programs cannot be compiled: {done.stderr.strip()[:500]}")
        (made / "libOpenCL.so").symlink_to(NAME)
        (made / "manycl.icd").write_text(f"{folder / NAME}\n", encoding="utf-8")
        try:
            os.rename(made, folder)
        except OSError:
            if not (folder / NAME).exists():  # else another process was first
                raise


def source(python: Path) -> str:
    """All of its text, for Python's own library."""
    package = str(Path(__file__).parent.parent)
    constants = {
        "COUNT": str(len(SIGNATURES)),
        "LIBPYTHON": _quoted(str(python)),
        "PYTHON": _quoted(sys.executable),
        "FOLDER": _quoted(repr(package)),  # a text of Python's in one of C's
    }
    head = [f"#define MANYCL_{name} {value}" for name, value in constants.items()]
    return "\n".join([*head, (Path(__file__).parent / "library.c").read_text(encoding="utf-8"), *_functions(), ""])


def _quoted(text: str) -> str:
    """As a literal of C's."""
    return json.dumps(text, ensure_ascii=False)


def _functions() -> Iterator[str]:
    there = [(number, s) for number, s in enumerate(SIGNATURES) if s.is_there]
    yield from (_function(number, s) for number, s in there)
    yield "static const char *const names[MANYCL_COUNT] = {"
    yield from (f'    [{number}] = "{s.name}",' for number, s in there)
    yield "};"
    yield "static int absent(void) { return INVALID_OPERATION; }"
    yield "static void *functions[MANYCL_COUNT] = {"
    yield "    [0 ... MANYCL_COUNT - 1] = (void *)absent,"
    yield from (f"    [{number}] = (void *)own_{s.name}," for number, s in there)
    yield "};"
    yield _LAST


def _function(number: int, signature: ApiFunction) -> str:
    """A function of OpenCL's that calls Python's, or does without it."""
    name, result = signature.name, LETTERS[signature.result][1]
    types = [LETTERS[letter][1] for letter in signature.arguments]
    taken = ", ".join(f"{kind} a{i}" for i, kind in enumerate(types)) or "void"
    given = ", ".join(f"a{i}" for i in range(len(types)))
    if name.startswith("clGetExtensionFunctionAddress"):
        body = f"return address_of((const char *)a{len(types) - 1});"
    elif name == "clSetKernelArg":
        body = _SET_ARGUMENT.replace("NUMBER", str(number))
    else:
        change = "objects_change(); " if name.startswith(_CHANGE) and name not in _UNCHANGED else ""
        call = f"(({result} (*)({', '.join(types) or 'void'}))found)({given})"
        body = f"void *found = entry({number}); {change}{_answer(signature, call, len(types) - 1)}"
    exported = f'__attribute__((visibility("default"), alias("own_{name}"))) {result} {name}({taken});'
    return f"static {result} own_{name}({taken}) {{ {body} }}\n{exported}"


def _answer(signature: ApiFunction, call: str, last: int) -> str:
    if signature.result == "v":
        return f"if (found) {call};"
    if signature.result == "p":
        instead = "NULL" if signature.name == "clSVMAlloc" else f"none((int *)a{last})"
    elif signature.name.startswith(_RELEASED):
        instead = "(missing == OUT_OF_RESOURCES ? SUCCESS : missing)"  # what comes when all has ended
    else:
        instead = "missing"
    return f"return found ? {call} : {instead};"


_SET_ARGUMENT = """
    int (*set)(void *, unsigned, size_t, void *) = entry(NUMBER);
    if (!set)
        return missing;
    unsigned long since = __atomic_load_n(&changes, __ATOMIC_ACQUIRE);
    if (is_argument(a0, a1, a2, a3))
        return SUCCESS;
    int status = set(a0, a1, a2, a3);
    if (status == SUCCESS)
        argument_set(a0, a1, a2, a3, since);
    return status;
"""
_LAST = """
__attribute__((visibility("default"))) int clIcdGetPlatformIDsKHR(unsigned most, void *platforms, void *count)
{
    return is_starting ? PLATFORM_NOT_FOUND : own_clGetPlatformIDs(most, platforms, count);
}

static void *address_of(const char *name)
{
    if (name && !strcmp(name, "clIcdGetPlatformIDsKHR"))
        return (void *)clIcdGetPlatformIDsKHR;
    for (int i = 0; name && i < MANYCL_COUNT; i++)
        if (names[i] && !strcmp(names[i], name) && (entry(i) || !strncmp(name, "clGetExtension", 14)))
            return functions[i];
    return NULL;
}
"""


def _version_script() -> str:
    """Which version of OpenCL each function came with, as programs were linked with it."""
    nodes, before = [], ""
    for version in _VERSIONS:
        names = [s.name for s in SIGNATURES if s.is_there and s.version == version]
        if version == "1.0":
            names.append("clIcdGetPlatformIDsKHR")
        tail = " local: *;" if version == "1.0" else ""
        nodes.append(f"OPENCL_{version} {{ global: {' '.join(f'{n};' for n in names)}{tail} }}{before};")
        before = f" OPENCL_{version}"
    return "\n".join(nodes) + "\n"
