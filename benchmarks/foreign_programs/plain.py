"""Run a program with plain PyOpenCL: `plain.py PROGRAM [ARGUMENT …]`. PoCL, which may be older than the processor, is
told of it first."""

import runpy
import sys

import pyopencl as cl

from manycl.drivers.opencl.processor import introduce

for platform in cl.get_platforms():
    if platform.name.startswith("Portable"):
        for device in platform.get_devices():
            introduce(device)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
