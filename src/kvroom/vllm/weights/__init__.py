"""What a model's weights take on one GPU of a launch, after vLLM's kernels have had their way."""

from __future__ import annotations
