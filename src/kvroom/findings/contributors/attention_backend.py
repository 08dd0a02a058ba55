"""KVR226: the attention backend is not the usual one, and brings a workspace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import argument, overflow, shortage
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.units import MIB, cdiv, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR226",
    "attention-backend",
    Severity.WARNING,
    "FlashInfer attends instead of the usual backend, and allocates a workspace of its own.",
    explanation(
        what="""
            Reports attention on FlashInfer where it was asked for, or where an 8-bit KV cache excludes
            FlashAttention, and the launch ran short of memory.
            An error where the workspace itself is too small for a batch.
            """,
        why="""
            FlashInfer plans its batches in a workspace of some hundred MiB for each kind of attention layer.
            Since 0.20 the trial capture of CUDA graphs counts it, so it comes off the KV cache; before, and
            without graphs, it is allocated later, outside the budget.
            The backend also decides the size of a block, and on hybrid models what a page holds.
            """,
        example="""
            `--kv-cache-dtype fp8` on an RTX 4090 or 5060 Ti: FlashAttention 2 does not take 8-bit keys, so
            FlashInfer is chosen and 0.38 GiB go to its workspace.
            """,
        cure="""
            Leave the choice to vLLM, or name another backend that takes the dtype (`TRITON_ATTN`).
            `VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE` sets the workspace in bytes.
            """,
        since="256 MiB before 0.11.1, 394 MiB since.",
        references="`vllm/v1/attention/backends/flashinfer.py`, `vllm/platforms/cuda.py: get_attn_backend_cls`",
    ),
)
_PLAIN = frozenset({"auto", "bfloat16", "float16", "half", "float32"})


def find(case: Case) -> Iterator[Finding]:
    """The finding where FlashInfer was asked for or implied and memory ran short, or it just started with it."""
    small = case.reading.facts.first("err_workspace")
    if small is not None and not case.reading.came_up:
        yield _too_small(small)
        return
    fact = _line(case)
    choice = case.prediction.backend if case.prediction is not None else None
    backend = case.reading.attention_backend or (choice.name if choice is not None else _asked(case))
    if backend != "FLASHINFER":
        return
    how = _how(case, fact)
    lack = shortage(case)
    error = lack.fact if lack else overflow(case, "kv_alloc", "graph_capture", "sampler_warmup", "serving", "profile")
    if not how or (error is None and not case.reading.came_up):
        return
    inside, outside = _workspace(case)
    places = [
        f"{show_bytes(size)} {where}"
        for size, where in ((inside, "that the KV cache lacks"), (outside, "outside the budget"))
        if size
    ]
    decides = error is not None and not (lack and lack.missing and inside and inside * 10 < lack.missing)
    yield RULE.found(
        f"Attention runs on FLASHINFER, {how}; its workspace takes {' and '.join(places)}.",
        "FlashInfer allocates the workspace when it first plans a batch.",
        evidence=[shown(found) for found in (fact, error) if found is not None],
        advice=_advice(case) if decides else (),
        severity=Severity.WARNING if decides else Severity.NOTE,
    )


def _too_small(fact: Fact) -> Finding:
    """The finding for a workspace that a batch does not fit in, although the card may have room."""
    needed, available = fact.whole("needed") or 0, fact.whole("available") or 0
    size = cdiv(needed * 5 // 4, 64 * MIB) * 64 * MIB
    return RULE.found(
        f"FlashInfer's workspace is too small: a buffer needs {show_bytes(needed)}, {show_bytes(available)} are left.",
        "The workspace has a fixed size; what a batch needs of it grows with --max-num-seqs and the number of heads.",
        evidence=(shown(fact),),
        advice=(
            f"VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE={size}",
            "Lower --max-num-seqs, or take another attention backend.",
        ),
        severity=Severity.ERROR,
    )


def _line(case: Case) -> Fact | None:
    return next((fact for fact in case.reading.facts.all("backend") if "flashinfer" in fact.text.lower()), None)


def _asked(case: Case) -> str:
    return str(argument(case, "attention_backend") or case.variable("VLLM_ATTENTION_BACKEND") or "").upper()


def _how(case: Case, fact: Fact | None) -> str:
    """How FlashInfer came to be used where it is not simply the default; empty otherwise."""
    if _asked(case) == "FLASHINFER":
        return "as asked for"
    kind = str(case.setting("kv_cache_dtype") or "auto")
    candidates = fact.values.get("candidates", "") if fact is not None else ""
    if not candidates and case.prediction is not None and case.prediction.backend is not None:
        candidates = " ".join(case.prediction.backend.candidates)
    if kind not in _PLAIN and candidates and "FLASH_ATTN" not in candidates:
        return f"since --kv-cache-dtype {kind} excludes FLASH_ATTN here"
    return ""


def _workspace(case: Case) -> tuple[int, int]:
    """Bytes of the workspace inside and outside the budget."""
    choice = case.prediction.backend if case.prediction is not None else None
    if choice is not None and choice.name == "FLASHINFER" and choice.workspace_bytes + choice.outside_bytes:
        return choice.workspace_bytes, choice.outside_bytes
    size = (256 if case.since("0.11.1") is False else 394) * MIB
    counted = case.since("0.20.0") and case.reading.facts.first("graph_estimate") is not None
    return (size, 0) if counted else (0, size)


def _advice(case: Case) -> Iterator[str]:
    flag = "--attention-backend" if case.since("0.13.0") is not False else "VLLM_ATTENTION_BACKEND ="
    plain = str(case.setting("kv_cache_dtype") or "auto") in _PLAIN
    if plain:
        yield "Leave out the attention backend: vLLM then takes its own first choice."
    else:
        yield f"{flag} TRITON_ATTN (where it takes that KV dtype)"
