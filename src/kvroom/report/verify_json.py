"""A verification as JSON data of schema ``kvroom/1`` (see docs/verify.md): times in seconds, null where unknown."""

from __future__ import annotations

from typing import Any

from kvroom.redaction import clean
from kvroom.report.schema import SCHEMA
from kvroom.server.boundary import Tried
from kvroom.server.check import Check
from kvroom.server.figures import Spread
from kvroom.server.limits import TARGET_PERCENTILE, Change, Limit
from kvroom.server.pool import Pool
from kvroom.server.step import Step
from kvroom.server.verify import Verification


def verification_data(found: Verification) -> dict[str, Any]:
    """The whole verification, ready for ``json.dumps``."""
    ramp, workload = found.ramp, found.workload
    return {
        "schema": SCHEMA,
        "kind": "verification",
        "url": found.url,
        "holds": found.holds,
        "vllm_version": str(found.release) if found.release else None,
        "model": _text(found.model),
        "served": [
            {"name": clean(each.name), "max_model_len": each.max_model_len, "parent": _text(each.parent)}
            for each in found.served
        ],
        "max_model_len": found.max_model_len,
        "checks": [_check(check) for check in found.checks],
        "boundary": [_tried(tried) for tried in found.boundary.tried] if found.boundary else [],
        "kv_cache": _pool(found.pool) if found.pool else None,
        "load": {
            "endpoint": "chat" if found.chat else "completions",
            "source": workload.source or None,
            "input_len": workload.mean[0],
            "output_len": workload.mean[1],
            "targets": {"percentile": TARGET_PERCENTILE, "ttft": found.targets.ttft, "tpot": found.targets.tpot},
        }
        if workload
        else None,
        "steps": [step_data(step) for step in ramp.steps] if ramp else [],
        "limit": _limit(ramp.limit) if ramp else None,
        "best_concurrency": ramp.best.concurrency if ramp and ramp.best else None,
        "requests_sent": found.requests_sent,
        "notes": list(found.notes),
    }


def _check(check: Check) -> dict[str, Any]:
    said = {"seen": check.seen, "why": check.why, "cure": check.cure}
    return {"name": check.name, "held": str(check.held), **{key: _text(value or None) for key, value in said.items()}}


def _tried(tried: Tried) -> dict[str, Any]:
    outcome = tried.outcome
    return {
        "prompt": tried.prompt,
        "output": tried.output,
        "status": outcome.status,
        "failure": str(outcome.failure) if outcome.failure else None,
        "message": _text(outcome.message or None),
        "prompt_tokens": outcome.prompt_tokens,
        "output_tokens": outcome.output_tokens,
        "seconds": outcome.latency,
    }


def _pool(pool: Pool) -> dict[str, Any]:
    claim = pool.claim
    return {
        "claimed_tokens": claim.most_tokens if claim else None,
        "claimed_blocks": claim.num_blocks if claim else None,
        "block_size": claim.block_size if claim else None,
        "usable_tokens": pool.usable_tokens,
        "usable_blocks": pool.usable_blocks,
        "kept_back": pool.kept_back,
        "exact": pool.exact,
        "why": _text(pool.why or None),
    }


def step_data(step: Step) -> dict[str, Any]:
    """One step of the load."""
    return {
        "concurrency": step.concurrency,
        "requests": len(step.outcomes),
        "completed": len(step.done),
        "failures": {str(kind): count for kind, count in step.failures},
        "duration": step.duration,
        "input_tokens": step.input_tokens,
        "output_tokens": step.output_tokens,
        "output_rate": step.output_rate,
        "ttft": _spread(step.ttft),
        "tpot": _spread(step.tpot),
        "itl": _spread(step.itl),
        "latency": _spread(step.latency),
        "running": step.running,
        "waiting": step.waiting,
        "kv_use": step.kv_use,
        "preemptions": step.counted("preemptions"),
        "prefix_queries": step.counted("prefix_queries"),
        "prefix_hits": step.counted("prefix_hits"),
        "given_up": _text(str(step.given_up)) if step.given_up else None,
        "client_busy": step.client_busy,
    }


def _spread(spread: Spread | None) -> dict[str, float] | None:
    if spread is None:
        return None
    return {"mean": spread.mean, "std": spread.deviation, **{f"p{p}": value for p, value in spread.percentiles}}


def _limit(limit: Limit) -> dict[str, Any]:
    return {
        "cause": str(limit.cause),
        "of_server": limit.of_server,
        "concurrency": limit.concurrency,
        "evidence": clean(limit.evidence),
        "also": [clean(text) for text in limit.also],
        "changes": [_change(change) for change in limit.changes],
    }


def _change(change: Change) -> dict[str, Any]:
    return {"flags": list(change.flags), "why": change.why, "price": change.price or None}


def _text(text: str | None) -> str | None:
    return None if text is None else clean(text)
