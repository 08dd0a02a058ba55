"""What a number of bytes buys: blocks, tokens, concurrency, and whether one request fits.

Arithmetic on a ``KvLayout``, in microseconds, so that it can be searched. Mirrors
v1/core/kv_cache_utils.py: get_kv_cache_configs of each release, and V0's worker/worker.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvroom.vllm.kv.layout import KvLayout, layout_of
from kvroom.vllm.kv.messages import auto_fit_line, ranks_lines, size_lines, too_small
from kvroom.vllm.settings import Settings


@dataclass(frozen=True, slots=True)
class Pool:
    """What the blocks of one rank amount to, and vLLM's verdict on them."""

    available_bytes: int
    bytes_per_block: int
    block_size: int
    num_blocks: int
    """Where one request does not fit: the blocks that there would have been."""
    tokens: int
    """``GPU KV cache size`` as this release logs it; V0: blocks times their tokens."""
    max_concurrency: float
    max_model_len: int
    """The length served: as asked for, or what ``--max-model-len auto`` settled on."""
    needed_bytes: int
    """One request of ``max_model_len`` tokens."""
    longest_context: int
    """The longest ``--max-model-len`` that these bytes would start with, at most what the model allows."""
    estimated_length: int
    """vLLM's "estimated maximum model length": the same, at most what was asked for."""
    error: str | None = None
    """The text that vLLM raises, None when it starts."""
    notes: tuple[str, ...] = ()
    """Lines that vLLM logs about the pool."""

    @property
    def fits(self) -> bool:
        """Whether vLLM starts."""
        return self.error is None


def capacity(layout: KvLayout, available: int, settings: Settings, override: int | None = None) -> Pool:
    """The pool that ``available`` bytes buy on every rank of a launch whose ranks are alike.

    ``override`` is ``--num-gpu-blocks-override``. Nothing is raised: a launch that vLLM refuses comes
    back with its ``error`` text.
    """
    return capacity_of_stages((layout,), (available,), settings, override)


def capacity_of_stages(
    layouts: Sequence[KvLayout], available: Sequence[int], settings: Settings, override: int | None = None
) -> Pool:
    """The pool of a launch with one layout and one number of bytes per pipeline stage, in order.

    All stages get the blocks of the one that can afford the fewest; the first that one request does
    not fit on stops the launch.
    """
    if not any(layout.groups for layout in layouts):
        return _without_cache(layouts[0], available[0], settings)
    if settings.engine == "V0":
        return min(
            (_v0_pool(layout, bytes_, settings, override) for layout, bytes_ in zip(layouts, available, strict=True)),
            key=lambda pool: pool.num_blocks,
        )
    rules = layouts[0].rules
    stages = [
        _stage(layout, bytes_, settings, override)
        for layout, bytes_ in zip(layouts, available, strict=True)
        if layout.groups
    ]
    whole_model = rules["kv_check"] == "first_group_of_model"
    length, longest = settings.max_model_len, min(stage.longest for stage in stages)
    notes = [line for stage in stages for line in stage.notes]
    found = _Found(stages[0], settings, longest)
    if settings.auto_max_model_len and rules["kv_auto_fit_text"] is not None:
        reached = min(longest, length)
        if reached <= 0:
            return found.refused(length, rules["kv_auto_fit_text"]["error"], notes)
        limiting = _limiting(stages, length, whole_model=whole_model)
        notes.append(auto_fit_line(reached, length, limiting.limit, rules))
        length = reached
    if whole_model:
        stages = [min(stages, key=lambda stage: stage.available), *stages]
    for stage in stages:
        error = stage.error(length)
        if error is not None:
            return _Found(stage, settings, longest).refused(length, error, notes)
    poorest = min(stages, key=lambda stage: stage.blocks)
    for stage in stages:
        notes += _Found(stage, settings, longest).lines(poorest.blocks, length)
    return _Found(poorest, settings, longest).pool(poorest.blocks, length, list(dict.fromkeys(notes)))


def _limiting(stages: Sequence[_Stage], length: int, *, whole_model: bool) -> _Stage:
    """The stage whose bytes vLLM names when it reduces the length to fit.

    The poorest where one check covers the ``whole_model``, else the first with the shortest length.
    """
    if whole_model:
        return min(stages, key=lambda stage: stage.available)
    return min(stages, key=lambda stage: min(stage.longest, length))


class _Stage(NamedTuple):
    """One pipeline stage's part of the plan."""

    layout: KvLayout
    available: int
    limit: int
    """Bytes that one request may take."""
    blocks: int
    longest: int
    notes: tuple[str, ...]

    def error(self, length: int) -> str | None:
        """VLLM's error when one request of ``length`` tokens does not fit here."""
        layout = self.layout
        if self.limit <= 0:
            text: str = layout.rules["kv_none_text"]
            return text
        needed = layout.needed_bytes(length)
        if needed > self.limit:
            return too_small(needed, self.limit, length, min(self.longest, length), layout.rules)
        return layout.refusal


def _stage(layout: KvLayout, available: int, settings: Settings, override: int | None) -> _Stage:
    rules, block = layout.rules, layout.bytes_per_block
    budget, notes = available, layout.warnings
    blocks = available // block
    if override is not None:
        notes = (*notes, rules["kv_override_text"].format(blocks=blocks, override=override))
        blocks = override
        if rules["kv_override"] == "capacity":
            budget = override * block
    limit = budget - block if rules["kv_reserves_null_block"] else budget
    ceiling = max(settings.derived_max_model_len, settings.max_model_len)
    longest = layout.longest(limit, ceiling) if limit > 0 else 0
    return _Stage(layout, available, limit, blocks, longest, notes)


@dataclass(frozen=True, slots=True)
class _Found:
    """What is known of a pool before vLLM's verdict."""

    stage: _Stage
    settings: Settings
    longest: int

    def counted(self, num_blocks: int, length: int) -> tuple[int, float]:
        """Tokens and concurrency of ``num_blocks`` blocks, as this release logs them."""
        layout = self.stage.layout
        rules = layout.rules
        if rules["kv_concurrency"] == "tokens":
            tokens = num_blocks * layout.block_size
            return tokens, tokens / length
        concurrency = num_blocks / layout.request_blocks(length)
        if rules["kv_tokens"] == "context":
            return int(concurrency * length), concurrency
        configured = rules["kv_tokens"] == "configured" and len(layout.groups) == 1
        block = layout.block_size if configured else layout.min_block_size
        return num_blocks // len(layout.groups) * block * layout.context_ranks, concurrency

    def lines(self, num_blocks: int, length: int) -> tuple[str, ...]:
        """What vLLM logs about ``num_blocks`` blocks on this stage."""
        layout = self.stage.layout
        tokens, concurrency = self.counted(num_blocks, length)
        return (
            *ranks_lines(layout.context_ranks, layout.prefill_ranks, layout.rules),
            *size_lines(tokens, length, concurrency, layout.rules),
        )

    def pool(self, num_blocks: int, length: int, notes: list[str]) -> Pool:
        """The pool of ``num_blocks`` blocks, with what vLLM logs."""
        graphs, error = self._states_and_graphs(num_blocks)
        return self._pool(num_blocks, length, error, (*notes, *graphs))

    def refused(self, length: int, error: str, notes: list[str]) -> Pool:
        """A launch that stops with ``error`` before vLLM counts its blocks: those that there would have been."""
        return self._pool(max(self.stage.blocks, 0), length, error, tuple(notes))

    def _pool(self, num_blocks: int, length: int, error: str | None, notes: tuple[str, ...]) -> Pool:
        layout = self.stage.layout
        tokens, concurrency = self.counted(num_blocks, length)
        return Pool(
            available_bytes=self.stage.available,
            bytes_per_block=layout.bytes_per_block,
            block_size=layout.block_size,
            num_blocks=num_blocks,
            tokens=tokens,
            max_concurrency=concurrency,
            max_model_len=length,
            needed_bytes=layout.needed_bytes(length),
            longest_context=self.longest,
            estimated_length=min(self.longest, self.settings.max_model_len),
            error=error,
            notes=notes,
        )

    def _states_and_graphs(self, num_blocks: int) -> tuple[tuple[str, ...], str | None]:
        """What few state blocks do to full CUDA graphs: a warning in 0.18 and 0.19, an error since."""
        settings, layout = self.settings, self.stage.layout
        rules = layout.rules
        if not layout.has_states or "FULL" not in settings.cudagraph_mode:
            return (), None
        if rules["kv_mamba_blocks_text"] is not None and settings.max_num_seqs > num_blocks:
            text = rules["kv_mamba_blocks_text"]
            return (), text.format(seqs=settings.max_num_seqs, blocks=num_blocks)
        texts, sizes = rules["kv_mamba_caps_graphs_text"], settings.capture_sizes
        if texts is None or not sizes or num_blocks >= max(sizes):
            return (), None
        kept = [size for size in sizes if size <= num_blocks]
        if not kept:
            return (texts["none"].format(blocks=num_blocks, smallest=min(sizes)),), None
        return (texts["capped"].format(largest=max(sizes), capped=max(kept), blocks=num_blocks),), None


def _without_cache(layout: KvLayout, available: int, settings: Settings) -> Pool:
    """A model that keeps no KV cache: one block, no check (get_kv_cache_config_from_groups)."""
    return Pool(
        available_bytes=available,
        bytes_per_block=0,
        block_size=layout.block_size,
        num_blocks=1,
        tokens=0,
        max_concurrency=0.0,
        max_model_len=settings.max_model_len,
        needed_bytes=0,
        longest_context=settings.derived_max_model_len,
        estimated_length=settings.max_model_len,
        error=layout.refusal,
        notes=layout.warnings,
    )


def _v0_pool(layout: KvLayout, available: int, settings: Settings, override: int | None) -> Pool:
    """V0 compares tokens, after it logged the blocks. Mirrors worker/worker.py: raise_if_cache_size_invalid."""
    rules, length = layout.rules, settings.max_model_len
    blocks = max(available, 0) // layout.bytes_per_block if override is None else override
    usable = blocks // layout.stages if rules["kv_v0_stages_share_blocks"] else blocks
    stored = layout.block_size * usable
    tokens = layout.block_size * blocks
    notes = [rules["kv_v0_blocks_text"].format(blocks=blocks, cpu_blocks=layout.cpu_blocks)]
    if rules["kv_v0_concurrency_text"] is not None:
        concurrency = tokens / length
        notes.append(rules["kv_v0_concurrency_text"].format(length=length, concurrency=concurrency))
    error = None
    if blocks <= 0:
        error = rules["kv_none_text"]
    elif length > stored:
        error = rules["kv_v0_needed_text"].format(length=length, tokens=stored)
    return Pool(
        available_bytes=available,
        bytes_per_block=layout.bytes_per_block,
        block_size=layout.block_size,
        num_blocks=blocks,
        tokens=tokens,
        max_concurrency=tokens / length,
        max_model_len=length,
        needed_bytes=layout.needed_bytes(length),
        longest_context=min(stored, max(settings.derived_max_model_len, length)),
        estimated_length=min(stored, length),
        error=error,
        notes=(*layout.warnings, *notes),
    )


__all__ = ["KvLayout", "Pool", "capacity", "capacity_of_stages", "layout_of"]
