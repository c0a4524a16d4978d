"""The abstract interpreter: one run of a kernel on symbols, which finds its accesses and loops."""
