"""KVR131: a tensor-parallel size that does not divide the heads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag
from kvroom.vllm.parallel import deals

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR131",
    "heads-not-divisible",
    Severity.ERROR,
    "The tensor-parallel size has to divide the attention heads, and to suit the KV heads.",
    explanation(
        what="Holds `--tensor-parallel-size` against the heads and KV heads of the model.",
        why="""
            Every rank gets the same whole number of heads.
            vLLM refuses a size that does not divide the attention heads; where it divides them but neither
            divides the KV heads nor is a multiple of them, the model's own code stops while it is built.
            """,
        example="Qwen2.5-7B has 28 heads and 4 KV heads: 2 and 4 work, 3 and 8 do not.",
        cure="""
            Take a size that the finding names.
            With an odd number of GPUs, `--pipeline-parallel-size` splits layers instead of heads.
            """,
        since="All releases.",
        references="`vllm/config/model.py: ModelConfig.verify_with_parallel_config`",
    ),
)
_MOST = 16


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where the heads cannot be dealt evenly."""
    shape, tp = prediction.setup.shape, prediction.setup.args.tensor_parallel_size
    if shape.heads == 0 or deals(shape.heads, shape.kv_heads, tp):
        return
    sizes = [size for size in range(1, _MOST + 1) if deals(shape.heads, shape.kv_heads, size)]
    near = max((size for size in sizes if size <= tp), default=1)
    yield RULE.found(
        f"{shape.heads} attention heads and {shape.kv_heads} KV heads cannot be dealt to {tp} ranks; "
        f"{', '.join(map(str, sizes))} would work.",
        evidence=(flag("tensor_parallel_size", tp),),
        advice=(f"--tensor-parallel-size {near}", f"--pipeline-parallel-size {tp} --tensor-parallel-size 1"),
    )
