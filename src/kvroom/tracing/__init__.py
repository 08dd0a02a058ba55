"""vLLM's own Python code, of any release, run without a GPU in a child process."""
