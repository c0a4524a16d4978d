"""Libsplit's experiments, and its benchmarks' kernels.

May import, of manycl_bench: its modules."""
