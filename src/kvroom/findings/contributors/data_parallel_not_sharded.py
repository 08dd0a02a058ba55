"""KVR238: data parallel replicas each hold a whole cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import argument, shortage
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.values import whole_number

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR238",
    "data-parallel-not-sharded",
    Severity.WARNING,
    "With data parallelism a request's cache lies on one replica, whole.",
    explanation(
        what="Reports a launch with data parallelism that lacked room for one request of full length.",
        why="""
            Data parallelism, also with expert parallelism, repeats the attention layers: only experts are
            spread. A request belongs to one replica, whose GPUs hold all KV heads of it. More replicas serve
            more requests; they never make one longer.
            """,
        example="""
            A 480B MoE model on eight GPUs with `-dp 8`: one request of 262,144 tokens needs 62.00 GiB on one GPU
            that has 48.66. With `-tp 8` each GPU holds an eighth of the KV heads, down to one.
            """,
        cure="""
            Tensor parallelism inside the replica: `-tp 2 -dp 4` halves the need of one request, down to one
            KV head a GPU. Or a shorter context.
            """,
        since="`--data-parallel-size` since 0.8.",
        references="`vllm/config/parallel.py`, `vllm/v1/core/kv_cache_utils.py`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding where a replica lacks room."""
    replicas = (
        whole_number(argument(case, "data_parallel_size")) or whole_number(case.setting("data_parallel_size")) or 1
    )
    ranks = (
        whole_number(argument(case, "tensor_parallel_size")) or whole_number(case.setting("tensor_parallel_size")) or 1
    )
    lack = shortage(case)
    if replicas < 2 or lack is None or lack.nothing:
        return
    gpus = f"{ranks} GPUs" if ranks > 1 else "one GPU"
    advice = []
    shape = case.prediction.setup.shape if case.prediction is not None else None
    heads = shape.kv_heads if shape is not None and shape.mla is None else None
    if replicas % 2 == 0 and (heads is None or heads >= 2 * ranks) and not (shape is not None and shape.mla):
        advice.append(f"--tensor-parallel-size {2 * ranks} --data-parallel-size {replicas // 2}")
    elif case.since("0.10.2") and replicas % 2 == 0:
        advice.append(
            f"--tensor-parallel-size {2 * ranks} --decode-context-parallel-size 2 --data-parallel-size {replicas // 2}"
        )
    yield RULE.found(
        f"Each of {replicas} data-parallel replicas keeps the whole cache of its requests, on {gpus}.",
        "Data parallelism serves more requests; only tensor or context parallelism spreads the cache of one.",
        evidence=(shown(lack.fact),),
        advice=advice,
    )
