"""The judge of plans, which shares no code with the planners."""
