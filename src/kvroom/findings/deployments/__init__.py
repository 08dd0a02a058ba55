"""Findings about the pod around a launch, which only a manifest tells."""
