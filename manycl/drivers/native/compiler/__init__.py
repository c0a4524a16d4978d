"""Compiling OpenCL C to shared objects by clang: which clang, with which checks, and against which functions.

May import, of drivers: its modules, native, native.builtins."""
