"""C programs for tests: compiled with a header that is made from the table of OpenCL's functions, run by plain PoCL
(with the loader of PyOpenCL's wheel) and by ``manycl exec``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pyopencl as cl
import pytest

from manycl.errors import ManyclError
from manycl_c.signatures import LETTERS, SIGNATURES

HERE = Path(__file__).parent
_WHEEL = Path(str(cl.__file__)).parent
_ENUMERATIONS = ("status_code", "device_type", "device_info", "platform_info", "context_info", "mem_info", "mem_flags")
_MORE = ("command_queue_info", "event_info", "command_execution_status", "kernel_info", "kernel_work_group_info")
_LAST = ("program_info", "program_build_info", "profiling_info", "map_flags", "command_type", "mem_object_type")
_PREFIXES = {
    "status_code": "",
    "device_type": "DEVICE_TYPE_",
    "device_info": "DEVICE_",
    "platform_info": "PLATFORM_",
    "context_info": "CONTEXT_",
    "mem_info": "MEM_",
    "mem_flags": "MEM_",
    "command_queue_info": "QUEUE_",
    "event_info": "EVENT_",
    "command_execution_status": "",
    "kernel_info": "KERNEL_",
    "kernel_work_group_info": "KERNEL_",
    "program_info": "PROGRAM_",
    "program_build_info": "PROGRAM_BUILD_",
    "profiling_info": "PROFILING_COMMAND_",
    "map_flags": "MAP_",
    "command_type": "COMMAND_",
    "mem_object_type": "MEM_OBJECT_",
}


def _loader() -> Path | None:
    """The loader in PyOpenCL's wheel, with which plain programs find PoCL."""
    found = sorted((_WHEEL / ".libs").glob("libOpenCL*.so*")) if (_WHEEL / ".libs").is_dir() else []
    return found[0] if found else None


def _driver() -> Path | None:
    """PoCL, beside it."""
    return next(iter(sorted((_WHEEL / ".libs").glob("libpocl*.so*"))), None)


@cache
def why_not() -> str:
    """Why C programs cannot be tested here; empty where they can."""
    from manycl_c.building import _shared_python

    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        return "no C compiler"
    if _loader() is None or _driver() is None:
        return "PyOpenCL's wheel has no loader, or PoCL is not beside it"
    try:
        _shared_python()
    except ManyclError as error:
        return error.message
    return ""


needs_c = pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can be tested")


def header() -> str:
    """What the programs need of OpenCL: values by name, and all functions."""
    lines = ["#include <stddef.h>", "#include <stdint.h>"]
    for kind in (*_ENUMERATIONS, *_MORE, *_LAST):
        values = getattr(cl, kind)
        for name in dir(values):
            value = getattr(values, name)
            if name.isupper() and isinstance(value, int):
                lines.append(f"#define CL_{_PREFIXES[kind]}{name} ({value})")
    for signature in SIGNATURES:
        if signature.is_there:
            taken = ", ".join(LETTERS[letter][1] for letter in signature.arguments) or "void"
            lines.append(f"{LETTERS[signature.result][1]} {signature.name}({taken});")
    return "\n".join(lines) + "\n"


def compiled(name: str, folder: Path) -> Path:
    """A program of this folder; it is linked with a library that has the functions' names, and nothing else."""
    (folder / "opencl.h").write_text(header(), encoding="utf-8")
    stub = "\n".join(f"void {signature.name}(void) {{}}" for signature in SIGNATURES if signature.is_there)
    (folder / "stub.c").write_text(stub, encoding="utf-8")
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))
    library = folder / "stub" / "libOpenCL.so.1"
    library.parent.mkdir()
    shared = ["-shared", "-fPIC", "-Wl,-soname,libOpenCL.so.1", "-o", str(library), str(folder / "stub.c")]
    subprocess.run([compiler, *shared], check=True)
    made = folder / Path(name).stem
    how = ["-O1", "-w", f"-I{folder}", f"-I{HERE}", str(HERE / name), str(library), "-o", str(made), "-lm", "-pthread"]
    subprocess.run([compiler, *how], check=True)
    return made


@cache
def pocl_builds() -> bool:
    """Whether plain PoCL builds kernels here; one that is older than the processor does not, and C programs cannot tell
    it (``manycl.drivers.opencl.processor``)."""
    text = """
import pyopencl as cl
found = next(p for p in cl.get_platforms() if p.name.startswith("Portable"))
cl.Program(cl.Context(found.get_devices()[:1]), "kernel void k(global int *x) { *x = 1; }").build()
"""
    return not subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=200, check=False).returncode


def plain(program: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Command and environment by which a program runs on PoCL."""
    if not pocl_builds():
        pytest.skip("PoCL does not know this processor")
    loader = _loader()
    assert loader is not None
    place = folder / "plain"
    place.mkdir(exist_ok=True)
    link = place / "libOpenCL.so.1"
    if not link.exists():
        link.symlink_to(loader)
    (place / "pocl.icd").write_text(f"{_driver()}\n", encoding="utf-8")
    settings = {"LD_LIBRARY_PATH": str(place), "PYOPENCL_HOME": str(_WHEEL), "OCL_ICD_VENDORS": str(place)}
    return [str(program)], os.environ | settings


def by_manycl(program: Path, *options: str, **settings: str) -> tuple[list[str], dict[str, str]]:
    """The same for manycl."""
    given = options or ("--devices", "cpu/2")
    words = [sys.executable, "-m", "manycl", "exec", *given, "--", str(program)]
    return words, os.environ | settings


def ran(how: tuple[list[str], dict[str, str]], *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command, environment = how
    ended = subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert ended.returncode == code, (ended.returncode, ended.stdout[-1500:], ended.stderr[-3000:])
    return ended
