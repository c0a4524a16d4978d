"""Libsplit's experiments, and its benchmarks' kernels."""
