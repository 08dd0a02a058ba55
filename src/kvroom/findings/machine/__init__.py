"""Findings about a machine that cannot be used: GPUs, drivers, shared memory, ports."""
