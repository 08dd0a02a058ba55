"""A plan as JSON data of schema ``kvroom/1``: sizes in bytes, durations in seconds (see docs/json.md)."""

from __future__ import annotations

from typing import Any

from kvroom.findings.finding import Finding
from kvroom.ledger.entries import Entry
from kvroom.ledger.predict import Prediction
from kvroom.ledger.verdict import Verdict
from kvroom.plans.plan import Plan
from kvroom.redaction import MASK, clean, clean_command, is_secret_name
from kvroom.remedies.remedy import Remedy
from kvroom.report.schema import SCHEMA
from kvroom.vllm.kv.capacity import Pool
from kvroom.vllm.kv.layout import KvLayout


def plan_data(plan: Plan) -> dict[str, Any]:
    """The whole plan, ready for ``json.dumps``; no infinite or missing numbers, None where unknown."""
    prediction = plan.prediction
    setup = prediction.setup
    machine = setup.machine
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": "plan",
        "model": setup.args.model,
        "model_source": setup.shape.source,
        "vllm_version": str(setup.release),
        "devices": [
            {
                "name": machine.device.name,
                "count": machine.count,
                "total_bytes": machine.device.total_bytes,
                "free_bytes": machine.free_bytes,
            }
        ],
        "attention_backend": prediction.backend.name if prediction.backend else None,
        "settings": _settings(prediction),
        "ledger": [entry_data(entry) for entry in prediction.ledger or ()],
        "pool": pool_data(prediction.layout, prediction.pool),
        "verdict": verdict_data(plan.verdict),
        "remedies": [remedy_data(remedy) for remedy in plan.advice.remedies],
        "impossible": [{"name": item.name, "reason": item.reason} for item in plan.advice.impossible],
        "findings": [finding_data(finding) for finding in plan.findings],
        "command": clean_command(plan.command),
        "predicted_log": list(plan.predicted_log),
        "notes": list(plan.notes),
    }
    if plan.source is not None:
        data["source"] = plan.source
        data["line"] = plan.line
    return {key: cleaned(value) for key, value in data.items()}


def cleaned(value: Any, *, secret: bool = False) -> Any:
    """``value`` with every text in it fit to be printed; with ``secret``, as under the name of one, with none."""
    if isinstance(value, str):
        return MASK if secret else clean(value)
    if isinstance(value, dict):
        return {
            cleaned(key, secret=secret): cleaned(each, secret=secret or is_secret_name(key))
            for key, each in value.items()
        }
    return [cleaned(each, secret=secret) for each in value] if isinstance(value, list) else value


def entry_data(entry: Entry) -> dict[str, Any]:
    """One ledger entry, bytes per GPU."""
    return {
        "entry": entry.name,
        "low": entry.low,
        "expected": entry.expected,
        "high": entry.high,
        "low95": entry.low95,
        "high95": entry.high95,
        "basis": str(entry.basis),
        "why": entry.why,
        "source": entry.source,
    }


def pool_data(layout: KvLayout | None, pool: Pool | None) -> dict[str, Any] | None:
    """The KV pool: what the blocks amount to, None where the launch stops before it."""
    if layout is None or pool is None:
        return None
    return {
        "bytes_per_block": layout.bytes_per_block,
        "block_size": layout.block_size,
        "groups": [
            {
                "kind": str(group.spec.kind),
                "layers": len(group.layers),
                "page_bytes": group.page_bytes,
                "block_size": group.spec.block_size,
            }
            for group in layout.groups
        ],
        "num_blocks": pool.num_blocks,
        "tokens": pool.tokens,
        "needed_bytes": pool.needed_bytes,
        "max_concurrency": pool.max_concurrency,
        "max_model_len": pool.max_model_len,
        "longest_context": pool.longest_context,
    }


def verdict_data(verdict: Verdict) -> dict[str, Any]:
    """The verdict with the stage and text that vLLM would stop with."""
    return {
        "status": str(verdict.status),
        "stage": verdict.stage,
        "message": verdict.message,
        "left_out": verdict.left_out,
    }


def remedy_data(remedy: Remedy) -> dict[str, Any]:
    """A remedy with the verdict and pool after it."""
    return {
        "flags": list(remedy.flags),
        "why": remedy.why,
        "price": remedy.price,
        "risk": remedy.risk,
        "verdict": verdict_data(remedy.after.verdict),
        "pool": pool_data(remedy.after.layout, remedy.after.pool),
    }


def finding_data(finding: Finding) -> dict[str, Any]:
    """A finding as the diagnosis contract writes it."""
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": str(finding.severity),
        "title": finding.title,
        "why": finding.why,
        "evidence": [{"line": item.line, "text": item.text} for item in finding.evidence],
        "remedies": list(finding.advice),
    }


def _settings(prediction: Prediction) -> dict[str, Any] | None:
    settings = prediction.settings
    if settings is None:
        return None
    return {
        "engine": settings.engine,
        "model_runner": settings.model_runner,
        "max_model_len": settings.max_model_len,
        "gpu_memory_utilization": settings.gpu_memory_utilization,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "dtype": settings.dtype,
        "kv_cache_dtype": settings.kv_cache_dtype,
        "enable_prefix_caching": settings.enable_prefix_caching,
        "mamba_cache_mode": settings.mamba_cache_mode,
        "cudagraph_mode": settings.cudagraph_mode,
        "capture_sizes": list(settings.capture_sizes),
    }
