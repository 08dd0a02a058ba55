"""KVR163: a KV cache dtype that no attention backend takes here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR163",
    "kv-cache-dtype-unsupported",
    Severity.ERROR,
    "No attention backend of this release takes this KV cache dtype on this GPU and model.",
    explanation(
        what="""
            Reports a quantised `--kv-cache-dtype` where the backend that would be used, or every backend,
            refuses it.
            """,
        why="""
            vLLM stops while it builds the model, with a message about attention backends rather than about
            the cache.
            """,
        example="""
            `--kv-cache-dtype fp8 --attention-backend FLASH_ATTN` on an RTX 4090: FlashAttention takes 8-bit
            keys and values on Hopper only.
            """,
        cure="Drop `--kv-cache-dtype`, or leave the backend to vLLM.",
        since="All releases, by backend and GPU.",
        references="`vllm/platforms/cuda.py: get_attn_backend_cls`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where the choice of a backend failed with a cache dtype that was asked for."""
    args, backend = prediction.setup.args, prediction.backend
    asked = args.kv_cache_dtype
    if asked is None or asked in ("auto", "bfloat16", "float16") or backend is None or not backend.error:
        return
    capability = prediction.setup.machine.device.compute_capability
    words = f" (compute capability {capability[0]}.{capability[1]})" if capability else ""
    where = f"{prediction.setup.machine.device.name}{words}"
    evidence = [flag("kv_cache_dtype", asked)]
    advice = ["Drop --kv-cache-dtype."]
    if args.attention_backend is not None:
        evidence.append(flag("attention_backend", args.attention_backend))
        advice.insert(0, "Drop --attention-backend.")
    yield RULE.found(
        f"--kv-cache-dtype {asked} has no attention backend on {where}.",
        backend.error,
        evidence=evidence,
        advice=advice,
    )
