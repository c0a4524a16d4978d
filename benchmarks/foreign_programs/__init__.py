"""Programs of others, as processes of ``benchmarks/foreign.py`` run them."""
