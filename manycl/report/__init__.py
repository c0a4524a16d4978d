"""Reports of plans and traces: summaries, decisions, progress, notebooks.

May import run and the stages before."""
