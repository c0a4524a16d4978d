"""Costs of launches: operations and bytes, in symbols and in numbers."""
