"""OpenCL's objects as PyOpenCL programs see them: contexts, queues, buffers, programs, kernels, events."""
