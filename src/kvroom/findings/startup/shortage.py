"""By how much one request exceeds the KV cache: from the message, else from what was printed before it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvroom.findings.startup.common import block_of
from kvroom.findings.values import floor_length
from kvroom.logs.reading import State
from kvroom.logs.stages import rank
from kvroom.units import GIB

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

_BYTES = ("err_bytes", "err_bytes_short")
_TOKENS = ("err_tokens", "err_tokens_short")
_CAUSES = (*_BYTES, *_TOKENS, "err_bytes_blocks", "err_none", "err_autofit", "err_metal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """One request against the pool; sizes in bytes per GPU."""

    evidence: tuple[Fact, ...]
    length: int | None
    block: int
    needed: int | None = None
    available: int | None = None
    needed_blocks: int | None = None
    blocks: int | None = None
    tokens: int | None = None
    """What the pool holds."""
    fits: int | None = None
    """The longest context that fits."""
    per_token: float | None = None
    fixed: int | None = None
    """The part of the need that does not grow with the length; None where there is none or it is unknown."""
    inferred: str = ""
    """Why it is said although the log has no such message."""
    certain: bool = True

    @property
    def missing(self) -> int | None:
        """Bytes that the pool lacks."""
        return self.needed - self.available if self.needed is not None and self.available is not None else None


def shortage_of(case: Case) -> Shortage | None:
    """The shortage that the log shows or that follows from it; None where there is none."""
    facts, pool, block = case.reading.facts, case.reading.pool, block_of(case)
    if case.reading.came_up and case.reading.state is not State.DIED:
        return None
    fact = facts.last(*_BYTES)
    if fact is not None:
        return _by_bytes(fact, case)
    fact = facts.last(*_TOKENS)
    if fact is not None:
        tokens, length = fact.whole("tokens"), fact.whole("max_model_len")
        lines = facts.all("split_v0", "split_v0_part")[-1:]
        found = Shortage(evidence=(*lines, fact), length=length, block=block, tokens=tokens, fits=tokens)
        return _with_bytes(found, case)
    fact = facts.last("err_bytes_blocks")
    if fact is not None:
        return Shortage(
            evidence=(fact,),
            length=fact.whole("max_model_len"),
            block=block,
            needed_blocks=fact.whole("needed"),
            blocks=pool.num_blocks,
            fits=pool.num_blocks * block if pool.num_blocks else None,
        )
    fact = facts.last("told_check", "told_only")
    if fact is not None:
        available = fact.gib("available") or case.reading.size("available")
        return Shortage(evidence=(fact,), length=case.whole("max_model_len"), block=block, available=available)
    return _inferred(case)


def _with_bytes(found: Shortage, case: Case) -> Shortage:
    """The bytes of a shortage in tokens, where the rank that printed its size is the only one or the model is known."""
    available = case.reading.size("available")
    layout = case.prediction.layout if case.prediction is not None else None
    if not available or not found.tokens or not found.length:
        return found
    per_token = available / found.tokens
    if layout is not None:
        needed = layout.needed_bytes(found.length)
        if abs(needed / found.length - per_token) > per_token * 0.02:
            return found
        return replace(found, available=available, needed=needed, per_token=needed / found.length)
    if case.reading.gpus != 1:
        return found
    return replace(found, available=available, needed=round(per_token * found.length), per_token=per_token)


def _by_bytes(fact: Fact, case: Case) -> Shortage:
    pool = case.reading.pool
    needed, available = fact.gib("needed"), fact.gib("available")
    length = fact.whole("max_model_len") or case.whole("max_model_len")
    estimate = case.reading.facts.last("estimated_length")
    fits = pool.estimated_max_len
    lines = (fact, estimate) if estimate is not None and estimate.line != fact.line else (fact,)
    found = Shortage(evidence=lines, length=length, block=block_of(case), needed=needed, available=available, fits=fits)
    if not needed or available is None or not length:
        return found
    per_token = needed / length
    straight = available / per_token
    if not fits:
        return _without_estimate(found, case, per_token, straight)
    slack = straight * _rounding(fact) + 2 * found.block
    if fits < straight - slack and fits < length:
        slope = (needed - available) / (length - fits)
        return replace(found, per_token=slope, fixed=max(round(needed - slope * length), 0))
    return replace(found, per_token=per_token)


def _rounding(fact: Fact) -> float:
    """How far a quotient of the two printed sizes may be off."""
    off = 0.0
    for name in ("needed", "available"):
        text = fact.values.get(name, "")
        number = fact.number(name)
        decimals = len(text.partition(".")[2]) or 1
        off += 0.5 * 10.0**-decimals / number if number else 1.0
    return off + 0.002


def _without_estimate(found: Shortage, case: Case, per_token: float, straight: float) -> Shortage:
    """What fits where the message does not say: by the rules for this model, else in proportion where that holds."""
    prediction = case.prediction
    if prediction is not None and prediction.layout is not None and prediction.settings is not None:
        from kvroom.vllm.kv.capacity import capacity

        fits = capacity(prediction.layout, found.available or 0, prediction.settings).longest_context
        linear = abs(fits - straight) < max(0.02 * straight, 64)
        return replace(found, fits=fits or None, per_token=per_token if linear else None)
    return replace(found, fits=floor_length(straight * 0.99, found.block) or None, per_token=per_token)


def _inferred(case: Case) -> Shortage | None:
    """The shortage of a log that ends where the check is made, from the pool that it prints before."""
    reading = case.reading
    if reading.facts.first(*_CAUSES) or reading.error is not None:
        return None
    if reading.state not in {State.FAILED, State.UNFINISHED} or _passed(case):
        return None
    if (reading.pool.max_concurrency or 0) >= 1:
        return None
    length = reading.pool.max_model_len or case.whole("max_model_len")
    block, pool = block_of(case), reading.pool
    lines = reading.facts.all("available", "reserved", "blocks_v0", "blocks_v1")[-1:]
    available = reading.size("available")
    failed = reading.state is State.FAILED and not (available is not None and available <= 0)
    found = Shortage(evidence=lines, length=length, block=block, available=available, certain=failed)
    blocks = pool.num_blocks
    if blocks and length and reading.facts.first("blocks_v0", "blocks_v1") and reading.facts.first("tokens") is None:
        tokens = blocks * block
        if tokens < length:
            text = f"The log stops after {blocks:,} blocks of {block} tokens, and the length is known from elsewhere."
            return replace(found, blocks=blocks, tokens=tokens, fits=tokens, inferred=text, certain=True)
        return None
    if available is not None and available > 0 and reading.facts.first("tokens") is None:
        by_rules = _by_rules(case, found)
        if by_rules is not None:
            return by_rules
        if failed and reading.stage == "kv_sizing":
            text = (
                "The log stops between the size of the cache and its blocks without the message; "
                "with a positive size, only the check of one request can fail there."
            )
            return replace(found, inferred=text)
    if reading.stage == "kv_sizing" and any("raise_if_cache_size_invalid" in fact.text for fact in _frames(case)):
        text = (
            "The start stopped in the check of the cache's size, whose message is missing: "
            "either no block is left, or they hold fewer tokens than max_model_len."
        )
        return replace(found, evidence=_frames(case)[-1:], inferred=text, certain=True)
    return None


def _by_rules(case: Case, found: Shortage) -> Shortage | None:
    """The shortage by the rules for this model, where they say that ``found.available`` is too little."""
    prediction = case.prediction
    if prediction is None or prediction.layout is None or prediction.settings is None or found.available is None:
        return None
    from kvroom.vllm.kv.capacity import capacity

    pool = capacity(prediction.layout, found.available, prediction.settings)
    if pool.fits or pool.needed_bytes <= found.available + GIB // 50:
        return None
    text = "The log stops before the check; the need is computed from the model's config."
    return replace(
        found,
        length=pool.max_model_len,
        needed=pool.needed_bytes,
        fits=pool.estimated_length or None,
        inferred=text,
        certain=found.certain or pool.needed_bytes > 1.05 * found.available,
    )


def _passed(case: Case) -> bool:
    """Whether the start went beyond the check."""
    return any(rank(mark.stage) > rank("kv_alloc") for mark in case.reading.marks)


def _frames(case: Case) -> tuple[Fact, ...]:
    return case.reading.facts.all("frame", "mentioned")
