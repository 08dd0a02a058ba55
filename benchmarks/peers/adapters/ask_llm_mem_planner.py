"""llm-mem-planner: what ``llm-mem --recommend`` computes for the launch's own tensor parallelism."""

from __future__ import annotations

from llm_mem_planner import cli
from protocol import GIB, Question, answer, serve

STORED = {"fp8": "fp8", "int8": "int8", "llm.int8": "int8"}
PLAIN = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def ask(question: Question) -> dict[str, object]:
    """Its weights; the pool is its budget less weights, activation and its fixed reserve."""
    ranks = question["ranks"]
    dims = cli.load_dims(question["config"])
    weight = STORED.get(question["format"], PLAIN[question["dtype"]])
    words = ["--model", "m/m", "--gpu-mem-gib", str(question["total"] / GIB), "--gpus-per-node", str(ranks)]
    words += ["--mem-fraction", str(question["utilization"])]
    hardware = cli.build_parser().parse_args(words)
    spec = {name: getattr(hardware, name) for name in cli.HardwareSpec.__dataclass_fields__}
    points, _ = cli.recommend_parallelism(
        dims,
        cli.estimate_params(dims),
        hw=cli.HardwareSpec(**spec),
        seq_len=question["max_model_len"],
        global_batch=1,
        weight_dtype_bytes=cli.dtype_bytes_from_str(weight),
        kv_dtype_bytes=cli.dtype_bytes_from_str("fp8" if question["kv_fp8"] else PLAIN[question["dtype"]]),
        act_dtype_bytes=cli.dtype_bytes_from_str(PLAIN[question["dtype"]]),
        chunked_prefill_size=question["max_num_batched_tokens"],
        ep=ranks if question["expert_parallel"] else 1,
        moe_dp=1,
        tp=ranks,
    )
    point = next(point for point in points if point.dp == 1 and point.sp == 1)
    weights = point.weights_per_rank_gib
    pool = point.budget_gib - weights - point.act_per_rank_gib - point.misc_per_rank_gib
    return answer(weights * GIB, pool * GIB, point.fits)


if __name__ == "__main__":
    serve(ask)
