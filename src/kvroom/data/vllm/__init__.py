"""Facts about vLLM's releases."""
