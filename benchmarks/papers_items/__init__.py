"""The items of benchmarks/papers.py, a file for each paper."""
