"""Searches for schedules: list scheduling, local search, REPARA's tree, constraint programming."""
