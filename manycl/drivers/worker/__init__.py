"""Worker devices: each opened by a process of its own, which may die without taking this one with it.

May import, of drivers: its modules."""
