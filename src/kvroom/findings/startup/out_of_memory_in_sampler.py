"""KVR208: the GPU ran out of memory while the sampler was warmed up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.startup.common import first, less_share, lower_share, pinned_bytes, share_flag, utilization_of
from kvroom.findings.startup.oom import Oom, anatomy, defragment, ooms
from kvroom.units import GIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR208",
    "out-of-memory-in-sampler",
    Severity.ERROR,
    "vLLM samples once for max_num_seqs requests at the start, and the memory for that is not there.",
    explanation(
        what="""
            Reports that memory ran out while the sampler (or pooler) was tried with `max_num_seqs` dummy
            requests, and an out-of-memory error without a stage whose text shows CUDA graph pools.
            """,
        why="""
            The sampler works on a table of `max_num_seqs` rows and as many columns as the vocabulary has
            words, in 32 bits and in several copies.
            It is tried twice: inside the profile run, where it is counted, and again after the KV cache and
            the CUDA graphs are in place, where it needs room outside the budget.
            Often graphs have used up that room before.
            """,
        example="""
            1,024 sequences x 151,936 words x 4 bytes are 0.58 GiB for one copy; sorting takes three or more.
            """,
        cure="""
            Lower `--max-num-seqs`, which also shrinks the graphs; or lower `--gpu-memory-utilization` a little
            where it happened after the KV cache had been allocated.
            """,
        since="""
            The message exists since 0.8.0, when V1 became the default and with it up to 1,024 sequences.
            """,
        references="`vllm/v1/worker/gpu_model_runner.py: _dummy_sampler_run`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding for the sampler's own message, or for an error that can only be its own."""
    reading = case.reading
    if reading.came_up:
        return
    message = reading.facts.last("err_sampler")
    own = ooms(case, "sampler_warmup") or (ooms(case)[:1] if message else ())
    if message is None and not own:
        own = tuple(oom for oom in ooms(case, "unknown") if oom.private)
        if not own or reading.facts.first("engine_dead", "engine_dead_v0", "engine_fatal"):
            return
        certain = False
    else:
        certain = True
    oom = own[0] if own else None
    sequences = (message.whole("requests") if message else None) or case.whole("max_num_seqs")
    early = message is not None and reading.stage == "profile"
    yield RULE.found(
        _title(oom, sequences, certain),
        " ".join(filter(None, (anatomy(oom) if oom else "", _why(case, sequences, early, certain)))),
        evidence=[shown(fact) for fact in (oom.fact if oom else None, message) if fact],
        advice=_advice(case, oom, sequences, early, message),
    )


def _title(oom: Oom | None, sequences: int | None, certain: bool) -> str:
    rows = f" for {sequences:,} requests" if sequences else ""
    size = f" over {show_bytes(oom.wanted)}" if oom is not None and oom.wanted is not None else ""
    if certain:
        return f"Out of memory{size} while the sampler was warmed up{rows}."
    return f"Out of memory{size} after CUDA graphs were captured, as in the sampler's warm-up{rows}."


def _why(case: Case, sequences: int | None, early: bool, certain: bool) -> str:
    text = "" if certain else "No line says where it happened; the graph pools show that it was after the capture. "
    vocabulary = case.prediction.setup.shape.vocab_size if case.prediction is not None else None
    if sequences and vocabulary:
        copy = show_bytes(sequences * vocabulary * 4)
        text += f"{sequences:,} rows of {vocabulary:,} words take {copy} for one copy, and sampling holds several. "
    if early:
        return f"{text}It happened in the profile run, before the KV cache: the weights leave too little for it."
    total, share = case.total_bytes, utilization_of(case)
    if total and share and not pinned_bytes(case):
        text += f"Utilisation {share:g} leaves {show_bytes(total * (1 - share))} outside the budget for it."
    return text.strip()


def _advice(case: Case, oom: Oom | None, sequences: int | None, early: bool, message: Fact | None) -> tuple[str, ...]:
    fewer = f"--max-num-seqs {max((sequences or 256) // 4, 1)}"
    if oom is not None and oom.fragmented and message is None:
        fewer_first = (*defragment(case, oom), fewer)
    else:
        fewer_first = (fewer, *(defragment(case, oom) if oom else ()))
    if early:
        return first((*fewer_first, "A quantised checkpoint of the model."))
    pinned, need = pinned_bytes(case), (oom.wanted if oom else None) or GIB
    share = less_share(case, need)
    lower = share_flag(share) if share else lower_share(case)
    if pinned:
        lower = f"--kv-cache-memory-bytes {pinned - need}" if pinned > 2 * need else "Drop --kv-cache-memory-bytes."
    return first((*fewer_first, lower))
