"""Runs whose data exceed a device's memory: tiles, windows, time skewing, eviction.

May import, of run: commands, data, lowering."""
