"""How fast netcl is, beside torch's CPU device on the same machine. Run ``python -m benchmarks``."""
