"""Applications that JSON files describe: read, checked, planned, profiled, repeated and run.

May import api and the stages before."""
