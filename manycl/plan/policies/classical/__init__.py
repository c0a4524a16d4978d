"""Policies that place whole kernels: the field's list schedulers and searches.

May import, of plan: its modules, policies.papers, search, timeline."""
