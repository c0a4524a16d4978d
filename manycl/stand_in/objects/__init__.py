"""OpenCL's objects as PyOpenCL programs see them: contexts, queues, buffers, programs, kernels, events.

May import, of stand_in: its modules."""
