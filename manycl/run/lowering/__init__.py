"""Lowering: from a plan to range tasks on pieces of buffers."""
