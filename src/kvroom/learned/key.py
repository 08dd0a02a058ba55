"""The key of a measurement: what tells two models apart, and which words of a launch move memory."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models.shape import ModelShape
from kvroom.redaction import anonymous
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.flags import flags_for
from kvroom.vllm.parse import parse_serve_args
from kvroom.vllm.releases import Release
from kvroom.vllm.render import flag_words
from kvroom.vllm.settings import Settings

VARIABLES = frozenset(
    "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE VLLM_ATTENTION_BACKEND VLLM_BATCH_INVARIANT"
    " VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE VLLM_KV_CACHE_LAYOUT VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"
    " VLLM_PP_LAYER_PARTITION VLLM_USE_FLASHINFER_SAMPLER VLLM_USE_V1 VLLM_USE_V2_MODEL_RUNNER".split()
)
"""Environment variables that move memory by the rules; no other is kept."""
RESOLVED = ("max_model_len", "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens")
"""Settings kept as they were resolved, so that a flag left out equals the same value written."""
EXACT = frozenset({"max_model_len", "gpu_memory_utilization", "kv_cache_memory_bytes", "num_gpu_blocks_override"})
"""Arguments whose effect is arithmetic, or nearly none: a launch that differs in them alone is near."""
_PRIVATE = frozenset(
    "model revision served_model_name config load_format hf_overrides rope_scaling rope_theta kv_events_config"
    " ec_transfer_config logits_processors logits_processor_pattern otlp_traces_endpoint collect_detailed_traces"
    " spec_model speculative_model node_rank watermark_config data_parallel_backend trust_remote_code".split()
)
"""Arguments that name files, places or people, or that the model's fingerprint already holds."""
_PLAIN = re.compile(r"[\w.,:+-]{1,60}")
_LONG_CONTEXT = {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}
"""A start that was logged was allowed, whatever let it pass."""
_PASSED_BY = frozenset(
    "model served_model_name revision hf_overrides load_format trust_remote_code env given passed unknown".split()
)
"""Fields of the arguments that do not tell two launches of one model apart, or are compared on their own."""


def fingerprint(shape: ModelShape, draft: ModelShape | None = None) -> str:
    """Sixteen hexadecimal digits, equal for two models of one architecture, size and way of storing.

    A model under another name, or a fine-tune, has its base's. Limits of the context are left out: they move
    no weights. A separate ``draft`` counts as part of the model.
    """
    return sha256(json.dumps([_facts(shape), _facts(draft) if draft else None]).encode()).hexdigest()[:16]


def _facts(shape: ModelShape) -> list[Any]:
    """What decides the memory of a model, as plain values whose order does not change."""
    experts, vision, quantization = shape.experts, shape.vision, shape.quantization
    stored = None
    if quantization is not None:
        schemes = [scheme for _, scheme in quantization.groups]
        schemes += [quantization.experts] if quantization.experts else []
        stored = [quantization.method, [[scheme.format, scheme.bits, scheme.group] for scheme in schemes]]
    kinds: dict[str, int] = {}
    for layer in shape.caches:
        kind = f"{type(layer.cache).__name__}:{getattr(layer.cache, 'kind', '')}"
        kinds[kind] = kinds.get(kind, 0) + 1
    return [
        shape.architecture,
        shape.dtype,
        [shape.layers, shape.hidden_size, shape.intermediate_size, shape.vocab_size],
        [shape.heads, shape.kv_heads, shape.head_size],
        [experts.routed, experts.per_token, experts.intermediate_size],
        [vision.hidden_size, vision.layers] if vision else None,
        sorted(kinds.items()),
        stored,
        shape.tied_embeddings,
    ]


def world(args: EngineArgs) -> int:
    """How many GPUs a launch spans."""
    sizes = (args.tensor_parallel_size, args.pipeline_parallel_size, args.data_parallel_size)
    return sizes[0] * sizes[1] * sizes[2] * args.prefill_context_parallel_size


def kept_words(args: EngineArgs, settings: Settings | None, release: Release) -> tuple[str, ...]:
    """The flags of ``args`` that move memory, without paths, names and secrets, and what ``settings`` resolved."""
    given = {name: value for name, value in args.given.items() if name not in _PRIVATE}
    for name in RESOLVED if settings is not None else ():
        given.setdefault(name, getattr(settings, name))
    table = flags_for(release)
    words: list[str] = []
    for name in sorted(given):
        value = _plain(given[name])
        if value is not None and name in table.by_name:
            words += flag_words(name, value, table)
    return tuple(words)


def kept_env(env: Mapping[str, str]) -> dict[str, str]:
    """The variables of ``env`` that move memory."""
    return {name: env[name] for name in sorted(VARIABLES & env.keys()) if _plain(env[name]) is not None}


def _plain(value: Any) -> Any:
    """``value`` as far as it is made of numbers and short plain words; None where nothing of it is."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and anonymous(value) == value else None
    if isinstance(value, list | tuple):
        return [plain for each in value if (plain := _plain(each)) is not None] or None
    if isinstance(value, Mapping):
        kept = {key: plain for key, each in value.items() if _plain(key) and (plain := _plain(each)) is not None}
        return kept or None
    return None


def logged_args(words: Sequence[str], env: Mapping[str, str], now: EngineArgs, release: Release) -> EngineArgs | None:
    """The arguments of a launch that was kept, for the model of ``now``; None where they cannot be read any more."""
    try:
        args = parse_serve_args([*words], {**env, **_LONG_CONTEXT}, release=release)
    except KvroomError:
        return None
    speculative = args.speculative_config
    draft = (now.speculative_config or {}).get("model")
    if speculative is not None and draft is not None:
        speculative = {**speculative, "model": draft}
    return replace(args, model=now.model, hf_overrides=now.hf_overrides, speculative_config=speculative)


def changes(then: EngineArgs, now: EngineArgs, settings: Settings) -> tuple[str, ...]:
    """The arguments in which two launches differ, one resolved to ``settings`` and one that was kept."""
    found = []
    for name in EngineArgs.__dataclass_fields__:
        if name in _PASSED_BY:
            continue
        before, after = getattr(then, name), getattr(now, name)
        if name in RESOLVED and after is None:
            after = getattr(settings, name)
        if before != after and _comparable(before) != _comparable(after):
            found.append(name)
    found += [f"env {name}" for name in sorted(VARIABLES) if then.env.get(name) != now.env.get(name)]
    return tuple(found)


def _comparable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _comparable(each) for key, each in value.items() if _plain(each) is not None}
    return list(value) if isinstance(value, tuple | list) else value
