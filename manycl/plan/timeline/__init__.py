"""Predicted timelines: partial schedules of kernels and transfers, with every byte's whereabouts.

May import, of plan: its modules, search."""
