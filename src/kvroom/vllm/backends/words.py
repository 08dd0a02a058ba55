"""vLLM's log lines and errors about attention backends, as each release words them."""

from __future__ import annotations

from collections.abc import Mapping

from kvroom.vllm.backends.question import Question
from kvroom.vllm.rules import Rules


def log_default(rules: Rules, name: str, candidates: tuple[str, ...]) -> str:
    """The line that names the backend picked from ``candidates``.

    >>> from kvroom.vllm.releases import parse_release
    >>> from kvroom.vllm.rules import rules_for
    >>> log_default(rules_for(parse_release("0.28.0")), "FLASH_ATTN", ("FLASH_ATTN", "FLASHINFER"))
    "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'FLASHINFER']."
    """
    quoted = ", ".join(f"'{each}'" for each in candidates)
    comma = "," if len(candidates) == 1 else ""
    return str(rules["backend.log.default"].format(name=name, quoted=quoted, comma=comma))


def log_legacy(rules: Rules, name: str, engine: str) -> str:
    """The line of releases to 0.11.0, empty for a backend that logs none."""
    return str(rules["backend.log.legacy"][engine].get(name, ""))


def error_unknown(name: str) -> str:
    """The error for a backend that this release does not have; vLLM goes on to list those it has."""
    return f"Unknown attention backend: '{name}'."


def error_none(rules: Rules, ask: Question, rejected: Mapping[str, str]) -> str:
    """The error when every backend refuses."""
    why = "{" + ", ".join(f"{name}: [{reason}]" for name, reason in rejected.items()) + "}"
    return str(rules["backend.error.none"].format(config=config_text(rules, ask), reasons=why))


def config_text(rules: Rules, ask: Question) -> str:
    """The configuration as vLLM prints it in that error (AttentionSelectorConfig.__repr__)."""
    layer = ask.layer
    values: dict[str, object] = {
        "head_size": layer.head_size,
        "dtype": f"torch.{ask.dtype}",
        "kv_cache_dtype": ask.kv_cache_dtype,
        "block_size": ask.block_size,
        "use_mla": layer.mla,
        "has_sink": layer.sink,
        "use_sparse": layer.sparse,
        "use_mm_prefix": ask.mm_prefix,
        "attn_type": layer.attn_type,
        "has_sliding_window": layer.sliding,
        "use_batch_invariant": ask.batch_invariant,
        "use_dcp": ask.dcp,
    }
    rule = rules["backend.config_text"]
    if rule["form"] == "plain":
        return ", ".join(f"{name}: {values.get(name, False)}" for name in rule["fields"])
    inner = ", ".join(f"{name}={values.get(name, False)}" for name in rule["fields"])
    return f"AttentionSelectorConfig({inner})"
