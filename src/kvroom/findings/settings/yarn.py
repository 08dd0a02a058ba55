"""KVR121: YaRN scaling that no longer extends the context."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag, refused

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR121",
    "yarn-does-not-extend-context",
    Severity.WARNING,
    "YaRN scaling in the config does not raise the longest context of this release.",
    explanation(
        what="""
            Reports a YaRN block (in config.json, `--hf-overrides` or `--rope-scaling`) whose scaled length is
            above `max_position_embeddings`, on releases that take `max_position_embeddings` as it stands.
            """,
        why="""
            Guides say that adding YaRN with factor 4 turns 32768 tokens into 131072.
            vLLM used to multiply; now it expects `max_position_embeddings` to be the extended length already,
            so the longest context stays where it was and a larger `--max-model-len` is refused.
            """,
        example="""
            Qwen2.5-7B with `rope_type: yarn`, factor 4, original length 32768: 131072 tokens up to vLLM 0.29,
            32768 since 0.30.
            """,
        cure="""
            Raise `max_position_embeddings` together with YaRN:
            `--hf-overrides '{"max_position_embeddings": 131072}'`.
            `VLLM_ALLOW_LONG_MAX_MODEL_LEN=1` lets a longer `--max-model-len` pass as well.
            """,
        since="vLLM 0.30.0.",
        references="`vllm/config/model.py: _get_and_verify_max_len`",
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where the scaled length is above what the config's fields allow."""
    setup, rope = prediction.setup, prediction.setup.shape.rope
    if prediction.rules["yarn_extends_context"] or rope.rope_type != "yarn":
        return
    limit = min((tokens for _, tokens in setup.shape.position_limits), default=0)
    scaled = int((rope.original_max_position_embeddings or limit) * rope.factor)
    if not limit or scaled <= limit or _allowed(prediction, limit):
        return
    asked = setup.args.max_model_len
    evidence = [Evidence(f"rope_type yarn, factor {rope.factor:g}")]
    if asked is not None:
        evidence.append(flag("max_model_len", asked))
    yield RULE.found(
        f"YaRN with factor {rope.factor:g} would give {scaled:,} tokens; vLLM {setup.release} allows {limit:,}.",
        evidence=evidence,
        advice=(
            f"--hf-overrides '{{\"max_position_embeddings\": {scaled}}}'",
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1",
        ),
        severity=Severity.ERROR if refused(prediction) and asked is not None and asked > limit else None,
    )


def _allowed(prediction: Prediction, limit: int) -> bool:
    args = prediction.setup.args
    long = args.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") in {"1", "true", "True"}
    return long and args.max_model_len is not None and args.max_model_len > limit
