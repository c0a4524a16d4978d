"""Clusters: the workers of a Dask cluster as devices, each of which is a node that computes with its own devices.

May import run and the stages before."""
