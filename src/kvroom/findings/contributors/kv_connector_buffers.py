"""KVR237: a KV connector allocates buffers outside the budget."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import argument, overflow, short, utilization
from kvroom.findings.finding import Finding, Rule, Severity, explanation

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR237",
    "kv-connector-buffers",
    Severity.WARNING,
    "A KV connector moves cache between GPU, host and network, and takes buffers for it.",
    explanation(
        what="Reports a launch with LMCache, NIXL or an offloading connector that ran out of memory.",
        why="""
            Staging buffers on the GPU, and what a transport library registers, are allocated by the connector
            after vLLM has given the budget to the KV cache; `gpu_memory_utilization` does not count them.
            Pools in host memory are pinned and count against the host's or the container's limit.
            """,
        example="A server with a connector starts at 0.90 and dies when it stores the cache of its first long prompt.",
        cure="""
            Lower the utilisation by what the connector takes; make its buffers and its host pool smaller; try
            without it to be sure.
            """,
        since="`--kv-transfer-config` since 0.6.6, `--kv-offloading-size` since 0.11.1.",
        references="`vllm/distributed/kv_transfer/kv_connector`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding where memory, of the GPU or of the host, ran out after the cache was sized."""
    name, line = _connector(case)
    host = case.reading.facts.first("host_killed", "host_full")
    error = overflow(case, "kv_alloc", "graph_capture", "sampler_warmup", "api_bind", "serving", "unknown") or host
    if not name or error is None:
        return
    where = "the host's memory" if error is host else "GPU memory"
    share = utilization(case)
    lower = f" (now {short(share)})" if share is not None else ""
    yield RULE.found(
        f"{name} allocates buffers outside vLLM's budget, and {where} ran out.",
        "What a connector takes is not counted when the KV cache is sized.",
        evidence=[shown(fact) for fact in (error, line) if fact is not None],
        advice=(
            "A smaller host pool of the connector" if error is host else f"A lower --gpu-memory-utilization{lower}",
            "Start without the connector to be sure.",
        ),
    )


def _connector(case: Case) -> tuple[str, Fact | None]:
    """The connector's name and the line that shows it."""
    config = argument(case, "kv_transfer_config")
    if isinstance(config, Mapping) and config.get("kv_connector"):
        return str(config["kv_connector"]), None
    if isinstance(config, str) and (found := re.search(r"kv_connector['\"]?\s*[:=]\s*['\"](\w+)", config)):
        return found[1], None
    facts = case.reading.facts
    lines = facts.first("lmcache"), facts.first("offload_tensors", "offload_blocks")
    if lines[0] is not None:
        return "LMCache", lines[0]
    if lines[1] is not None or argument(case, "kv_offloading_size"):
        return "KV offloading", lines[1]
    return "", None
