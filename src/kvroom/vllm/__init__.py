"""vLLM's rules by release."""
