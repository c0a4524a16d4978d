"""Runs: plans lowered to steps, compiled to commands, and played on real or simulated devices."""
