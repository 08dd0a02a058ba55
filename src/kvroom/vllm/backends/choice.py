"""What the choice of an attention backend comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """The backend of the model's first attention layer and what follows from it. Sizes are bytes a GPU."""

    name: str
    """vLLM's name, e.g. ``FLASH_ATTN``; the one asked for when ``error`` says that it cannot be used."""
    how: str
    """Why this one, in one sentence."""
    candidates: tuple[str, ...] = ()
    """Backends that would work here, best first, as vLLM lists them."""
    rejected: Mapping[str, str] = field(default_factory=dict)
    """Backends that were tried before or after and what they lack, in vLLM's words."""
    block_size: int = 16
    """Tokens a KV block before any alignment with recurrent states: the user's, or what the kernel needs."""
    kernel_alignment: int = 16
    """Tokens of which the block of a hybrid model has to be a multiple."""
    workspace_bytes: int = 0
    """Buffers of the backend that vLLM's measurement counts, so that they shrink the cache."""
    outside_bytes: int = 0
    """Buffers that it allocates afterwards, outside ``gpu_memory_utilization``."""
    workspace_in: str = ""
    """Which number shows them: ``load`` (the weights), ``graphs`` (the graph estimate), or both."""
    workspace_why: str = ""
    """What the buffers are and when they are allocated, with the file of vLLM."""
    log_line: str = ""
    """The line that this release logs, empty when it logs none."""
    error: str | None = None
    """vLLM's error text when no backend, or not the one asked for, can serve this."""
    others: tuple[str, ...] = ()
    """Backends of layers that need another one (different head sizes)."""
    basis: str = "computed"
    """``computed`` from the release's own rules, or ``estimated`` on other platforms and unknown cards."""
