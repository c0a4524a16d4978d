"""Searches for schedules: list scheduling, local search, REPARA's tree.

May import, of plan: its modules, timeline."""
