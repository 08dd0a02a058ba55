"""vllm-wizard: its planner with ``--params-b`` and ``--vram-gb``, as its manual asks for."""

from __future__ import annotations

from protocol import GIB, Question, answer, serve
from vllm_wizard.planning.planner import run_plan
from vllm_wizard.schemas.inputs import PlanRequest

STORED = {None: "none", "fp8": "fp8", "mxfp8": "fp8", "int8": "int8", "llm.int8": "int8"}
PLAIN = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def stored(question: Question) -> str:
    """Its name for how the checkpoint is stored; ``awq`` and ``gptq`` are its only 4 bits."""
    if question["format"] in STORED:
        return STORED[question["format"]]
    if question["bits"] == 8:
        return "int8"
    return "gptq" if question["quantization"] == "gptq" else "awq"


def ask(question: Question) -> dict[str, object]:
    """Its weights; the pool is what its own count of requests divides: allocation less weights and overhead."""
    ranks = question["ranks"]
    request = PlanRequest(
        model={
            "model": question["model"],
            "dtype": PLAIN[question["dtype"]],
            "quantization": stored(question),
            "kv_cache_dtype": "fp8_e4m3fn" if question["kv_fp8"] else "auto",
            "max_model_len": question["max_model_len"],
            "params_b": question["parameters"] / 1e9,
        },
        hardware={
            "gpu": "custom",
            "gpus": ranks,
            "vram_gb": question["total"] / GIB,
            "tensor_parallel_size": ranks,
        },
        policy={"gpu_memory_utilization": question["utilization"]},
    )
    found = run_plan(request).feasibility
    pool = (found.vram_target_alloc_gb - found.weights_gb - found.overhead_gb) / ranks
    return answer(found.weights_gb * GIB, pool * GIB, found.fits)


if __name__ == "__main__":
    serve(ask)
