"""Experiments of the five papers, run on the devices that are here or on described machines.

May import cli and the stages before."""
