"""KVR203: the KV cache cannot hold one request of full length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.startup.common import (
    BIT_HIGHER,
    CEILING,
    first,
    higher_share,
    more_share,
    pinned_bytes,
    share_flag,
    takes_fp8,
    utilization_of,
)
from kvroom.findings.startup.host_pool import host_shortage
from kvroom.findings.startup.shortage import Shortage, shortage_of
from kvroom.findings.values import floor_length
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR203",
    "one-request-does-not-fit",
    Severity.ERROR,
    "vLLM starts only if the KV cache can hold one request of max_model_len tokens, and it cannot.",
    explanation(
        what="""
            Reports the check that compares the KV cache with one request of `max_model_len` tokens, in the
            wordings of all releases.
            Where the log ends before the message, the same comparison is made with the numbers that were
            printed before it, and the finding says that it is inferred.
            """,
        why="""
            Nobody may ever send a request of that length; the check is there so that none can get stuck.
            The default length is the longest that the model's config allows, often 128K tokens and more.
            Up to V0 the message counts tokens (blocks x tokens a block), since V1 it counts bytes.
            Where all layers attend to the whole context, the need is proportional to the length.
            With sliding windows or recurrent state a part of it is fixed for each request, so that the length
            that fits is less than the proportion suggests.
            All numbers are per GPU.
            """,
        example="""
            A 32B model with 64 layers of 8 x 128 KV heads takes 256 KiB a token: 131,072 tokens need 32 GiB.
            With 10 GiB left, 40,960 tokens fit.
            """,
        cure="""
            `--max-model-len` at the length that fits, or `--max-model-len auto` since 0.14; an 8-bit KV cache
            (`--kv-cache-dtype fp8`) halves the need where the attention backend takes it; a higher
            `--gpu-memory-utilization` adds its share of the card; more GPUs split the KV heads.
            """,
        since="""
            The check by tokens exists since 0.2 and ended with V0 in 0.11, the check by bytes came with V1 in
            0.7.
            The estimated length is printed since 0.8.4.
            """,
        references="""
            `vllm/v1/core/kv_cache_utils.py: check_enough_kv_cache_memory`, V0 `vllm/worker/worker.py:
            raise_if_cache_size_invalid`
            """,
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with the arithmetic of the shortage."""
    cpu = case.reading.facts.first("err_cpu_pool", "err_cpu_worker")
    if cpu is not None:
        title, why, advice = host_shortage(case, cpu)
        yield RULE.found(title, why, evidence=(shown(cpu),), advice=advice)
        return
    short = shortage_of(case)
    if short is None:
        return
    yield RULE.found(
        _title(short),
        " ".join(_why(case, short)),
        evidence=[shown(fact) for fact in short.evidence],
        advice=_advice(case, short),
        severity=None if short.certain else Severity.WARNING,
    )


def _title(short: Shortage) -> str:
    length = f"{short.length:,} tokens" if short.length else "max_model_len tokens"
    start = "Inferred: one request" if short.inferred else "One request"
    if short.needed == 0:
        need = "needs more KV cache than the few MiB that there are"
    elif short.needed is not None and short.available is not None:
        need = f"needs {show_bytes(short.needed)} of KV cache; {_size(short.available)} is left"
    elif short.needed_blocks is not None and short.blocks is not None:
        need = f"needs {short.needed_blocks:,} KV cache blocks; there are {short.blocks:,}"
    elif short.tokens is not None:
        need = f"does not fit; the KV cache holds {short.tokens:,}"
    elif short.available is not None:
        return f"{start} of {length} likely does not fit in {show_bytes(short.available)} of KV cache."
    else:
        return f"{start} of {length} likely does not fit in the KV cache."
    return f"{start} of {length} {need}."


def _size(n_bytes: int) -> str:
    """A size as the log shows it: nought is what its decimals hide."""
    return show_bytes(n_bytes) if n_bytes else "0.00 GiB"


def _why(case: Case, short: Shortage) -> Iterator[str]:
    if short.inferred:
        yield short.inferred
    if short.needed == 0:
        yield "The log prints both sizes as 0.0 GiB: too small for its decimals, and yet one is the larger."
    elif short.missing is not None:
        yield f"{show_bytes(short.missing)} is missing."
    if short.fixed is not None and short.per_token:
        yield (
            f"The need is not proportional to the length: about {show_bytes(short.fixed)} is fixed for each request "
            f"(sliding windows or recurrent state) and {short.per_token:,.0f} B come with each token, so that "
            f"{short.fits:,} tokens fit."
        )
    elif short.per_token:
        room = f" room for {short.fits:,} tokens" if short.fits else ""
        yield f"{short.per_token:,.0f} B a token, so {show_bytes(short.available or 0)} is{room or ' too little'}."
    elif short.tokens is not None and short.length:
        yield f"{short.length - short.tokens:,} tokens of {short.length:,} are missing."
    if (case.whole("tensor_parallel_size") or 1) > 1:
        yield "The numbers are per GPU; each already holds its share of the KV heads."
    if (ranks := case.whole("data_parallel_size") or 1) > 1:
        yield f"Each of the {ranks} data-parallel ranks keeps the KV of its own requests whole."


def _advice(case: Case, short: Shortage) -> tuple[str, ...]:
    fits = floor_length(short.fits, short.block) if short.fits else 0
    length = f"--max-model-len {fits}" if fits else "Lower --max-model-len until one request fits."
    auto = "--max-model-len auto" if case.since("0.14.0") else None
    share = more_share(case, short.missing) if short.missing else None
    raised = share_flag(share) if share else None
    half = short.needed is not None and 0 < short.needed <= 2 * (short.available or 0)
    fp8 = "--kv-cache-dtype fp8" if half and short.fixed is None and takes_fp8(case) else None
    pinned = pinned_bytes(case)
    if pinned and short.needed:
        raised = f"--kv-cache-memory-bytes {short.needed} (if the card has that much)"
    elif (
        not pinned
        and raised is None
        and None in (case.total_bytes, short.missing)
        and (utilization_of(case) or 0.9) < CEILING
    ):
        raised = higher_share(case) if short.missing is None or short.missing > GIB // 2 else BIT_HIGHER
    if not short.fits and short.length is None:
        return first((length, auto, raised, "Read the lines of EngineCore around this one: they name both sizes."))
    if case.asked("max_model_len") is not None:
        return first((raised, length, fp8, auto))
    return first((length, auto, raised, fp8))
