"""Answers about hardware as JSON data of schema ``kvroom/1``: sizes in bytes, durations in seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kvroom.report.as_json import cleaned, verdict_data
from kvroom.report.schema import SCHEMA
from kvroom.report.size_text import lacks
from kvroom.sizing.answer import Answer
from kvroom.sizing.have import Fit
from kvroom.sizing.option import Option
from kvroom.sizing.share import Sharing, held, lacking


def size_data(answer: Answer, notes: Sequence[str], top: int) -> dict[str, Any]:
    """The first ``top`` options of ``answer``."""
    need, problem = answer.problem.need, answer.problem
    data = {
        "schema": SCHEMA,
        "kind": "size",
        "model": problem.base.args.model,
        "vllm_version": str(problem.base.release),
        "need": {
            "context": need.context,
            "held": need.held,
            "concurrency": need.concurrency,
            "input_len": need.input_len,
            "output_len": need.output_len,
            "rate": need.rate,
            "ttft": need.ttft,
            "tpot": need.tpot,
            "why": need.why,
        },
        "currency": answer.prices.currency or None,
        "options": [_option(option) for option in answer.options[:top]],
        "more": max(0, len(answer.options) - top),
        "nearest": [{**_option(miss), "lacks": lacks(miss, answer)} for miss in answer.nearest],
        "searched": {"cards": answer.cards, "judged": answer.found.judged, "ruled_out": answer.found.ruled_out},
        "notes": list(notes),
    }
    return {key: cleaned(value) for key, value in data.items()}


def _option(option: Option) -> dict[str, Any]:
    speed = option.speed
    return {
        "device": option.device,
        "gpu": option.asked_as,
        "gpus": option.gpus,
        "nodes": option.layout.nodes,
        "tensor_parallel_size": option.layout.tp,
        "pipeline_parallel_size": option.layout.pp,
        "data_parallel_size": option.layout.dp,
        "enable_expert_parallel": option.layout.ep,
        "weights": option.weights,
        "kv_cache_dtype": option.kv,
        "status": str(option.status),
        "room": _finite(option.room),
        "room_low": _finite(option.room_low),
        "spare_bytes": option.spare_bytes,
        "lacks_bytes": option.lacks_bytes,
        "longest_context": option.longest,
        "speed": None
        if speed is None
        else {
            "ttft": speed.ttft,
            "tpot": speed.tpot,
            "tpot_low": speed.tpot_low,
            "tpot_high": speed.tpot_high,
            "tokens_per_second": speed.tokens_per_second,
        },
        "price": option.price,
        "command": ["vllm", "serve", *option.tokens],
    }


def _finite(room: float) -> float | None:
    return room if math.isfinite(room) else None


def share_data(sharing: Sharing, notes: Sequence[str]) -> dict[str, Any]:
    """Several models on one card."""
    data = {
        "schema": SCHEMA,
        "kind": "share",
        "device": sharing.device.name,
        "total_bytes": sharing.device.total_bytes,
        "fits": sharing.fits,
        "spare_bytes": sharing.spare_bytes,
        "problem": lacking(sharing) or None,
        "instances": [
            {
                "model": instance.tenant.words[0],
                "context": instance.tenant.context,
                "concurrency": instance.tenant.concurrency,
                "kv_cache_memory_bytes": instance.cache_bytes,
                "gpu_memory_utilization": instance.utilization,
                "footprint_bytes": instance.footprint_bytes,
                "room": _finite(held(instance)),
                "verdict": verdict_data(instance.prediction.verdict),
                "command": ["vllm", "serve", *instance.tokens],
            }
            for instance in sharing.instances
        ],
        "notes": list(notes),
    }
    return {key: cleaned(value) for key, value in data.items()}


def have_data(gpu: str, count: int, concurrency: int, fits: Sequence[Fit]) -> dict[str, Any]:
    """The models that run on GPUs that are there."""
    return {
        "schema": SCHEMA,
        "kind": "have",
        "device": gpu,
        "count": count,
        "concurrency": concurrency,
        "models": [
            {
                "model": fit.model,
                "parameters": fit.params,
                "context": fit.context,
                "limit": fit.limit,
                "weights": fit.weights,
                "spread": fit.layout.label(),
                "command": ["vllm", "serve", *fit.tokens],
            }
            for fit in fits
        ],
    }
