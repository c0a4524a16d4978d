"""What testing from outside found wrong, each as a small program that must end right (``benchmarks/found.py``)."""
