"""PyOpenCL's compiled core, stood in for: unmodified PyOpenCL programs run on manycl (docs/exec.md).

PyOpenCL's own Python layer (arrays, elementwise kernels, scans, …) is loaded a second time, unchanged, on top of the
module that :mod:`manycl.stand_in.install` puts together from this folder: one file for each kind of OpenCL's objects.

May import applications and the stages before.
"""

from __future__ import annotations


def load_ipython_extension(shell: object) -> None:
    """``%load_ext manycl.stand_in`` in a notebook: what ``manycl.activate()`` does."""
    from manycl.stand_in.activate import activate

    activate()
