"""Adaptation: the learning of ``adaptive`` from measured times while a graph repeats."""
