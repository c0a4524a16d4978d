"""The environment in which C programs find manycl's library, and the one in which that finds the real drivers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_FOLDERS = "LD_LIBRARY_PATH"


def variables() -> dict[str, str]:
    """What is set for a program. Raises ManyclError where the library cannot be made."""
    from manycl_c.building import library_folder  # (which the program's process does not need)

    folder = str(library_folder())
    before = [f for f in os.environ.get(_FOLDERS, "").split(os.pathsep) if f and f != folder]
    return {_FOLDERS: os.pathsep.join([folder, *before])}


@contextmanager
def real_opencl() -> Iterator[None]:
    """PyOpenCL is imported inside, and its loader looks for drivers: each library's names are then its own first, and
    not those of the program's libOpenCL.so.1; a folder of ICD files that has only manycl's is none."""
    vendors = os.environ.get("OCL_ICD_VENDORS")
    if vendors is not None and os.path.exists(os.path.join(vendors, "manycl.icd")):
        del os.environ["OCL_ICD_VENDORS"]
    else:
        vendors = None
    import numpy  # noqa: F401  (which is to have the names that all have)

    before = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
    try:
        import manycl.drivers.opencl.real  # noqa: F401

        sys.setdlopenflags(before)
        yield
    finally:
        sys.setdlopenflags(before)
        if vendors is not None:
            os.environ["OCL_ICD_VENDORS"] = vendors
