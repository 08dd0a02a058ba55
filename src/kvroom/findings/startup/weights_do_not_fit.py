"""KVR201: the GPU is full before the weights are loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.startup.common import first, more_ranks, served
from kvroom.findings.startup.oom import Oom, anatomy, defragment, ooms, weights_fill_it
from kvroom.units import GIB, cdiv, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR201",
    "weights-do-not-fit",
    Severity.ERROR,
    "The GPU ran out of memory while the weights were loaded or repacked.",
    explanation(
        what="""
            Reports an out-of-memory error from the loading of the model: while parameters are created or
            read, or in the step after the last shard in which quantised weights are repacked.
            """,
        why="""
            `--gpu-memory-utilization` plays no part at this point: it limits the KV cache, which comes later.
            Neither lowering nor raising it makes room for weights, although the message of newer releases
            suggests it.
            Repacking holds the old and the new form of a layer at once, so it can fail after a progress bar
            at 100 %.
            """,
        example="""
            A 32B model in bfloat16 is 61 GiB.
            On one card of 48 GB it fails on loading, on two with `--tensor-parallel-size 2` it has 30.5 GiB on
            each.
            """,
        cure="""
            Spread the weights over more GPUs (`--tensor-parallel-size`, `--pipeline-parallel-size`), take a
            quantised checkpoint, or keep part of the weights in host memory with `--cpu-offload-gb`.
            Stop other programs on the card.
            """,
        since="""
            All releases.
            The sentence "Failed to load model - not enough GPU memory" was added in 0.13.
            """,
        references="`vllm/v1/worker/gpu_model_runner.py: load_model`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding for an out-of-memory error at the stage of loading."""
    facts = case.reading.facts
    sentence = facts.first("err_load_oom")
    found = ooms(case, "weight_load")
    guessed = None
    if not found and sentence is None:
        guessed = next((oom for oom in ooms(case, "unknown") if weights_fill_it(case, oom) and not served(case)), None)
    oom = found[0] if found else guessed
    if oom is None and (sentence is None or case.reading.came_up):
        return
    shards = facts.last("shards")
    done, count = (shards.whole("done"), shards.whole("total")) if shards else (None, None)
    repacking = bool(done and done == count)
    where = "while they were repacked" if repacking else "while they were loaded"
    if done is not None and count and not repacking:
        where += f" ({done} of {count} shards done)"
    if guessed is not None:
        where = "and PyTorch held more than the budget, as only weights do"
    evidence = [shown(fact) for fact in (shards, oom.fact if oom else None, sentence) if fact]
    yield RULE.found(
        f"The weights do not fit: {_numbers(oom, case)} {where}.",
        " ".join((anatomy(oom) if oom else "", _why(case))).strip(),
        evidence=evidence,
        advice=_advice(case, oom),
        severity=Severity.WARNING if guessed is not None else None,
    )


def _numbers(oom: Oom | None, case: Case) -> str:
    if oom is not None and oom.wanted is not None and oom.free is not None:
        return f"{show_bytes(oom.wanted)} more was needed, {show_bytes(oom.free)} was free"
    total = case.total_bytes
    return f"the {show_bytes(total)} of the GPU were used up" if total else "the GPU was full"


def _why(case: Case) -> str:
    weights = _predicted(case)
    stage = "The KV cache does not exist yet, so --gpu-memory-utilization has no part in this."
    return f"The weights take about {show_bytes(weights)} per GPU. {stage}" if weights else stage


def _predicted(case: Case) -> int | None:
    ledger = case.prediction.ledger if case.prediction is not None else None
    return ledger.weights.expected if ledger else None


def _advice(case: Case, oom: Oom | None) -> tuple[str, ...]:
    ranks = more_ranks(case)
    elsewhere = oom.elsewhere if oom else None
    weights, total = _predicted(case), case.total_bytes
    over = weights - int(total * 0.85) if weights and total else 0
    offload = (
        f"--cpu-offload-gb {cdiv(over, GIB)}"
        if over > 0
        else "Keep the part that is too much in host memory with --cpu-offload-gb (slow)."
    )
    return first(
        (
            f"Stop the other programs on the card: they hold {show_bytes(elsewhere)}."
            if elsewhere and elsewhere > GIB // 2
            else None,
            *(defragment(case, oom) if oom else ()),
            f"{ranks} (half the weights on each GPU)" if ranks and ranks.startswith("--") else ranks,
            "A quantised checkpoint of the model (FP8, AWQ, GPTQ): half or a quarter of the bytes.",
            offload,
        )
    )
