"""Symbolic integers: expressions, affine functions, sets of points, closed forms of loops, counting.

May import, of analysis: its modules, interpreter, reading, regions."""
