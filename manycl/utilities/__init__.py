"""Utilities for every folder: caches, other programs within limits, Ctrl-C, checks of arguments, files.

May import expressions, flags and the stages before."""
