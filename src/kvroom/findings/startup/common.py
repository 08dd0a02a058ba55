"""What the findings about a start share: what the launch asked for, and remedies with their numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kvroom.findings.values import number_of
from kvroom.units import GIB, show_bytes
from kvroom.vllm.rules import rules_for

if TYPE_CHECKING:
    from kvroom.findings.case import Case

CEILING = 0.97
"""Utilisation above this leaves too little for what vLLM allocates after the KV cache."""
ROUNDING = GIB // 100
"""What vLLM's two decimals hide of a size."""


def served(case: Case) -> bool:
    """Whether the engine had been up."""
    return case.reading.facts.first("engine_dead", "engine_dead_v0", "engine_fatal", "serving") is not None


def unified(case: Case) -> bool:
    """Whether the GPU shares its memory with the CPU."""
    if case.prediction is not None and case.prediction.setup.machine.device.unified:
        return True
    name = (case.reading.device or "").lower()
    return any(word in name for word in ("gb10", "spark", "jetson", "orin", "thor"))


def utilization_of(case: Case) -> float | None:
    """The share of the card that was asked for: as logged or given, else the release's default."""
    number = number_of(case.setting("gpu_memory_utilization"))
    if number is None and (newer := case.since("0.20.0")) is not None:
        return 0.92 if newer else 0.9
    return number


def pinned_bytes(case: Case) -> int | None:
    """The size of the KV cache where it was fixed in bytes."""
    fact = case.reading.facts.last("reserved")
    return case.whole("kv_cache_memory_bytes") or (fact.gib("available") if fact else None)


def block_of(case: Case) -> int:
    """Tokens in a block of the KV cache: as logged, else vLLM's usual 16."""
    return case.reading.pool.block_size or 16


def more_share(case: Case, missing: int) -> float | None:
    """The utilisation that adds ``missing`` bytes to the budget; None where the card does not have them."""
    total, share = case.total_bytes, utilization_of(case)
    if total is None or share is None or pinned_bytes(case):
        return None
    wanted = math.ceil((share + (missing + ROUNDING) / total) * 100) / 100
    most = min(CEILING, (case.reading.free_bytes or total) / total)
    return wanted if share < wanted <= most else None


def less_share(case: Case, freed: int) -> float | None:
    """The utilisation that leaves ``freed`` bytes more outside the budget; None where that is no sensible one."""
    total, share = case.total_bytes, utilization_of(case)
    if total is None or share is None or pinned_bytes(case):
        return None
    wanted = math.floor((share - freed / total) * 100 + 1e-6) / 100
    return wanted if 0.3 <= wanted < share else None


BIT_HIGHER = "Raise --gpu-memory-utilization by 0.01 to 0.02."


def lower_share(case: Case) -> str:
    """The option with a somewhat lower utilisation: the cache shrinks, and what comes after it has room."""
    share = utilization_of(case) or (0.92 if case.since("0.20.0") else 0.9)
    return share_flag(round(max(share - 0.05, share / 2), 3))


def higher_share(case: Case) -> str | None:
    """The option with a utilisation near all of the card; None where it is there already."""
    share = utilization_of(case) or 0.9
    if share >= CEILING:
        return None
    return f"{share_flag(0.95 if share < 0.94 else CEILING)} (if the card has that much free)"


def share_flag(share: float) -> str:
    """The option with ``share``."""
    return f"--gpu-memory-utilization {share:g}"


def more_ranks(case: Case) -> str | None:
    """The option that spreads weights over twice the GPUs; None where there are not so many."""
    ranks, prediction = case.whole("tensor_parallel_size"), case.prediction
    if ranks is None and prediction is None and not case.reading.given:
        return "More GPUs with --tensor-parallel-size: each then holds a smaller part of the weights."
    ranks = ranks or 1
    if prediction is not None:
        machine, heads = prediction.setup.machine, prediction.setup.shape.heads
        if (1 < machine.count < 2 * ranks) or (heads and heads % (2 * ranks)):
            return None
    return f"--tensor-parallel-size {2 * ranks}"


def eight_bit(case: Case) -> bool:
    """Whether the KV cache already has 8 bits or fewer a number."""
    kind = str(case.setting("kv_cache_dtype") or case.asked("kv_cache_dtype") or "auto")
    return kind not in {"auto", "bfloat16", "float16", "float32", "half", "None"}


def takes_fp8(case: Case) -> bool:
    """Whether an 8-bit KV cache is worth a try: not yet in use, and nothing known to be in its way."""
    if eight_bit(case) or case.since("0.6.0") is False:
        return False
    capability = case.prediction.setup.machine.device.compute_capability if case.prediction is not None else None
    return capability is None or capability >= (8, 0)


def lighter_batch(case: Case) -> tuple[str, ...]:
    """Settings that lower the activation peak of the profile run, as far as they are not low already."""
    tokens, sequences = case.whole("max_num_batched_tokens"), case.whole("max_num_seqs")
    length = case.whole("max_model_len") or case.reading.pool.max_model_len
    found = []
    if case.reading.facts.first("encoder_budget"):
        found.append(fewer_images(case))
    if sequences is None or sequences > 64:
        found.append("--max-num-seqs 64")
    if chunked(case):
        if tokens is None or tokens > 2048:
            found.append("--max-num-batched-tokens 2048")
    elif length is None or length > 8192:
        found.append("--max-model-len 8192 (the profile run computes a batch of that length)")
    if case.reading.size("graph_estimate") and not case.setting("enforce_eager"):
        found.append("--enforce-eager (gives up CUDA graphs)")
    return tuple(found)


def fewer_images(case: Case) -> str:
    """The option that lowers what the profile run encodes, as this release writes it."""
    as_json = case.release is None or bool(rules_for(case.release)["limit_mm_json"])
    limit = '\'{"image": 1, "video": 0}\'' if as_json else "image=1"
    return f"--limit-mm-per-prompt {limit}"


def chunked(case: Case) -> bool:
    """Whether prompts are split over steps, so that a batch may be shorter than the context."""
    told = case.setting("enable_chunked_prefill")
    if isinstance(told, bool):
        return told
    if case.reading.engine is not None:
        return case.reading.engine == "V1"
    return case.since("0.8.0") is not False


def ledger_text(case: Case) -> str:
    """The subtraction that the log prints: what was asked for, less its parts, is what is left; or empty."""
    reading = case.reading
    requested, available = reading.size("requested"), reading.size("available")
    parts = [
        f"{show_bytes(size)} {word}"
        for name, word in (
            ("weights", "weights"),
            ("activation", "activation"),
            ("other", "other (CUDA context, NCCL, other processes)"),
            ("graph_estimate", "CUDA graphs"),
        )
        if (size := reading.size(name)) is not None
    ]
    if requested is None or not parts:
        return ""
    end = f" = {show_bytes(available)} for the KV cache" if available is not None else ""
    return f"{show_bytes(requested)} of budget - {' - '.join(parts)}{end}."


def first(items: Iterable[str | None], limit: int = 4) -> tuple[str, ...]:
    """The first ``limit`` of ``items`` that say something, each once."""
    return tuple(dict.fromkeys(_said(items)))[:limit]


def _said(items: Iterable[str | None]) -> Iterator[str]:
    for item in items:
        if item:
            yield item
