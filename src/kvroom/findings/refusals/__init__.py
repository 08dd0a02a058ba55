"""Findings about settings that vLLM refuses, and models that it cannot read."""
