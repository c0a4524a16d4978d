"""OpenCL C texts made from kernels: sub-kernels, windows, and kernels that merge results.

May import, of analysis: interpreter, reading."""
