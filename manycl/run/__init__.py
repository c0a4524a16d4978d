"""Runs: plans lowered to steps, compiled to commands, and played on real or simulated devices.

May import plan and the stages before."""
