"""What ``adaptive`` learns from measured times while a graph repeats."""
