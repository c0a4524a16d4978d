"""Sessions: opened devices and what lives on them between runs; what a policy is asked; measuring.

May import, of run: data, engine, executor, graph_cache, lowering, recovery, simulation."""
