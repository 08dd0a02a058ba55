"""KVR128: a context longer than the model was made for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR128",
    "context-beyond-the-model",
    Severity.WARNING,
    "max_model_len is above what the model's config allows, and the check is switched off.",
    explanation(
        what="""
            Reports a `max_model_len` above the length derived from the config, which
            `VLLM_ALLOW_LONG_MAX_MODEL_LEN=1` lets pass.
            """,
        why="""
            The switch turns vLLM's refusal into a warning and changes nothing else.
            With rotary embeddings, positions that the model never saw give poor answers or NaN; with absolute
            ones they read outside a table and crash.
            """,
        example="""
            `VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 131072`.
            """,
        cure="""
            Lower `--max-model-len` to the model's length.
            To extend it, set YaRN and `max_position_embeddings` with `--hf-overrides`, as the model's card
            says.
            """,
        since="All releases.",
        references="`vllm/config/model.py: _get_and_verify_max_len`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where the length served is above the derived one."""
    settings, args = prediction.settings, prediction.setup.args
    if settings is None or settings.max_model_len <= settings.derived_max_model_len:
        return
    evidence = [flag("max_model_len", settings.max_model_len)]
    allowed = args.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN")
    if allowed is not None:
        evidence.append(Evidence(f"VLLM_ALLOW_LONG_MAX_MODEL_LEN={allowed}"))
    yield RULE.found(
        f"{settings.max_model_len:,} tokens are served by a model made for "
        f"{settings.derived_max_model_len:,} ({settings.derived_from}).",
        evidence=evidence,
        advice=(f"--max-model-len {settings.derived_max_model_len}",),
    )
