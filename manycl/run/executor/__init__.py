"""The back end of real devices: commands become calls of drivers.

May import, of run: commands, data, lowering, recovery."""
