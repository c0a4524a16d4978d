"""Policies that place whole kernels: the field's list schedulers and searches."""
