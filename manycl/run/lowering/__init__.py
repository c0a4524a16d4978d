"""Lowering: from a plan to range tasks on pieces of buffers.

May import, of run: data, stealing, tiling."""
