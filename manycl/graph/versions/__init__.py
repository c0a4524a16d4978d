"""Versions of kernels: other kernels, sequences of kernels, functions of Python."""
