"""Policies of the five papers that divide, group or migrate kernels."""
