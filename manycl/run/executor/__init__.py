"""The back end of real devices: commands become calls of drivers."""
