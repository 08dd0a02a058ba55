"""Findings about a log: what stopped a start, and what it cost."""
