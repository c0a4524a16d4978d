"""Devices of installed OpenCL drivers."""
