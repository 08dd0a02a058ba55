"""What ``--speculative-config`` asks for, and what of it a release refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.models.shape import ModelShape
from kvroom.vllm.refusals import refuse
from kvroom.vllm.rules import Rules

_ALONE = frozenset({"ngram", "[ngram]", "ngram_gpu", "suffix", "extract_hidden_states", "dspark", "custom_class"})
"""Methods that need no draft model; multi-token predictors are the model's own layers."""


def verify_speculation(config: Mapping[str, Any] | None, shape: ModelShape, rules: Rules) -> None:
    """Refuse a method that the release does not know, and a draft without its model or its number of tokens.

    Mirrors config/speculative.py: SpeculativeConfig.__post_init__ and _verify_args. Raises StartRefused.
    """
    if config is None:
        return
    method, known = config.get("method"), rules["speculative_methods"]
    if known is not None and method is not None and method not in known:
        *others, last = (f"'{each}'" for each in known)
        refuse(rules, "refuse_speculative_method", known=f"{', '.join(others)} or {last}")
    method = str(method) if method is not None else None
    own_layers = str(method).endswith("mtp") or (method is None and shape.draft_caches)
    if config.get("model") or method in _ALONE or own_layers:
        return
    rule = "refuse_speculative_model" if config.get("num_speculative_tokens") else "refuse_speculative_tokens"
    refuse(rules, rule)


def speculative_method(config: Mapping[str, Any] | None) -> str | None:
    """The method of ``--speculative-config`` in vLLM's words, ``mtp`` for all multi-token predictors.

    None without speculation. A model without a method is told by its name, as vLLM tells it.
    """
    if not config:
        return None
    method = str(config.get("method") or "").lower()
    model = str(config.get("model") or "").lower()
    if not method:
        if model in ("ngram", "[ngram]"):
            return "ngram"
        named = (word for word in ("eagle3", "eagle", "medusa", "dflash", "dspark", "mlp_speculator") if word in model)
        return next(named, "mtp" if not model or "mtp" in model else "draft_model")
    return "mtp" if method.endswith("mtp") else method


def speculative_tokens(config: Mapping[str, Any] | None) -> int:
    """Tokens proposed a step: ``num_speculative_tokens``, else one (a checkpoint's own layer), 0 without."""
    if not config:
        return 0
    tokens = config.get("num_speculative_tokens")
    return int(tokens) if tokens is not None else 1
