"""The routed experts of a mixture-of-experts model, under the names that configs use."""

from __future__ import annotations

from kvroom.errors import BadConfig
from kvroom.models.families.common import indices, kind_of, layer_count, per_layer
from kvroom.models.families.recurrent import nemotron_blocks
from kvroom.models.fields import Fields
from kvroom.models.shape import Experts

ROUTED = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
"""In vLLM's order of reading (model_arch_config_convertor.py: get_num_experts)."""
PER_TOKEN = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "top_k_experts",
    "moe_topk",
    "moe_top_k",
    "moe_k",
)
DENSE_MENTIONS = frozenset({"nemotron_h", "granitemoehybrid", "gemma4"})
"""Families whose class has experts by default though the checkpoint may be dense."""


def read_experts(config: Fields) -> Experts:
    """The experts of the language model ``config``; zero routed experts for a dense one."""
    routed = _first(config, *ROUTED)
    layers = _layers(config) if routed > 1 else 0
    if layers == 0:
        return Experts()
    width = _first(config, "moe_intermediate_size", "expert_ffn_hidden_size", "ffn_hidden_size")
    width = width or config.int("intermediate_size", default=0)
    return Experts(routed, _first(config, *PER_TOKEN), width, _shared_width(config, width), layers)


def _first(config: Fields, *names: str) -> int:
    """The first of ``names``; of a list the first entry, since ERNIE gives one a modality."""
    for name in names:
        value = config.raw.get(name)
        if isinstance(value, list) and value:
            return Fields({name: value[0]}, config.where).int(name)
        if value is not None:
            return config.int(name)
    return 0


def _shared_width(config: Fields, width: int) -> int:
    stated = _first(
        config,
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "shared_intermediate_size",
        "share_expert_dim",
    )
    shared = _first(config, "n_shared_experts", "moe_num_shared_experts", "num_shared_experts")
    return stated or shared * width


def _layers(config: Fields) -> int:
    """Decoder layers with routed experts."""
    kind = kind_of(config)
    if kind.startswith("nemotron_h"):
        return sum(each in ("E", "moe") for each in nemotron_blocks(config))
    if kind == "gemma4" and not config.bool("enable_moe_block"):
        return 0
    count = layer_count(config)
    types = per_layer(config, "mlp_layer_types", count)
    if types is not None:
        return sum(each == "sparse" for each in types)
    if kind == "llama4":
        every = config.int("interleave_moe_layer_step", default=1, low=1)
        return len(indices(config, "moe_layers")) or count // every
    if kind == "jamba":
        period, offset = (
            config.int("expert_layer_period", default=2, low=1),
            config.int("expert_layer_offset"),
        )
        return sum(index % period == offset for index in range(count))
    if "decoder_sparse_step" in config:
        dense, step = indices(config, "mlp_only_layers"), config.int("decoder_sparse_step", low=1)
        return sum(index not in dense and (index + 1) % step == 0 for index in range(count))
    return _by_frequency(config, count)


def _by_frequency(config: Fields, count: int) -> int:
    listed = config.raw.get("moe_layer_freq")
    if isinstance(listed, list):
        return sum(bool(each) for each in listed[:count])
    enum = config.str("moe_layers_enum")
    if enum:
        try:
            return sum(0 <= int(part) < count for part in enum.split(","))
        except ValueError:
            raise BadConfig(f"{config.where}: 'moe_layers_enum' should list layer numbers.") from None
    first = config.int("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", default=0)
    every = config.int("moe_layer_freq", "moe_layer_interval", default=1, low=1)
    last = config.maybe_int("moe_layer_end_index", low=-1)
    last = count - 1 if last is None or last < 0 else min(last, count - 1)
    return sum(index >= first and index % every == 0 for index in range(last + 1))
