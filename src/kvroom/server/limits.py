"""Which limit a step met, as seen from outside, and what would move it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kvroom.server.check import CURES
from kvroom.server.outcome import Failure
from kvroom.server.pool import Pool
from kvroom.server.step import Step
from kvroom.server.workload import Job
from kvroom.units import cdiv

TARGET_PERCENTILE = 95
"""So many of 100 requests must stay within a latency target."""
_FULL = 0.99
_BLOCK = 16


class Cause(StrEnum):
    """What ends a ramp."""

    GONE = "server_gone"
    STUCK = "stuck"
    FAILURES = "failures"
    KV_POOL = "kv_pool"
    SEATS = "max_num_seqs"
    PREFILL = "max_num_batched_tokens"
    TTFT = "ttft"
    TPOT = "tpot"
    BUDGET = "budget"
    LEVELS = "levels"
    """Every level asked for was reached."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Seconds that a request may take, None: as long as it likes."""

    ttft: float | None = None
    tpot: float | None = None


NO_TARGETS = Targets()


@dataclass(frozen=True, slots=True)
class Change:
    """What to change at the server, and at what price."""

    flags: tuple[str, ...]
    why: str
    price: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit met first, at which concurrency, how that shows, and what to change."""

    cause: Cause
    concurrency: int | None
    evidence: str
    also: tuple[str, ...] = ()
    """What else was missed at that concurrency."""
    changes: tuple[Change, ...] = ()

    @property
    def of_server(self) -> bool:
        """Whether the server set it, not kvroom's own bounds."""
        return self.cause not in {Cause.BUDGET, Cause.LEVELS}


def limit_of(step: Step, jobs: Sequence[Job], pool: Pool | None, targets: Targets) -> Limit | None:
    """The limit that ``step`` met; None when it met none."""
    met = [*_broken(step), *_room(step, jobs, pool), *_late(step, targets)]
    if not met:
        return None
    (cause, evidence), *also = met
    return Limit(cause, step.concurrency, evidence, tuple(text for _, text in also), _changes(cause, step))


def meets(step: Step, targets: Targets) -> bool:
    """Whether every request of ``step`` was answered, within the targets."""
    return bool(step.done) and not step.failures and not list(_late(step, targets))


def _broken(step: Step) -> list[tuple[Cause, str]]:
    failures = [(kind, count) for kind, count in step.failures if kind is not Failure.BUDGET]
    if step.given_up is not None and step.given_up.kind is Failure.DROPPED:
        return [(Cause.GONE, f"the server went away: {len(step.done)} of {len(step.outcomes)} requests were answered")]
    if step.given_up is not None and step.given_up.kind is Failure.STUCK:
        return [(Cause.STUCK, str(step.given_up))]
    if failures:
        kinds = ", ".join(f"{count} {kind}" for kind, count in failures)
        first = next(outcome for outcome in step.outcomes if outcome.failure is failures[0][0])
        return [(Cause.FAILURES, f"{kinds} of {len(step.outcomes)} requests; the first: {first.message}")]
    if not step.done:
        return [(Cause.BUDGET, "the requests or seconds allowed ended within it")]
    return []


def _room(step: Step, jobs: Sequence[Job], pool: Pool | None) -> list[tuple[Cause, str]]:
    """Blocks run out, seats run out, or reading prompts is what others wait for."""
    preempted, use = step.counted("preemptions"), step.kv_use or 0.0
    queued = [sample for sample in step.samples if sample.waiting]
    if preempted:
        return [
            (
                Cause.KV_POOL,
                f"{preempted} preemptions for lack of KV blocks (when read, up to {use:.0%} in use, {_queue(step)})",
            )
        ]
    if len(queued) < 2 or step.running is None:
        return []
    if _no_blocks(use, jobs, pool):
        return [(Cause.KV_POOL, f"requests wait for KV blocks: {use:.0%} in use, {_queue(step)}")]
    seated = [sample for sample in queued if sample.running == step.running]
    if 2 * len(seated) >= len(queued) and (step.concurrency is None or step.running < step.concurrency):
        return [
            (Cause.SEATS, f"never more than {step.running} run, {step.waiting} wait, the KV cache has room ({use:.0%})")
        ]
    busy = [sample for sample in step.samples if sample.running]
    if 2 * len(queued) >= len(busy):
        return [
            (Cause.PREFILL, f"requests wait although blocks are free ({use:.0%} in use) and seats too: {_queue(step)}")
        ]
    return []


def _no_blocks(use: float, jobs: Sequence[Job], pool: Pool | None) -> bool:
    """Whether what is free at the fullest moment does not take one more prompt."""
    claim = pool.claim if pool else None
    tokens = (pool.usable_tokens if pool else None) or (claim.most_tokens if claim else None)
    if tokens is None or not jobs:
        return use >= _FULL
    block = (claim.block_size if claim else None) or _BLOCK
    prompt = sum(job.input_len for job in jobs) / len(jobs)
    return round((1 - use) * tokens / block) < cdiv(int(prompt), block)


def _queue(step: Step) -> str:
    return f"up to {step.running} running and {step.waiting} waiting"


def _late(step: Step, targets: Targets) -> list[tuple[Cause, str]]:
    found = []
    for cause, measured, target in ((Cause.TTFT, step.ttft, targets.ttft), (Cause.TPOT, step.tpot, targets.tpot)):
        if target is not None and measured is not None and measured.at(TARGET_PERCENTILE) > target:
            at = f"{measured.at(TARGET_PERCENTILE) * 1000:,.0f} ms at the {TARGET_PERCENTILE}th percentile"
            found.append((cause, f"{cause.upper()} {at}, target {target * 1000:,.0f} ms"))
    return found


def _changes(cause: Cause, step: Step) -> tuple[Change, ...]:
    fewer = max((step.concurrency or step.running or 2) // 2, 1)
    if cause is Cause.KV_POOL:
        return (
            Change(
                ("--gpu-memory-utilization", "0.95"), "more of the card becomes KV blocks", "less is left for peaks"
            ),
            Change(("--kv-cache-dtype", "fp8"), "twice the tokens in the same memory", "some quality; not every card"),
            Change(
                ("--max-num-seqs", str(fewer)), "requests wait instead of being preempted and read again", "more wait"
            ),
            Change(("--tensor-parallel-size", "2"), "the weights are shared, more is left for blocks", "another card"),
        )
    if cause is Cause.SEATS:
        more = 2 * (step.running or 1)
        return (
            Change(("--max-num-seqs", str(more)), "more requests run at once", "memory for sampling and CUDA graphs"),
        )
    if cause is Cause.PREFILL:
        return (
            Change(
                ("--max-num-batched-tokens", "8192"), "more prompt tokens a step", "activation memory; answers stutter"
            ),
            Change(("--enable-prefix-caching",), "what prompts share is read once", ""),
        )
    if cause is Cause.TTFT:
        return (
            Change(("--max-num-seqs", str(fewer)), "fewer requests share the card", "others wait longer"),
            Change(
                ("--max-num-batched-tokens", "8192"), "more prompt tokens a step", "activation memory; answers stutter"
            ),
        )
    if cause is Cause.TPOT:
        return (
            Change(("--max-num-seqs", str(fewer)), "fewer requests share each step", "others wait"),
            Change(
                ("--max-num-batched-tokens", "2048"), "reading prompts interrupts answers less", "a later first token"
            ),
        )
    kind = {Cause.GONE: Failure.DROPPED, Cause.STUCK: Failure.STUCK}.get(cause)
    if cause is Cause.FAILURES:
        kind = next((kind for kind, _ in step.failures if kind is not Failure.BUDGET), None)
    return (Change((), CURES[kind]),) if kind in CURES else ()
