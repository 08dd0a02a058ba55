"""The attention backend that a release of vLLM picks on a card, and what it brings with it."""

from kvroom.vllm.backends.choice import BackendChoice
from kvroom.vllm.backends.choose import choose_backend

__all__ = ["BackendChoice", "choose_backend"]
