"""NumPy's functions of arrays, on a queue's devices.

May import, of api: its modules, arrays."""
