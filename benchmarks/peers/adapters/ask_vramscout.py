"""vramscout: its vLLM mode, whose parts are subtracted from its own budget."""

from __future__ import annotations

from protocol import GIB, Question, answer, serve
from vramscout.modern_v07 import plan_modern

NO_CACHE = ("Model weights / rank", "CUDA / runtime", "Prefill scratch", "Safety reserve")
"""Parts of a plan that are no KV cache or state."""

ONLINE = {"fp8": "fp8", "int8": "int8", "nf4": "int4", "mxfp4": "nvfp4"}
"""Its names for what --quantization makes of plain weights; the others are as the checkpoint is."""


def ask(question: Question) -> dict[str, object]:
    """Weights per rank; the pool is the budget less every part that is no cache."""
    plan = plan_modern(
        question["model"],
        context=question["max_model_len"],
        weight_dtype=ONLINE.get(question["format"], "auto") if question["online"] else "auto",
        kv_dtype="fp8" if question["kv_fp8"] else "auto",
        tp=question["ranks"],
        vram_gib=question["total"] / GIB,
        engine="vllm",
        gpu_memory_utilization=question["utilization"],
        prefill_chunk=question["max_num_batched_tokens"],
    )
    taken = sum(plan.parts_gib[name] for name in NO_CACHE)
    return answer(plan.parts_gib[NO_CACHE[0]] * GIB, (plan.memory_budget_gib - taken) * GIB, plan.fits)


if __name__ == "__main__":
    serve(ask)
