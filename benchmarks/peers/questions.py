"""What every peer is told of a launch: the model's config, the card, and the settings as kvroom resolved them.

Peers get what vLLM would have filled in (utilisation, length, batched tokens and sequences by release and card), and
the total that torch reports of the card, so that their own guesses of these do not count against them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.launches import Launch
from benchmarks.peers.checkpoint import Repository, config_of, repository
from kvroom.ledger.predict import Prediction
from kvroom.models.quantization import online_quantization

NVLINK = re.compile(r"H100|H200|H20|B200|B300|GB200|SXM|V100")
_LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class Asked:
    """One launch as it is put to the peers."""

    facts: Mapping[str, Any]
    """Without the hub's address and the folder, which are of this run."""
    model: Repository


def asked(launch: Launch, found: Prediction) -> Asked | None:
    """The question about ``launch``, of which ``found`` is kvroom's own answer; None where vLLM resolves nothing."""
    setup, settings = found.setup, found.settings
    if settings is None:
        return None
    args, shape, device = setup.args, setup.shape, setup.machine.device
    config, beside = config_of(args.model, shape, args.hf_overrides)
    stored = shape.quantization
    if stored is None and args.quantization:
        stored = online_quantization(args.quantization)
    scheme = stored.scheme if stored else None
    tp, pp, dp = args.tensor_parallel_size, args.pipeline_parallel_size, args.data_parallel_size
    facts = {
        "id": launch.id,
        "model": f"case-{_word(launch.id)}/{bare_name(args.model)}",
        "name": args.model,
        "config": config,
        "gpu": device.name,
        "total": device.total_bytes,
        "nvlink": bool(NVLINK.search(device.name)),
        "tensor_parallel": tp,
        "pipeline_parallel": pp,
        "data_parallel": dp,
        "expert_parallel": bool(args.enable_expert_parallel),
        "ranks": tp * pp * (dp if shape.is_moe else 1),
        "utilization": settings.gpu_memory_utilization,
        "max_model_len": settings.max_model_len,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "dtype": settings.dtype,
        "kv_fp8": settings.kv_cache_dtype.startswith("fp8"),
        "quantization": stored.method if stored else None,
        "format": scheme.format if scheme else None,
        "bits": scheme.bits if scheme else None,
        "online": bool(scheme and scheme.online),
        "parameters": shape.total_params,
    }
    return Asked(facts, repository(config, shape, beside, speculates=settings.uses_own_draft))


def bare_name(model: str) -> str:
    """The last part of a model's name, as a hub would take it.

    >>> bare_name("/models/Qwen3-8B/"), bare_name("a/b-Q4_K_M.gguf")
    ('Qwen3-8B', 'b-Q4_K_M')
    """
    last = re.split(r"[/\\]", model.rstrip("/\\"))[-1].removesuffix(".gguf")
    return _word(last)[:_LONGEST_NAME]


def _word(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text, flags=re.ASCII).strip(".-")


def put_down(each: Asked, folder: Path, hub: str) -> dict[str, Any]:
    """The question as an adapter reads it: its config also lies in a folder of its own under ``folder``."""
    own = folder / each.facts["model"]
    own.mkdir(parents=True)
    for name in ("config.json", "hf_quant_config.json"):
        if name in each.model.files:
            (own / name).write_bytes(each.model.files[name])
    return {**each.facts, "hub": hub, "folder": str(own)}
