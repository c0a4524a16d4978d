"""What single stages of manycl cost, and how near they come to what is right, for ``benchmarks/stages.py``."""
