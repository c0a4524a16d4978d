"""MKMD's experiments."""
