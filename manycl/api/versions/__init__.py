"""Versions of kernels declared from Python, and the judge of whether they leave what the kernel leaves.

May import, of api: its modules, arrays."""
