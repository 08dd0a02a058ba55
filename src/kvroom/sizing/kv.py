"""What the KV cache takes per token, per sequence and per batch, and how many sequences a pool holds.

There is no formula here: each length is a launch that the ledger predicts, with the pool given as
``--kv-cache-memory-bytes``, and what is told are its own blocks, pages and concurrency.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvroom.errors import EngineError, UsageError
from kvroom.ledger.predict import Prediction, Setup, predict
from kvroom.units import show_bytes
from kvroom.vllm.kv.layout import KvLayout, layout_of
from kvroom.vllm.kv.terms import Terms

_UNLIMITED = 1 << 50
"""Bytes of a pool that nothing is too long for, where only the sizes of sequences are asked."""
LENGTHS = tuple(1024 << power for power in range(11))


@dataclass(frozen=True, slots=True)
class Kind:
    """The caches of one kind on one GPU."""

    kind: str
    """vLLM's name: ``full_attention``, ``sliding_window``, ``mamba``, ..."""
    layers: int
    n_bytes: int
    """What one sequence takes in them, on one GPU."""


@dataclass(frozen=True, slots=True)
class KvRow:
    """One context length."""

    length: int
    blocks: int
    """Blocks that one sequence takes."""
    sequence_bytes: int
    """What these blocks take on one GPU."""
    needed_bytes: int
    """What the release's start-up check says that one sequence needs, on one GPU."""
    kinds: tuple[Kind, ...]
    sequences: int | None
    """Whole sequences that the pool holds, None without a pool."""
    concurrency: float | None
    """The same as vLLM logs it."""

    def batch_bytes(self, count: int) -> int:
        """What ``count`` such sequences take on one GPU."""
        return count * self.sequence_bytes


@dataclass(frozen=True, slots=True)
class KvTable:
    """The KV cache of one model under one launch's settings."""

    prediction: Prediction
    token_bytes: int
    """Bytes on one GPU that each further token of a long sequence takes; 0 where nothing grows."""
    total_token_bytes: int
    """The same over all GPUs that serve the sequence."""
    copies: float
    """How often each value is stored: above 1 where tensor-parallel ranks hold the same KV heads."""
    pool_bytes: int | None
    """Bytes of one GPU for KV blocks, as given or as the plan expects them; None without a pool."""
    pool_why: str
    rows: tuple[KvRow, ...]


def kv_table(
    setup: Setup, lengths: tuple[int, ...] = (), pool_bytes: int | None = None, *, pool_why: str = ""
) -> KvTable:
    """The KV cache of ``setup`` at each of ``lengths`` tokens (none given: powers of two up to the model's limit).

    ``pool_bytes`` is what one GPU has for KV blocks, and ``pool_why`` says where that is from. Raises UsageError for
    a length that the model does not reach, EngineError where vLLM refuses the launch.
    """
    first = _at(setup, setup.args.max_model_len, _UNLIMITED)
    assert first.settings is not None
    longest = max(first.settings.derived_max_model_len, first.settings.max_model_len)
    beyond = [length for length in lengths if length > longest]
    if beyond:
        raise UsageError(
            f"{beyond[0]:,} tokens are more than {setup.args.model or setup.shape.name} takes: {longest:,} "
            f"({first.settings.derived_from} in its config).",
            "Ask for shorter contexts, or raise --max-model-len (with --hf-overrides for its rotary scaling).",
        )
    asked = lengths or (*(length for length in LENGTHS if length < longest), longest)
    rows = tuple(_row(setup, length, pool_bytes) for length in asked)
    token_bytes, total = _growth(first)
    alone = _growth(_at(setup.with_args(tensor_parallel_size=1), setup.args.max_model_len, _UNLIMITED))[1]
    return KvTable(first, token_bytes, total, total / alone if alone else 1.0, pool_bytes, pool_why, rows)


def _at(setup: Setup, length: int | None, pool_bytes: int) -> Prediction:
    """The prediction with ``length`` as max_model_len and ``pool_bytes`` for blocks; EngineError where it has none."""
    found = predict(
        setup.with_args(max_model_len=length, kv_cache_memory_bytes=pool_bytes, num_gpu_blocks_override=None)
    )
    if found.layout is None or found.pool is None:
        raise EngineError(
            f"vLLM {setup.release} refuses this launch: {found.verdict.message or found.verdict.stage}",
            "Change what it names; `kvroom plan` with the same flags offers remedies.",
        )
    return found


def _row(setup: Setup, length: int, pool_bytes: int | None) -> KvRow:
    found = _at(setup, length, _UNLIMITED if pool_bytes is None else pool_bytes)
    layout, pool = found.layout, found.pool
    assert layout is not None
    assert pool is not None
    blocks = layout.request_blocks(length) if layout.groups else 0
    return KvRow(
        length,
        blocks,
        blocks * layout.bytes_per_block,
        layout.needed_bytes(length),
        _kinds(found, layout, length),
        None if pool_bytes is None else math.floor(pool.max_concurrency),
        None if pool_bytes is None else pool.max_concurrency,
    )


def _kinds(prediction: Prediction, layout: KvLayout, length: int) -> tuple[Kind, ...]:
    """One sequence's bytes by kind of layer: blocks of each group, shared out by the pages of its layers."""
    assert prediction.settings is not None
    terms = Terms(prediction.settings, layout.context_ranks)
    found: dict[str, list[int]] = {}
    for group in layout.groups:
        page = group.page_bytes if layout.request_unit > 1 else 1
        taken = terms.of_group(group, page).blocks(length) * page * layout.bytes_per_block // layout.request_unit
        pages = sum(layer.spec.page_bytes for layer in group.layers)
        for layer in group.layers:
            share = taken * layer.spec.page_bytes // pages
            taken, pages = taken - share, pages - layer.spec.page_bytes
            kind = found.setdefault(str(layer.spec.kind), [0, 0])
            kind[0] += 1
            kind[1] += share
    return tuple(Kind(kind, count, size) for kind, (count, size) in found.items())


def _growth(prediction: Prediction) -> tuple[int, int]:
    """Bytes that one more token takes: on one GPU of the limiting stage, and over all GPUs of a replica."""
    setup, settings, backend = prediction.setup, prediction.settings, prediction.backend
    assert settings is not None
    assert backend is not None
    each = []
    for stage in range(setup.args.pipeline_parallel_size):
        layout = layout_of(
            setup.shape,
            setup.args,
            settings,
            backend.name,
            backend.block_size,
            stage=stage,
            draft=setup.draft,
            capability=setup.machine.device.compute_capability,
        )
        each.append(_slope(layout))
    ranks = setup.args.tensor_parallel_size * setup.args.prefill_context_parallel_size
    return each[prediction.stage], sum(each) * ranks


def _slope(layout: KvLayout) -> int:
    """Bytes that a token adds to a long sequence on one GPU: the difference of two lengths of whole blocks."""
    if not layout.groups:
        return 0
    step = math.lcm(*(group.spec.block_size for group in layout.groups)) * layout.context_ranks
    base = step * -(-(1 << 26) // step)
    blocks = layout.request_blocks(base + step) - layout.request_blocks(base)
    return blocks * layout.bytes_per_block // step


def pool_of(prediction: Prediction) -> tuple[int, str]:
    """What a plan leaves for KV blocks on one GPU, in bytes, and how sure that is; UsageError for nothing."""
    ledger = prediction.ledger
    if ledger is None or ledger.available.expected <= 0:
        reason = prediction.verdict.message or "nothing is left beside the weights"
        raise UsageError(f"This launch has no KV pool: {reason}", "Take more or larger GPUs, or give --pool.")
    entry = ledger.available
    words = f"{show_bytes(entry.low)} to {show_bytes(entry.high)}, {entry.basis}"
    return entry.expected, words
