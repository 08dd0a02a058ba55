"""How many tokens the KV cache really holds, measured from outside, beside what the server claims."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, replace

from kvroom.server.check import Check, Held
from kvroom.server.client import Client
from kvroom.server.generate import Ask, Progress, generate
from kvroom.server.lengths import Prompts
from kvroom.server.meter import Meter
from kvroom.server.metrics import Claim, Sample
from kvroom.server.outcome import Outcome
from kvroom.units import cdiv

_LONGEST_PROMPT = 4096
_ANSWER = 256
_READINGS = 8
_EVERY_S = 0.05
_SOON_S = 0.02
_TOLERANCE = 0.02


@dataclass(frozen=True, slots=True)
class Pool:
    """The KV cache of one engine, in tokens."""

    claim: Claim | None
    usable_tokens: int | None = None
    """Measured; None where it could not be."""
    usable_blocks: int | None = None
    exact: bool = False
    """Every block holds the same number of tokens of every request, so that the figure is true to the block."""
    readings: int = 0
    why: str = ""
    """Why there is no measured figure."""

    @property
    def kept_back(self) -> int | None:
        """Tokens that the server counts and no request ever gets."""
        if self.usable_tokens is None or self.claim is None or self.claim.most_tokens is None:
            return None
        return self.claim.most_tokens - self.usable_tokens


async def measure_pool(
    client: Client, meter: Meter, ask: Ask, prompts: Prompts, max_model_len: int | None, seconds: float
) -> Pool:
    """Hold one request of known length and read which part of the cache it takes.

    vLLM shows the part as an exact fraction of the blocks that it can hand out (V1: all but the null block;
    v1/core/block_pool.py: BlockPool.get_usage), so that blocks held divided by it is their number.
    """
    before = await meter.read()
    if before is None:
        return Pool(None, why=meter.problem or "the server shows no metrics")
    if before.kv_use is None:
        return Pool(before.claim, why="the server does not show how full its KV cache is")
    if before.running or before.waiting:
        return Pool(before.claim, why="others use the server")
    if not prompts.exact:
        return Pool(before.claim, why="prompts of exact length cannot be sent")
    claimed = (before.claim.most_tokens if before.claim else None) or 2 * _LONGEST_PROMPT
    longest = min(max_model_len or claimed, claimed)
    prompt = max(min(longest // 2, _LONGEST_PROMPT), 1)
    output = max(min(_ANSWER, longest - prompt), 1)
    one = replace(ask, prompt=prompts.make(prompt), output=output, chat=False)
    held, outcome = await _hold(client, meter, one, seconds)
    if not held:
        return Pool(before.claim, why=outcome.message or "the answer was over before it could be read")
    return _pool(before.claim, prompt, held)


async def _hold(client: Client, meter: Meter, ask: Ask, seconds: float) -> tuple[list[tuple[int, Sample]], Outcome]:
    """Tokens written so far, and the figures then; the request is cancelled once there are enough."""
    progress = Progress()
    task = asyncio.create_task(generate(client, ask, seconds, progress))
    held: list[tuple[int, Sample]] = []
    stall = meter.stall()
    try:
        while not task.done() and len(held) < _READINGS:
            if progress.first is None:
                await asyncio.wait({task}, timeout=_SOON_S)
            sample = await meter.read()
            if stall.seen(sample, progress.last or progress.started, time.perf_counter()):
                break
            if progress.chunks and sample is not None and sample.running == 1 and sample.kv_use and not task.done():
                held.append((progress.chunks, sample))
            await asyncio.wait({task}, timeout=_EVERY_S)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await meter.settles()
    return held, progress.outcome() if task.cancelled() else task.result()


def _pool(claim: Claim | None, prompt: int, held: list[tuple[int, Sample]]) -> Pool:
    """The number of blocks that most readings agree on: next to a block's end one may be a block off."""
    block = claim.block_size if claim else None
    readings = len(held)
    if not block:
        tokens = sorted((prompt + written) / (sample.kv_use or 1.0) for written, sample in held)
        return Pool(claim, int(tokens[readings // 2]), None, exact=False, readings=readings)
    blocks = [cdiv(prompt + written, block) / (sample.kv_use or 1.0) for written, sample in held]
    (count, votes), *_ = Counter(round(number) for number in blocks).most_common(1)
    whole = [number for number in blocks if abs(number - count) < 1e-6 * count]
    return Pool(
        claim, count * block, count, exact=len(whole) * 2 > readings and votes * 2 > readings, readings=readings
    )


def pool_check(pool: Pool, max_model_len: int | None) -> Check:
    """Whether the cache holds what is claimed, but for the null block, and one request of max_model_len."""
    name, claim = "KV cache", pool.claim
    claimed = claim.most_tokens if claim else None
    if pool.usable_tokens is None:
        said = f"the server claims {claimed:,} tokens; " if claimed else ""
        return Check(name, Held.UNKNOWN, f"{said}not measured: {pool.why}")
    block = claim.block_size if claim else None
    seen = f"{pool.usable_tokens:,} tokens usable"
    if pool.usable_blocks is not None and block:
        seen += f" ({pool.usable_blocks:,} blocks of {block})"
    if claimed:
        seen += f", {claimed:,} claimed"
    if max_model_len and pool.exact and pool.usable_tokens < max_model_len:
        why = f"One request of max_model_len {max_model_len:,} cannot be held: it would wait for ever."
        return Check(name, Held.FAILS, seen, why, "Give the KV cache more room, or lower --max-model-len.")
    if not claimed or not block:
        return Check(name, Held.HOLDS, seen)
    off = claimed - pool.usable_tokens
    if pool.exact and off == block:
        why = f"One block of {block} is the null block: counted by the server, never handed out."
        return Check(name, Held.HOLDS, seen, why)
    if abs(off) <= max(block, _TOLERANCE * claimed):
        return Check(name, Held.HOLDS, seen)
    why = (
        "Layers with a window or a state take blocks in other numbers than full attention does, so that a request of "
        "this length stands for no other."
    )
    return Check(name, Held.UNKNOWN, seen, why)
