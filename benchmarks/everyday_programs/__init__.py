"""Ordinary programs, each written with plain PyOpenCL and with manycl, for ``benchmarks/everyday.py``."""
