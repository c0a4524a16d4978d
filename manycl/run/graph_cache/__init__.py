"""Graphs that run again: recognised or prepared, with their plans, steps and recorded commands.

May import, of run: commands, data, engine, executor, lowering, recovery, session, streams, tiling."""
