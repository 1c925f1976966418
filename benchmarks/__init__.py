"""Compares netcl with torch's CPU device on the same machine. Run ``python -m benchmarks``."""
