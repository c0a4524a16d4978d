"""Clusters, simulated: how applications scale on up to 4,096 nodes, and what limits them.

May import, of manycl_bench: its modules."""
