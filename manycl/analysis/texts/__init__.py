"""OpenCL C texts made from kernels: sub-kernels, windows, and kernels that merge results."""
