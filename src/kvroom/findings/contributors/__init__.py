"""Findings about what made the room small: parts of a launch that take memory beside weights and requests."""
