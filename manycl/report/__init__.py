"""Reports of plans and traces: summaries, decisions, progress, notebooks."""
