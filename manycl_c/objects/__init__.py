"""OpenCL's functions for C programs, by the kind of object that they are about.

May import, of manycl_c: its modules."""
