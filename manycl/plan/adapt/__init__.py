"""Adaptation: the learning of ``adaptive`` from measured times while a graph repeats.

May import, of plan: its modules."""
