"""What devices and their drivers cost and reach, one benchmark a module, for ``benchmarks/devices.py``."""
