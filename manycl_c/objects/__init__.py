"""OpenCL's functions for C programs, by the kind of object that they are about."""
