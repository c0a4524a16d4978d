"""Making every OpenCL driver that is installed visible to PyOpenCL's loader. PyPI's PoCL and Oclgrind lie beside the
loader and are always seen. Intel's wheel and an NVIDIA library without an ICD file are not: where there is one, a
folder of our own is filled with the system's ICD files and ours, and OCL_ICD_VENDORS points at it (it replaces the
system's folder). A user who has set it has the last word."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import os
import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path

_SYSTEM_ICDS = "/etc/OpenCL/vendors"
_CHANGING = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES", "POCL_DEVICES")
"""Variables that change what loaders and drivers show."""
_PYPI_ICDS = {"pocl.icd", "oclgrind.icd"}
_INTEL = "libintelocl.so"
_NVIDIA = "libnvidia-opencl.so.1"
_NVIDIA_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",
)

INSTALL = (
    "pip install pocl-binary-distribution gives a CPU device (it needs ld; Debian: apt install binutils); "
    "a GPU needs its vendor's driver"
)
PROBE = 1 << 16
"""Bytes that must fit into the folder for compiled kernels; a kernel takes some tens of thousands."""


class CacheWarning(UserWarning):
    """Compiled kernels cannot be kept; everything else goes on."""


def vendors_are_set() -> bool:
    """Return whether OCL_ICD_VENDORS says which drivers there are."""
    return "OCL_ICD_VENDORS" in os.environ


@cache
def prepare() -> None:
    """Point the loader at every driver that is here. Idempotent; too late after the first platform query."""
    # NVIDIA's driver has eight connections to a GPU unless it is asked for more when it starts; queues share them
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    _usable_cache()
    if "OCL_ICD_VENDORS" in os.environ:
        return
    system = _system_icds()
    known = "".join(system.values())
    found: dict[str, str] = {}
    if _INTEL not in known and (library := intel_library()):
        found["intel-found.icd"] = library
    if "libnvidia-opencl" not in known and (library := nvidia_library()):
        found["nvidia-found.icd"] = library
    if not found:
        return  # the loader sees the system's folder by itself
    folder = Path(tempfile.mkdtemp(prefix="manycl-icd-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, text in {**system, **found}.items():
        (folder / name).write_text(f"{text}\n", encoding="utf-8")
    os.environ["OCL_ICD_VENDORS"] = str(folder)


def only_processors() -> bool:
    """Return whether nothing but processors and simulators can be shown here, from what lies in folders: the loader is
    that of PyOpenCL's wheel, which reads the system's ICD files and those beside it, there is none but PyPI's PoCL's
    and Oclgrind's, and no variable says otherwise. Intel's wheel shows the processor."""
    if any(name in os.environ for name in _CHANGING):
        return False
    spec = importlib.util.find_spec("pyopencl")  # imports nothing
    if spec is None or spec.origin is None:
        return False
    beside = Path(spec.origin).parent / ".libs"
    icds = {path.name for path in beside.glob("*.icd")}
    ours = any(beside.glob("libOpenCL*")) and icds <= _PYPI_ICDS
    return ours and not any(Path(_SYSTEM_ICDS).glob("*")) and not nvidia_library()


def _usable_cache() -> None:
    """Give drivers, and PyOpenCL, a temporary folder for what they compile where their own cannot be used: without one
    they offer no device, refuse programs or end the process."""
    variable, folder = "XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME", "")
    places = [(variable, folder or os.path.expanduser("~/.cache"))]
    if given := os.environ.get("POCL_CACHE_DIR", ""):
        places.append(("POCL_CACHE_DIR", given))
    for variable, folder in places:
        problem = _unusable(Path(folder))
        if not problem:
            continue
        what = f"the cache folder {folder}{f' ({variable})' if os.environ.get(variable) else ''}"
        try:
            other = tempfile.mkdtemp(prefix="manycl-cache-")
        except OSError as error:
            words = f"{what} cannot be used: {problem}; nor can a temporary one: {error.strerror}"
        else:
            atexit.register(shutil.rmtree, other, ignore_errors=True)
            os.environ[variable] = other
            words = f"{what} cannot be used: {problem}; a temporary one is used, so kernels are compiled anew each time"
        warnings.warn(words, CacheWarning, stacklevel=2)


def _unusable(folder: Path) -> str:
    """Why nothing can be written into a folder (it is made); empty if something can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(PROBE))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _system_icds() -> dict[str, str]:
    """Name and text of the ICD files that the loader reads by itself; unreadable ones count as absent."""
    folder = Path(os.environ.get("OPENCL_VENDOR_PATH") or _SYSTEM_ICDS)
    out: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for icd in sorted(folder.glob("*.icd")):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                out[icd.name] = icd.read_text(encoding="utf-8").strip()
    return out


def intel_library() -> str:
    """The library in Intel's wheel (the wheel's own ICD file has a path that exists nowhere), or ""."""
    from importlib import metadata  # takes 10 ms

    with contextlib.suppress(metadata.PackageNotFoundError):
        for file in metadata.files("intel-opencl-rt") or ():
            if file.name == _INTEL:
                path = Path(str(file.locate())).resolve()
                return str(path) if path.exists() else ""
    return ""


def nvidia_library() -> str:
    """NVIDIA's library, which containers often have without an ICD file, or ""."""
    own = [f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f]
    for folder in (*own, *_NVIDIA_FOLDERS):
        path = Path(folder) / _NVIDIA
        if path.exists():
            return str(path.absolute())
    try:
        ctypes.CDLL(_NVIDIA)  # as the loader will; find_library starts a compiler, which takes tens of milliseconds
    except OSError:
        return ""
    return _NVIDIA


def pip_pocl() -> str:
    """Return what the version string of PyPI's PoCL contains (``PoCL 3.0``), or "" when it is not installed."""
    from importlib import metadata

    with contextlib.suppress(metadata.PackageNotFoundError):
        return f"PoCL {metadata.version('pocl-binary-distribution')}"
    return ""
