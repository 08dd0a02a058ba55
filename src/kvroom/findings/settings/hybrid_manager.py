"""KVR142: windowed layers that are stored in full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag
from kvroom.ledger.predict import predict
from kvroom.models.shape import AttentionCache, AttentionKind, MlaCache, ModelShape
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR142",
    "hybrid-manager-off",
    Severity.WARNING,
    "Without the hybrid KV cache manager layers with a window keep the whole context.",
    explanation(
        what="""
            Reports a model that mixes windowed (or chunked) with full attention where the hybrid KV cache
            manager is off: by `--disable-hybrid-kv-cache-manager`, by a KV connector that does not support
            it, by KV events, or by default for chunked local attention.
            Predicts the same launch with the manager on and names the difference.
            """,
        why="""
            The manager gives windowed layers blocks for their window only.
            Without it they are stored like full attention, and a long request takes several times the memory.
            Models with recurrent state do not start without it.
            """,
        example="""
            Gemma-3-27B at 131072 tokens: one request needs 62 GiB with the manager off and about 14 to 18 GiB
            with it on.
            """,
        cure="""
            Drop the flag, or use a connector that supports the manager.
            """,
        since="""
            The manager exists since vLLM 0.9.
            A connector always turns it off up to 0.12; since 0.13 only if the user stated no preference, and
            newer connectors support it.
            KV events turn it off up to 0.19, chunked local attention (Llama 4) up to 0.13.
            """,
        references="`vllm/config/vllm.py: VllmConfig.__post_init__`, `vllm/v1/core/kv_cache_utils.py`",
    ),
)

_CHUNKED_SWITCH = "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE"


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding with what one request needs either way."""
    settings, pool = prediction.settings, prediction.pool
    if settings is None or settings.hybrid_manager or settings.engine != "V1":
        return
    if not _mixes_windows(prediction.setup.shape):
        return
    evidence, cure, changes = _cause(prediction)
    after = predict(prediction.setup.with_args(**changes)).pool
    costs = ""
    if pool is not None and after is not None and after.needed_bytes < pool.needed_bytes:
        costs = f": one request needs {show_bytes(pool.needed_bytes)} instead of {show_bytes(after.needed_bytes)}"
    yield RULE.found(
        f"The hybrid KV cache manager is off, so windowed layers are stored in full{costs}.",
        evidence=(evidence,),
        advice=(cure,),
    )


def _cause(prediction: Prediction) -> tuple[Evidence, str, dict[str, object]]:
    """What turned the manager off, how to have it on, and the arguments of that launch."""
    args = prediction.setup.args
    if args.disable_hybrid_kv_cache_manager:
        cure = "Drop --disable-hybrid-kv-cache-manager."
        return flag("disable_hybrid_kv_cache_manager"), cure, {"disable_hybrid_kv_cache_manager": None}
    if args.kv_transfer_config or args.kv_offloading_size:
        name = "kv_transfer_config" if args.kv_transfer_config else "kv_offloading_size"
        cure = "Leave out the KV connector, or use one that supports the hybrid KV cache manager."
        return flag(name), cure, {"kv_transfer_config": None, "kv_offloading_size": None}
    if "kv_events_config" in args.given:
        given = {name: value for name, value in args.given.items() if name != "kv_events_config"}
        return flag("kv_events_config"), "Drop --kv-events-config.", {"given": given}
    env = {**args.env, _CHUNKED_SWITCH: "1"}
    return Evidence("chunked local attention"), f"{_CHUNKED_SWITCH}=1", {"env": env}


def _mixes_windows(shape: ModelShape) -> bool:
    windowed = full = False
    for layer in shape.caches:
        cache = layer.cache
        if isinstance(cache, AttentionCache):
            narrow = cache.kind in (AttentionKind.SLIDING, AttentionKind.CHUNKED)
        elif isinstance(cache, MlaCache):
            narrow = cache.window is not None
        else:
            continue
        windowed, full = windowed or narrow, full or not narrow
    return windowed and full
