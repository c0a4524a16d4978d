"""OpenCL C's built-in functions for native devices, in OpenCL C: those that a program calls, as text before it.

What is inlined where it is called can be vectorised there. So nothing is linked: a program is compiled with the
definitions that it needs, a few dozen of some ten thousand overloads. The work is done for one element (``*.cl``);
overloads for vectors are made of it here.

What depends on work-items and work-groups (ids, barriers, group functions), images, pipes and printf is not here.

This module is imported with the first kernel, :mod:`manycl.drivers.native.builtins.prelude` when one is compiled.

May import, of drivers: nothing.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from manycl.utilities.disk_cache import DiskCache

_identities = DiskCache("built-ins", 1 << 16, ("manycl/drivers/native/builtins",))


@functools.cache
def identity() -> str:
    """Return a digest of all built-in functions' texts. It is kept from an earlier process as long as no file has
    changed: to read all of them takes as long as to launch a kernel for the first time."""
    known = _identities.get(b"")
    if known is not None:
        return known.decode()
    folder = Path(__file__).parent
    texts = sorted((f.name, f.read_bytes()) for f in folder.iterdir() if f.suffix in (".py", ".cl"))
    found = hashlib.sha256(repr(texts).encode()).hexdigest()
    _identities.keep(b"", found.encode())
    return found
