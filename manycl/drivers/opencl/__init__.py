"""Devices of installed OpenCL drivers.

May import, of drivers: its modules, native, native.compiler."""
