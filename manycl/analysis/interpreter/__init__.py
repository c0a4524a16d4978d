"""The abstract interpreter: one run of a kernel on symbols, which finds its accesses and loops.

May import, of analysis: its modules, reading, symbolic."""
