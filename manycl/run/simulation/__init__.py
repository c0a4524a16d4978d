"""The back end of simulated machines on a virtual clock, and what plans are foreseen to take.

May import, of run: commands, data, engine, lowering, recovery, tiling."""
