"""Measurements: durations, links and errors of predictions, in memory and in a file that outlives sessions.

May import, of model: its modules."""
