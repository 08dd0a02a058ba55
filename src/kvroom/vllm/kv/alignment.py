"""The blocks and pages of a launch whose layers need pages of different sizes.

Mirrors platforms/interface.py: update_block_size_for_backend and, before 0.20,
model_executor/models/config.py: HybridAttentionMambaModelConfig.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import lcm

from kvroom.models.shape import AttentionCache, MlaCache, StateCache, StateKind
from kvroom.vllm.kv.blocks import align_dtypes, align_hybrid
from kvroom.vllm.kv.context import Context
from kvroom.vllm.kv.formats import attention_bytes, storage_dtype
from kvroom.vllm.kv.pages import DTYPE_BYTES
from kvroom.vllm.parallel import kv_heads_per_rank


@dataclass(frozen=True, slots=True)
class Blocks:
    """Tokens that a block covers, and the pages that layers are padded to (None: not padded)."""

    attention: int
    state: int
    state_page: int | None = None
    shared_page: int | None = None
    """Of the layers that keep the model's dtype beside quantised ones."""
    notes: tuple[str, ...] = ()
    """Lines that vLLM logs while choosing."""


def blocks_of(context: Context, block: int, *, skips: bool) -> Blocks:
    """The blocks of ``context``, starting from the attention backend's ``block``.

    ``skips`` says that some layers keep the model's dtype. Raises EngineError where a release cannot
    make the pages equal.
    """
    state = block if context.rules["kv_state_modes"] == "own" and context.mode != "none" else None
    if context.args.mamba_block_size is not None and context.mode != "none":
        state = context.args.mamba_block_size
    blocks = Blocks(block, state or context.settings.max_model_len)
    if context.shape.is_hybrid:
        blocks = _with_states(context, blocks)
    if skips and context.rules["kv_aligns_dtypes"]:
        blocks = _with_two_dtypes(context, blocks)
    return blocks


def _with_states(context: Context, blocks: Blocks) -> Blocks:
    """Attention pages as large as the recurrent ones."""
    rules = context.rules
    states = [layer.cache for layer in context.shape.caches if isinstance(layer.cache, StateCache)]
    states = list(dict.fromkeys(states))
    token_bytes, latent, wide = _attention_token(context)
    step = rules["kv_checkpoint_alignment"]
    on_checkpoints = step and all(
        each.kind is StateKind.GATED_DELTA_NET and context.checkpoints(each) for each in states
    )
    chunk = next((each.chunk_size for each in states if each.chunk_size), None)
    aligned = align_hybrid(
        block=blocks.attention,
        token_bytes=token_bytes,
        state_bytes=max(context.state_bytes(each) for each in states),
        mode=context.mode,
        max_model_len=context.settings.max_model_len,
        backend=context.backend,
        sizes=context.sizes,
        latent=latent,
        wide_blackwell=wide,
        chunk=context.args.mamba_block_size or chunk or rules["kv_state_chunk"],
        checkpoint=int(step) if on_checkpoints else 1,
        rules=rules,
    )
    return Blocks(aligned.block, aligned.state_block, aligned.state_page, notes=aligned.notes)


def _attention_token(context: Context) -> tuple[int, bool, bool]:
    """Bytes of one token in the attention layers, whether they are MLA, whether Blackwell needs 32."""
    shape, dtype = context.shape, context.settings.dtype
    first = next(layer.cache for layer in shape.caches if isinstance(layer.cache, AttentionCache | MlaCache))
    if isinstance(first, MlaCache):
        element = DTYPE_BYTES[storage_dtype(context.cache_dtype, dtype)]
        return (first.kv_lora_rank + first.rope_size) * element, True, False
    heads, size = kv_heads_per_rank(first.kv_heads, context.tp), first.head_size
    token = attention_bytes(heads, size, size, context.cache_dtype, dtype, "full", context.rules)
    if context.cache_dtype.startswith("turboquant_") and context.args.kv_cache_dtype_skip_layers:
        token = lcm(token, attention_bytes(heads, size, size, "auto", dtype, "full", context.rules))
    blackwell = context.capability is not None and context.capability[0] == 10
    wide = size == 256 and blackwell and context.args.attention_backend in {None, "FLASHINFER"}
    return token, False, wide


def _with_two_dtypes(context: Context, blocks: Blocks) -> Blocks:
    """Quantised pages as large as those of the layers that keep the model's dtype."""
    first = next((layer.cache for layer in context.shape.caches if isinstance(layer.cache, AttentionCache)), None)
    own = first or context.shape  # a model of states alone is asked by its config's heads
    heads, size, dtype = kv_heads_per_rank(own.kv_heads, context.tp), own.head_size, context.settings.dtype
    quantized = attention_bytes(heads, size, size, context.cache_dtype, dtype, "full", context.rules)
    if context.cache_dtype.startswith("turboquant_") and context.rules["kv_aligns_turboquant_unpacked"]:
        quantized = 2 * heads * size
    plain = attention_bytes(heads, size, size, "auto", dtype, "full", context.rules)
    shared = align_dtypes(blocks.attention, quantized, plain, blocks.state_page, context.sizes)
    page = blocks.state_page
    if page is not None and shared.page is not None:
        page = shared.page
    return replace(blocks, attention=shared.block, shared_page=shared.page, state_page=page)
