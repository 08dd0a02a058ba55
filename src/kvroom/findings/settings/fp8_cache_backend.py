"""KVR164: an 8-bit KV cache brings another attention backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag
from kvroom.ledger.predict import predict
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR164",
    "kv-cache-dtype-changes-backend",
    Severity.NOTE,
    "A quantised KV cache makes vLLM choose another attention backend.",
    explanation(
        what="""
            Predicts the launch with an unquantised KV cache too, and reports where the attention backend
            differs.
            """,
        why="""
            FlashAttention takes 8-bit keys and values on Hopper only.
            Elsewhere the choice falls to FlashInfer or Triton, which may be slower and bring a workspace of
            their own, so that part of what the smaller cache saves is spent again, partly outside the budget.
            """,
        example="""
            `--kv-cache-dtype fp8` on an RTX 4090: FLASHINFER instead of FLASH_ATTN, with 0.4 GiB of
            workspace.
            """,
        cure="""
            Compare speed and answers before and after, one change at a time.
            `--attention-backend TRITON_ATTN` avoids FlashInfer's workspace where that backend takes the
            dtype.
            """,
        since="By release and GPU.",
        references="`vllm/platforms/cuda.py: get_attn_backend_cls`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where the backend is not the one that an unquantised cache would get."""
    args, backend = prediction.setup.args, prediction.backend
    asked = args.kv_cache_dtype
    if backend is None or backend.error or args.attention_backend is not None:
        return
    if asked is None or asked in ("auto", "bfloat16", "float16"):
        return
    plain = predict(prediction.setup.with_args(kv_cache_dtype="auto")).backend
    if plain is None or plain.error or plain.name == backend.name:
        return
    inside, outside = (
        backend.workspace_bytes - plain.workspace_bytes,
        backend.outside_bytes - plain.outside_bytes,
    )
    costs = [
        f"{show_bytes(n_bytes)} {where} the budget"
        for n_bytes, where in ((inside, "inside"), (outside, "outside"))
        if n_bytes > 0
    ]
    words = f", with {' and '.join(costs)} for its workspace" if costs else ""
    yield RULE.found(
        f"--kv-cache-dtype {asked} runs attention on {backend.name} instead of {plain.name}{words}.",
        evidence=(flag("kv_cache_dtype", asked),),
        advice=("Measure speed and answers with and without it.",),
        severity=Severity.WARNING if costs else None,
    )
