"""Versions of kernels: other kernels, sequences of kernels, functions of Python.

May import, of graph: its modules."""
