"""What the findings about a start share: out-of-memory errors taken apart, and remedies with their numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvroom.logs.reading import State
from kvroom.logs.stages import stage_of_error
from kvroom.units import GIB, show_bytes
from kvroom.vllm.rules import rules_for

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

CEILING = 0.97
"""Utilisation above this leaves too little for what vLLM allocates after the KV cache."""
ROUNDING = GIB // 100
"""What vLLM's two decimals hide of a size."""
_MEMORY_WORDS = re.compile(r"\bOOMs?\b|out of memory|OutOfMemory", re.IGNORECASE)
_OOM = ("oom", "oom_old", "oom_driver")
_TOLD = frozenset({"told_oom", "told_eager", "told_fails", "told_capture"})
"""How people put it who do not show the error."""
_PARTS = {
    "oom_this": "used",
    "oom_allocated": "allocated",
    "oom_private": "private",
    "oom_fragments": "fragments",
}


@dataclass(frozen=True, slots=True)
class Oom:
    """An out-of-memory error of the GPU: where it happened and what its text says, in bytes."""

    fact: Fact
    stage: str
    """``unknown`` where neither the error nor what surrounds it tells."""
    wanted: int | None = None
    free: int | None = None
    total: int | None = None
    used: int | None = None
    """What the whole process held, in the driver's count."""
    allocated: int | None = None
    private: int | None = None
    """Of CUDA graphs."""
    fragments: int | None = None
    """Reserved by PyTorch and not in use."""

    @property
    def elsewhere(self) -> int | None:
        """What neither this process holds nor is free; None where the text does not say."""
        if not self.used or self.total is None or self.free is None:
            return None
        return max(self.total - self.free - self.used, 0)

    @property
    def fragmented(self) -> bool:
        """Whether PyTorch held enough unused memory, only not in one piece."""
        return bool(self.wanted and self.fragments and self.fragments >= self.wanted)


def ooms(case: Case, *stages: str) -> tuple[Oom, ...]:
    """The out-of-memory errors of a start that did not come up, one for each stage, in ``stages`` if given."""
    reading = case.reading
    if reading.came_up and reading.state is not State.DIED:
        return ()
    found: dict[str, Oom] = {}
    for fact in reading.facts.all(*_OOM):
        if "NV_ERR_NO_MEMORY" in fact.text:
            continue
        stage = reading.stage if fact is reading.error else stage_of_error(fact, reading.facts)
        if stage not in found or (found[stage].wanted is None and fact.size("wanted") is not None):
            found[stage] = _taken_apart(fact, stage, case)
    error = reading.error
    if not found and error is not None and error.id in _TOLD:
        found[reading.stage] = Oom(error, reading.stage)
    return tuple(oom for oom in found.values() if not stages or oom.stage in stages)


def _taken_apart(fact: Fact, stage: str, case: Case) -> Oom:
    sizes = {name: fact.size(name) for name in ("wanted", "free", "total", "allocated")}
    if fact.id == "oom_old":
        reserved, allocated = fact.size("reserved"), sizes["allocated"]
        if reserved is not None and allocated is not None:
            sizes["fragments"] = max(reserved - allocated, 0)
    for part in case.reading.facts.all(*_PARTS):
        name = _PARTS[part.id]
        if fact.line <= part.line <= fact.line + 6 and part.process == fact.process and sizes.get(name) is None:
            sizes[name] = part.size(name)
    return Oom(fact, stage, **sizes)


def profiles_graphs(case: Case) -> Fact | None:
    """The line that shows that memory ran out while the size of CUDA graphs was measured; None where none does."""
    if case.reading.came_up:
        return None
    for fact in case.reading.facts.all("frame", "mentioned"):
        if "profile_cudagraph_memory" not in fact.text:
            continue
        near = any(fact.line <= oom.fact.line <= fact.line + 120 for oom in ooms(case))
        if near or _MEMORY_WORDS.search(fact.text):
            return fact
    return None


def anatomy(oom: Oom) -> str:
    """What an out-of-memory text says, in one or two sentences; empty where it has no numbers."""
    if oom.wanted is None:
        return ""
    left = f"{show_bytes(oom.wanted)} was asked for"
    if oom.free is not None:
        left += f" and {show_bytes(oom.free)} was free"
        left += f" of {show_bytes(oom.total)}" if oom.total else ""
    held = []
    if oom.allocated is not None:
        held.append(f"PyTorch had {show_bytes(oom.allocated)} in use")
    if oom.private:
        held.append(f"{show_bytes(oom.private)} of it in CUDA graph pools")
    if oom.fragments:
        held.append(f"{show_bytes(oom.fragments)} reserved but unused")
    if oom.elsewhere and oom.elsewhere > GIB // 4:
        held.append(f"{show_bytes(oom.elsewhere)} belonged to other processes")
    return sentence(left) + (" " + sentence("; ".join(held)) if held else "")


def sentence(text: str) -> str:
    """``text`` with a capital letter and a full stop.

    >>> sentence("two GPUs")
    'Two GPUs.'
    """
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def defragment(case: Case, oom: Oom) -> tuple[str, ...]:
    """The allocator's setting against fragmentation, where that is the case and the setting may be used."""
    if not oom.fragmented or (case.setting("enable_sleep_mode") and not case.since("0.20.1")):
        return ()
    return ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (enough is reserved, but in pieces)",)


def asked(case: Case, name: str) -> Any:
    """What the user gave for vLLM's argument ``name``, by the log or by the command; None where nothing."""
    value = case.reading.given.get(name)
    if value is None and case.prediction is not None:
        value = getattr(case.prediction.setup.args, name, None)
    return value


def number_of(value: object) -> float | None:
    """``value`` as a number, None where it is none.

    >>> number_of("0.9"), number_of(True), number_of("auto")
    (0.9, None, None)
    """
    if isinstance(value, bool):
        return None
    try:
        return float(str(value))
    except ValueError:
        return None


def whole(case: Case, name: str) -> int | None:
    """The argument ``name`` as a whole number; None where it is unknown or ``auto``."""
    number = number_of(case.setting(name))
    if number is None:
        number = number_of(asked(case, name))
    return int(number) if number is not None and number > 0 else None


def total_of(case: Case) -> int | None:
    """The total memory of one GPU, as logged or as known of the card."""
    if case.reading.total_bytes:
        return case.reading.total_bytes
    return case.prediction.setup.machine.device.total_bytes if case.prediction is not None else None


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
    return whole(case, "kv_cache_memory_bytes") or (fact.gib("available") if fact else None)


def block_of(case: Case) -> int:
    """Tokens in a block of the KV cache: as logged, else vLLM's usual 16."""
    return case.reading.pool.block_size or 16


def floor_length(tokens: float, block: int) -> int:
    """``tokens`` rounded down to whole blocks.

    >>> floor_length(50535.2, 16)
    50528
    """
    return int(tokens) // block * block


def more_share(case: Case, missing: int) -> float | None:
    """The utilisation that adds ``missing`` bytes to the budget; None where the card does not have them."""
    total, share = total_of(case), utilization_of(case)
    if total is None or share is None or pinned_bytes(case):
        return None
    wanted = math.ceil((share + (missing + ROUNDING) / total) * 100) / 100
    most = min(CEILING, (case.reading.free_bytes or total) / total)
    return wanted if share < wanted <= most else None


def less_share(case: Case, freed: int) -> float | None:
    """The utilisation that leaves ``freed`` bytes more outside the budget; None where that is no sensible one."""
    total, share = total_of(case), utilization_of(case)
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
    ranks, prediction = whole(case, "tensor_parallel_size"), case.prediction
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
    kind = str(case.setting("kv_cache_dtype") or asked(case, "kv_cache_dtype") or "auto")
    return kind not in {"auto", "bfloat16", "float16", "float32", "half", "None"}


def takes_fp8(case: Case) -> bool:
    """Whether an 8-bit KV cache is worth a try: not yet in use, and nothing known to be in its way."""
    if eight_bit(case) or case.since("0.6.0") is False:
        return False
    capability = case.prediction.setup.machine.device.compute_capability if case.prediction is not None else None
    return capability is None or capability >= (8, 0)


def lighter_batch(case: Case) -> tuple[str, ...]:
    """Settings that lower the activation peak of the profile run, as far as they are not low already."""
    tokens, sequences = whole(case, "max_num_batched_tokens"), whole(case, "max_num_seqs")
    length = whole(case, "max_model_len") or case.reading.pool.max_model_len
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
