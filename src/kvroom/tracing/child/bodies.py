"""vLLM's own opaque operators: their Python body is run, since their allocations lie in it.

torch.compile sees such an operator as one box whose fake result has a shape; on the card the body runs, and a
mixture of experts takes most of its workspaces there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

registered: dict[str, Callable[..., Any]] = {}
"""The body of each operator, by the name under which vLLM registered it."""

_MUST = frozenset(
    """moe_forward moe_forward_shared transformers_moe_forward inplace_fused_experts outplace_fused_experts
    fused_experts unified_attention unified_attention_with_output unified_mla_attention
    unified_mla_attention_with_output short_conv linear_attention mamba_mixer mamba_mixer2 gdn_attention
    gdn_attention_core gdn_attention_core_full qwen_gdn_attention_core qwen_gdn_attention_core_fused_norm_packed
    kda_attention olmo_hybrid_gdn_full_forward plamo2_mamba_mixer sparse_attn_indexer""".split()
)
"""Operators with workspaces of their own: an error inside is an error of the trace, not a smaller number."""

_SHAPES_SUFFICE = frozenset(
    """all_reduce all_gather reduce_scatter all_reduce_symmetric_with_copy lora_shrink lora_expand lora_shrink_fp8
    lora_expand_fp8 start_prefetch wait_prefetch maybe_calc_kv_scales""".split()
)
"""Operators whose declared result is what they allocate: collectives out of place, kernels that write into theirs."""


def runs(namespace: str, name: str) -> bool:
    """Whether the body of this operator is run in place of its declared shape."""
    return namespace == "vllm" and name in registered and name not in _SHAPES_SUFFICE


def run(name: str, shape_only: Callable[[], Any], args: Any, kwargs: Any, unsure: Counter[str]) -> Any:
    """The body's result, or the declared shape where the body of a lesser operator needs what is not here."""
    if name in _MUST:
        return registered[name](*args, **kwargs)
    try:
        return registered[name](*args, **kwargs)
    except Exception:
        unsure[f"vllm::{name} by its shape"] += 1
        return shape_only()
