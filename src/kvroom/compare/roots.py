"""Which differences were made, and which only follow from them: defaults, the engine, the graph mode."""

from __future__ import annotations

from collections.abc import Sequence

from kvroom.compare.comparison import SettingRow
from kvroom.compare.side import Side

_FOLLOWS = {
    "engine": {"version"},
    "dtype": {"model"},
    "quantization": {"model"},
    "total_bytes": {"device"},
    "gpus": {"tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"},
    "max_num_batched_tokens": {"version", "model", "max_model_len"},
    "attention_backend": {"version", "model", "device", "kv_cache_dtype", "dtype", "block_size", "speculative_config"},
    "cudagraph_mode": {"version", "enforce_eager", "compilation_config", "speculative_config", "attention_backend"},
    "graph_estimate": {"version", "enforce_eager", "compilation_config"},
    "block_size": {"attention_backend", "kv_cache_dtype", "model", "version"},
    "enable_chunked_prefill": {"version", "model"},
    "enable_prefix_caching": {"version", "model"},
}
"""What a setting follows from where nobody set it."""
_FILLED = {"version", "model", "device", "total_bytes", "max_model_len", "enforce_eager", "enable_lora"}
"""What a default that is filled in on both sides may follow from."""
SURROUNDINGS = frozenset({"free_bytes"})
"""No setting of a launch, but what it found."""


def roots(rows: Sequence[SettingRow], given: frozenset[str]) -> list[SettingRow]:
    """The differing rows that follow from no other; ``given`` are the arguments that somebody wrote."""
    differing = [row for row in rows if row.differs and row.name not in SURROUNDINGS]
    names = {row.name for row in differing}
    return [row for row in differing if not _sources(row, given) & (names - {row.name})]


def followers(rows: Sequence[SettingRow], root: str, given: frozenset[str]) -> list[SettingRow]:
    """The differing rows that follow from ``root``."""
    return [row for row in rows if row.differs and row.name != root and root in _sources(row, given)]


def _sources(row: SettingRow, given: frozenset[str]) -> set[str]:
    if row.name in given:
        return set()
    found = set(_FOLLOWS.get(row.name, ()))
    if row.name in {"version", "model", "device", "total_bytes", "gpus"}:
        return found
    if row.good is not None and row.bad is not None and row.good.default and row.bad.default:
        found |= _FILLED
    return found


def written(side: Side) -> frozenset[str]:
    """The arguments that somebody wrote on this side."""
    if side.reading is not None:
        return frozenset(side.reading.given)
    return frozenset(side.prediction.setup.args.given) if side.prediction else frozenset()
