"""The one loop that plays command graphs, and what it makes of a run: results, traces, explanations.

May import, of run: commands, data, lowering, recovery, stealing, streams, tiling."""
