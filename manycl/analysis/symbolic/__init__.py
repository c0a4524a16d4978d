"""Symbolic integers: expressions, affine functions, sets of points, closed forms of loops, counting."""
