"""Policies of the five papers that divide, group or migrate kernels.

May import, of plan: its modules, policies, search, timeline."""
