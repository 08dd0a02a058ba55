"""One step as the flat JSON of ``vllm bench serve --save-result --save-detailed``, so that its readers read it.

Keys and definitions are those of vllm/benchmarks/serve.py (0.32.0): benchmark, calculate_metrics, main_async.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from kvroom.server.figures import spread
from kvroom.server.outcome import Outcome
from kvroom.server.step import Step
from kvroom.server.verify import Verification


def bench_data(found: Verification, step: Step) -> dict[str, Any]:
    """The step as ``vllm bench serve`` would have written it; times in milliseconds where it has them so."""
    targets, done = found.targets, step.done
    wanted = targets.ttft is not None or targets.tpot is not None
    good = sum(_good(outcome, targets.ttft, targets.tpot) for outcome in done)
    endpoint = "openai-chat" if found.chat else "openai"
    return {
        "date": datetime.now().astimezone().strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": endpoint,
        "backend": endpoint,
        "label": "kvroom",
        "model_id": found.model,
        "tokenizer_id": found.model,
        "num_prompts": len(step.outcomes),
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": step.concurrency,
        "duration": step.duration,
        "completed": len(done),
        "failed": len(step.outcomes) - len(done),
        "total_input_tokens": step.input_tokens,
        "total_output_tokens": step.output_tokens,
        "request_throughput": len(done) / step.duration,
        "request_goodput": good / step.duration if wanted else None,
        "output_throughput": step.output_rate,
        "total_token_throughput": (step.input_tokens + step.output_tokens) / step.duration,
        "input_lens": [outcome.prompt_tokens for outcome in step.outcomes],
        "output_lens": [outcome.output_tokens if outcome.ok else 0 for outcome in step.outcomes],
        "ttfts": [outcome.ttft or 0.0 for outcome in step.outcomes],
        "itls": [list(outcome.itls) for outcome in step.outcomes],
        "latencies": [outcome.latency or 0.0 for outcome in step.outcomes],
        "start_times": [outcome.started for outcome in step.outcomes],
        "queue_times": [outcome.waited for outcome in step.outcomes],
        "generated_texts": ["" for _ in step.outcomes],
        "errors": [outcome.message for outcome in step.outcomes],
        **dict(zip(("max_output_tokens_per_s", "max_concurrent_requests"), _peaks(done), strict=True)),
        "rtfx": 0.0,
        **_times("ttft", [outcome.ttft for outcome in done]),
        **_times("tpot", [outcome.tpot for outcome in done]),
        **_times("itl", [itl for outcome in done for itl in outcome.itls]),
        **_times("e2el", [outcome.latency for outcome in done]),
        **_times("client_queue_time", [outcome.waited for outcome in done]),
    }


def _times(name: str, values: Sequence[float | None]) -> dict[str, float]:
    found = spread(values)
    if found is None:
        return {f"{kind}_{name}_ms": 0.0 for kind in ("mean", "median", "std", "p50", "p90", "p95", "p99")}
    percentiles = {f"p{p}_{name}_ms": value * 1000 for p, value in found.percentiles}
    return {
        f"mean_{name}_ms": found.mean * 1000,
        f"median_{name}_ms": found.median * 1000,
        f"std_{name}_ms": found.deviation * 1000,
        **percentiles,
    }


def _good(outcome: Outcome, ttft: float | None, tpot: float | None) -> bool:
    first = ttft is None or (outcome.ttft or 0.0) <= ttft
    return first and (tpot is None or (outcome.tpot or 0.0) <= tpot)


def _peaks(done: Sequence[Outcome]) -> tuple[float, int]:
    """The most tokens, and the most requests, in any whole second since the first request."""
    if not done:
        return 0.0, 0
    first = min(outcome.started for outcome in done)
    last = max(outcome.started + (outcome.latency or 0.0) for outcome in done)
    tokens = [0] * (math.ceil(last - first) + 1)
    active = list(tokens)
    for outcome in done:
        at = outcome.started - first + (outcome.ttft or 0.0)
        for gap in (0.0, *outcome.itls):
            at += gap
            tokens[min(int(at), len(tokens) - 1)] += 1
        begin = outcome.started - first
        for second in range(int(begin), int(begin + (outcome.latency or 0.0)) + 1):
            active[min(second, len(active) - 1)] += 1
    return float(max(tokens)), max(active)
