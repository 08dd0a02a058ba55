"""ridgepoint: ``fit`` with JSON; it takes neither the utilisation nor the card's total, only a card that it lists."""

from __future__ import annotations

import json

import ridgepoint
from protocol import Question, answer, redirect_urllib, serve, unanswered

CARDS = {
    "RTX 3090": "rtx3090-24gb",
    "RTX 4090": "rtx4090-24gb",
    "RTX 5090": "rtx5090-32gb",
    "L40S": "l40s-48gb",
    "A100 80GB": "a100-80gb",
    "A100-SXM4-80GB": "a100-80gb",
    "A100 40GB": "a100-40gb",
    "A100-SXM4-40GB": "a100-40gb",
    "H100 80GB": "h100-80gb",
    "H200": "h200-141gb",
    "B200": "b200-192gb",
    "MI300X": "mi300x-192gb",
}
STORED = {None: "fp16", "fp8": "fp8", "int8": "int8", "llm.int8": "int8", "gguf": "q4_k_m"}


def card(name: str) -> str | None:
    """Its name for a card, None where it lists none."""
    return next((known for part, known in CARDS.items() if part in name), None)


def stored(question: Question) -> str | None:
    """Its name for how the checkpoint is stored, None where it has none."""
    if question["format"] == "packed" and question["bits"] == 4:
        return "awq" if question["quantization"] == "awq" else "gptq"
    return STORED.get(question["format"])


def ask(question: Question) -> dict[str, object]:
    """Its weights and overhead, taken off the launch's own total x utilisation."""
    known, dtype = card(question["gpu"]), stored(question)
    if known is None:
        return unanswered("lists no such card")
    if dtype is None:
        return unanswered(f"has no {question['format']} weights")
    redirect_urllib(question["hub"])
    ranks = question["ranks"]
    kv_dtype = "fp8" if question["kv_fp8"] else "fp16"
    context = question["max_model_len"]
    said = ridgepoint.fit(
        question["model"], known, count=ranks, dtype=dtype, kv_cache_dtype=kv_dtype, ctx=context, as_json=True
    )
    found = json.loads(said)
    weights, overhead = (found["memory"][name]["best"] / ranks for name in ("weights_bytes", "overhead_bytes"))
    pool = question["total"] * question["utilization"] - weights - overhead
    return answer(weights, pool, pool * ranks >= found["capacity"]["bytes_per_seq"])


if __name__ == "__main__":
    serve(ask)
