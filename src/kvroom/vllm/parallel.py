"""How vLLM divides a model: decoder layers over pipeline stages, KV heads over tensor-parallel ranks."""

from __future__ import annotations

from functools import cache
from itertools import accumulate

from kvroom.errors import UsageError


@cache
def stage_layers(
    layers: int, stages: int, partition: str | None = None, remainder: str = "before_last"
) -> tuple[range, ...]:
    """The decoder layers of each pipeline stage, in order.

    ``partition`` is ``VLLM_PP_LAYER_PARTITION``: layers per stage, separated by commas. Layers that do
    not divide evenly go one each to the stages before the last (``remainder`` ``before_last``), or all
    to the last as old releases did (``last``). Raises UsageError when ``partition`` does not fit.
    Mirrors distributed/utils.py: get_pp_indices.

    >>> stage_layers(10, 4)
    (range(0, 2), range(2, 5), range(5, 8), range(8, 10))
    """
    if partition:
        counts = _given(partition, layers, stages)
    else:
        counts = [layers // stages] * stages
        left = layers % stages
        if remainder == "last":
            counts[-1] += left
        else:
            for back in range(2, left + 2):
                counts[-back] += 1
    ends = list(accumulate(counts))
    return tuple(range(end - count, end) for end, count in zip(ends, counts, strict=True))


def _given(partition: str, layers: int, stages: int) -> list[int]:
    cure = f"Give {stages} whole numbers that add up to {layers}."
    try:
        counts = [int(part) for part in partition.split(",")]
    except ValueError:
        raise UsageError(f"VLLM_PP_LAYER_PARTITION '{partition[:60]}' is not a list of numbers.", cure) from None
    if len(counts) != stages or sum(counts) != layers or min(counts) < 0:
        raise UsageError(
            f"VLLM_PP_LAYER_PARTITION '{partition[:60]}' does not divide {layers} layers over {stages} stages.",
            cure,
        )
    return counts


def kv_heads_per_rank(kv_heads: int, tp: int) -> int:
    """KV heads that one tensor-parallel rank stores; heads are replicated when ranks outnumber them.

    Mirrors config/model.py: ModelConfig.get_num_kv_heads.

    >>> kv_heads_per_rank(8, 4), kv_heads_per_rank(8, 16)
    (2, 1)
    """
    return max(1, kv_heads // tp)


def deals(heads: int, kv_heads: int, tp: int) -> bool:
    """Whether ``heads`` attention heads and ``kv_heads`` KV heads can be shared by ``tp`` ranks.

    KV heads are divided, or replicated a whole number of times (model_executor/models/qwen2.py and its
    relatives assert it).
    """
    kv = max(kv_heads, 1)
    return heads % tp == 0 and (kv % tp == 0 or tp % kv == 0)
