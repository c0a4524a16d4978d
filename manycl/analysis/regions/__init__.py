"""Regions: the bytes that ranges of work-groups read and write; hazards: whether ranges may run apart.

May import, of analysis: its modules, reading, symbolic."""
