"""Costs of launches: operations and bytes, in symbols and in numbers.

May import, of analysis: its modules, symbolic."""
