"""Drivers: the protocol of an opened device, which kinds there are, and how devices are found and chosen.

May import graph and the stages before."""
