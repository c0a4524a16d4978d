"""Eager submission: commands given to one device as they are enqueued.

May import, of run: commands, data, engine, executor, lowering, recovery, session."""
