"""Eager submission: commands given to one device as they are enqueued."""
