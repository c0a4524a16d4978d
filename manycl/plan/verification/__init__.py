"""The judge of plans, which shares no code with the planners.

May import, of plan: its modules."""
