"""modelinfo: what ``modelinfo MODEL --vllm --gpu 'NxGiB'`` computes; the command itself prints no JSON."""

from __future__ import annotations

import os

from modelinfo.cli import analyze_model
from protocol import GIB, Question, answer, redirect_urllib, serve


def ask(question: Question) -> dict[str, object]:
    """Its weights and paged pool over the ranks; it fits where its tokens hold the longest request."""
    os.environ.pop("HF_ENDPOINT", None)  # which it refuses without TLS
    redirect_urllib(question["hub"])
    ranks = question["ranks"]
    found = analyze_model(
        question["model"],
        question["max_model_len"],
        gpu_count=ranks,
        topology="nvlink" if question["nvlink"] else "pcie4",
        is_vllm=True,
        gpu_vram_gb=question["total"] * ranks / GIB,
        gpu_util=question["utilization"],
        timeout=60.0,
    )["footprint"]
    serving = found["vllm_metrics"]
    fits = serving["max_serving_capacity"] >= question["max_model_len"]
    return answer(found["base_memory_bytes"] / ranks, serving["paged_kv_pool"] / ranks, fits)


if __name__ == "__main__":
    serve(ask)
