"""Recognised problems, contradictions and useless settings: one module a finding, and their catalogue."""
