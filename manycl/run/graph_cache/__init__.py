"""Graphs that run again: recognised or prepared, with their plans, steps and recorded commands."""
