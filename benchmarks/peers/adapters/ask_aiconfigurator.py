"""aiconfigurator: ``estimate_kv_cache`` of its core for vLLM, with the launch's own total as the capacity."""

from __future__ import annotations

from aiconfigurator_core.sdk.common import DefaultHFModels
from aiconfigurator_core.sdk.memory import KVCacheEstimator, estimate_kv_cache
from protocol import Question, answer, serve, unanswered

SYSTEMS = {"H100": "h100_sxm", "H200": "h200_sxm", "B200": "b200_sxm", "A100": "a100_sxm", "L40S": "l40s"}
OTHER = "l40s"
"""For cards that it does not list: the memory that it counts differs between systems only in NCCL's buffers."""
NO_ROOM = "no KV budget"


def system(name: str) -> str:
    """Its name for a card."""
    return next((known for part, known in SYSTEMS.items() if part in name), OTHER)


def ask(question: Question) -> dict[str, object]:
    """Weights, pool and tokens of one rank; it fits where the tokens hold the longest request."""
    if question["format"] == "gguf":
        return unanswered("has no gguf weights")
    tp, dp, experts = question["tensor_parallel"], question["data_parallel"], question["expert_parallel"]
    launch = {
        "max_num_tokens": question["max_num_batched_tokens"],
        "max_batch_size": question["max_num_seqs"],
        "tp_size": tp,
        "pp_size": question["pipeline_parallel"],
        "attention_dp_size": dp,
        "moe_tp_size": 1 if experts else tp * dp,
        "moe_ep_size": tp * dp if experts else 1,
        "kvcache_quant_mode": "fp8" if question["kv_fp8"] else "bfloat16",
    }
    if question["online"] and question["format"] == "fp8":
        launch |= {"gemm_quant_mode": "fp8", "moe_quant_mode": "fp8"}
    model = question["name"] if question["name"] in DefaultHFModels else question["folder"]
    where = (model, system(question["gpu"]), "vllm", "current")
    try:
        found = estimate_kv_cache(
            *where,
            memory_fraction_kind="of_total",
            memory_fraction_value=question["utilization"],
            gpu_memory_capacity_bytes_override=question["total"],
            **launch,
        )
    except ValueError as error:
        if NO_ROOM not in str(error):
            return unanswered(str(error).rpartition("gpu_sku=")[2].partition(": ")[2] or str(error))
        return answer(KVCacheEstimator.from_request(*where, **launch).breakdown["weights_bytes"], fits=False)
    fits = found["total_kv_size_tokens"] >= question["max_model_len"]
    return answer(found["memory_breakdown"]["weights_bytes"], found["total_kv_size_bytes"], fits)


if __name__ == "__main__":
    serve(ask)
