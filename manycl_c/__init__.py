"""C and C++ programs: OpenCL's functions for them, on the objects that PyOpenCL programs have (docs/c_programs.md).

A program's ``libOpenCL.so.1`` is a small library of manycl's (``library.c``, ``building``), which starts Python in the
program's process; there :mod:`manycl_c.serving` fills in a function for each of OpenCL's. One file for each
kind of object, as in :mod:`manycl.stand_in`, whose objects these functions are given numbers for.

May import cli and the stages before.
"""
