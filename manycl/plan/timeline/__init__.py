"""Predicted timelines: partial schedules of kernels and transfers, with every byte's whereabouts."""
