"""MKMD's experiments.

May import, of manycl_bench: its modules."""
