"""``parallel_for``: loops given as text, and how their iterations access arrays (Device-Hopping).

May import, of api: its modules, arrays."""
