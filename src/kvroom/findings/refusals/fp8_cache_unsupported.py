"""KVR246: an 8-bit KV cache that the card, or the checkpoint, cannot take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause, chosen_backend

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR246",
    "fp8-cache-unsupported",
    Severity.ERROR,
    "The card has no native FP8 for the KV cache, or the checkpoint excludes this kind of it.",
    explanation(
        what="""
            Reads the refusals of an FP8 KV cache: by the Triton backends, by the Triton compiler
            (`fp8e4nv`), and of `fp8_e5m2` with FP8 checkpoints.
            """,
        why="""
            FP8 in the form e4m3 is native from compute capability 8.9 (Ada, Hopper, Blackwell).
            Triton kernels need that; before vLLM 0.24 the attempt ended in a compiler error instead of a
            sentence.
            A checkpoint may ask for an FP8 cache by itself, without the flag.
            """,
        example="`--kv-cache-dtype fp8` on an RTX 3090 (8.6) with a model that only the Triton backend serves.",
        cure="""
            `--kv-cache-dtype auto`, or `bfloat16` where the checkpoint asks for FP8.
            The cache is then twice as large: plan the context length again.
            """,
        since="The sentence since vLLM 0.24.0.",
        references="`vllm/v1/attention/backends/triton_attn.py: TritonAttentionImpl`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with the card."""
    fact = cause(case, "err_fp8_kv", "err_fp8_triton", "err_e5m2")
    if fact is None or (fact.id == "err_fp8_triton" and _weights_are_meant(case)):
        return
    if fact.id == "err_e5m2":
        yield RULE.found(
            "--kv-cache-dtype fp8_e5m2 does not go with an FP8 checkpoint.",
            "vLLM takes e4m3 for the cache of FP8 checkpoints, because their scales are made for it.",
            evidence=(shown(fact),),
            advice=("--kv-cache-dtype fp8 (e4m3; compute capability 8.9 or newer)", "--kv-cache-dtype auto"),
        )
        return
    device, have = fact.values.get("device"), fact.values.get("capability")
    card = f"{device} (compute capability {have})" if device and have else case.reading.device or "This card"
    yield RULE.found(
        f"{card} cannot keep the KV cache in FP8 (e4m3) with the Triton kernels, which need 8.9.",
        "An unquantised cache takes 2 bytes a number instead of 1, so that half as many tokens fit.",
        evidence=(shown(fact),),
        advice=_advice(case, fact),
    )


def _advice(case: Case, fact: Fact) -> Iterator[str]:
    asked = str(case.reading.given.get("kv_cache_dtype") or "")
    capability = fact.number("capability")
    plain = "float16" if capability is not None and capability < 8 else "bfloat16"
    if asked.startswith("fp8"):
        yield "--kv-cache-dtype auto"
    else:
        yield "--kv-cache-dtype auto" if case.since("0.11.1") is False else f"--kv-cache-dtype {plain}"
    if fact.id == "err_fp8_triton" and "fp8e5" in fact.text and case.since("0.24.0") is False:
        yield "--kv-cache-dtype fp8_e5m2 (coarser; not with FP8 checkpoints)"
    if capability is None or capability >= 8:
        yield f"{chosen_backend(case, 'FLASHINFER')} (where it serves the model: it reads 8-bit caches on Ampere too)"


def _weights_are_meant(case: Case) -> bool:
    """The compiler's error says nothing of the cache, so FP8 weights may be behind it."""
    cache = str(case.setting("kv_cache_dtype") or "auto")
    return not cache.startswith("fp8") and bool(case.setting("quantization"))
