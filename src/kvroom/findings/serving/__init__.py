"""Findings about a server that came up: requests that do not fit, a full cache, memory that runs out."""
