"""Arrays: buffers with a shape and a type, and NumPy's operations on them as generated kernels.

May import, of api: its modules, functions."""
