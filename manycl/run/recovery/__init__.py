"""Devices that leave, come, lag, fail or are reserved by others, and runs that go on without them.

May import, of run: commands, data, engine, executor, lowering, session, stealing, tiling."""
