"""One reader for each quantisation method's part of a config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kvroom.models.fields import Fields
from kvroom.models.schemes import (
    FP8_BLOCK,
    FP8_CHANNEL,
    FP8_STATIC,
    FP8_TENSOR,
    INT8_CHANNEL,
    LLM_INT8,
    MXFP4,
    MXFP8,
    NF4,
    NVFP4,
    Grain,
    Scheme,
)


@dataclass
class Reading:
    """What a reader found."""

    groups: list[tuple[tuple[str, ...], Scheme]] = field(default_factory=list)
    ignored: list[Any] = field(default_factory=list)
    kv_hint: str | None = None
    method: str = ""
    experts_only: bool = False
    head: bool = False
    plain_towers: bool = False
    substring: bool = False
    unlisted: bool = False
    experts: Scheme | None = None


Reader = Callable[[Fields, Fields], Reading]


def method_of(config: Fields) -> str:
    """The method that a quantisation config names, ``modelopt`` where only its producer tells."""
    method = config.str("quant_method").lower().replace("_", "-")
    if not method and ("quant_algo" in config or "quantization" in config):
        return "modelopt"
    return {"fbgemm-fp8": "fbgemm_fp8", "intel/auto-round": "auto-round", "inc": "auto-round"}.get(method, method)


def names_in(config: Fields, *fields: str) -> list[Any]:
    """The first list of module names under ``fields``."""
    value: list[Any] = next((config.raw[name] for name in fields if isinstance(config.raw.get(name), list)), [])
    return [name for name in value if isinstance(name, str) and len(name) < 500]


def fp8(config: Fields, text: Fields) -> Reading:
    """DeepSeek's and Qwen's block format, or one scale a tensor (quantization/fp8.py: Fp8Config)."""
    block = config.raw.get("weight_block_size")
    static = config.str("activation_scheme", default="dynamic") == "static"
    if isinstance(block, list) and block:
        side = block[0] if isinstance(block[0], int) and 0 < block[0] < 1 << 20 else 128
        scheme = replace(FP8_BLOCK, group=side)
    else:
        scheme = FP8_STATIC if static else FP8_TENSOR
    reading = Reading([((), scheme)], names_in(config, "ignored_layers", "modules_to_not_convert"))
    if text.str("model_type").startswith("deepseek_v4") and text.str("expert_dtype", default="fp4") == "fp4":
        reading.experts = MXFP4  # models/deepseek_v4/quant_config.py
    return reading


def fbgemm(config: Fields, _text: Fields) -> Reading:
    """Meta's fp8: one scale an output channel."""
    return Reading([((), FP8_CHANNEL)], names_in(config, "modules_to_not_convert"))


def awq(config: Fields, _text: Fields) -> Reading:
    """AWQ: packed 4 bits with zero points."""
    bits = config.int("bits", "w_bit", default=4, low=1)
    group = config.maybe_int("group_size", "q_group_size", low=-1)
    scheme = Scheme("packed", bits, Grain.GROUP, max(group or 128, 0), zeros=config.bool("zero_point", default=True))
    return Reading([((), scheme)], names_in(config, "modules_to_not_convert"), plain_towers=True, substring=True)


def gptq(config: Fields, _text: Fields) -> Reading:
    """GPTQ and its ``dynamic`` overrides by module (quantization/auto_gptq.py)."""
    bits = config.int("bits", default=4, low=1)
    group = max(config.maybe_int("group_size", low=-1) or 128, 0)
    scheme = Scheme(
        "packed",
        bits,
        Grain.GROUP if group else Grain.CHANNEL,
        group,
        zeros=not config.bool("sym", default=True),
        act_order=config.bool("desc_act"),
    )
    reading = Reading(ignored=names_in(config, "modules_to_not_convert"), head=config.bool("lm_head"))
    dynamic = config.raw.get("dynamic")
    if isinstance(dynamic, Mapping):
        for pattern, change in list(dynamic.items())[:10_000]:
            text = str(pattern)
            if text.startswith("-:"):
                reading.ignored.append("re:" + text[2:])
            elif isinstance(change, Mapping):
                own = Fields(change, f"{config.where}: dynamic")
                altered = replace(scheme, bits=own.int("bits", default=int(scheme.bits), low=1),
                                  group=max(own.maybe_int("group_size", low=-1) or group, 0))  # fmt: skip
                reading.groups.append((("re:" + text.removeprefix("+:"),), altered))
    reading.groups.append(((), scheme))
    reading.plain_towers = not names_in(config, "modules_in_block_to_quantize")
    return reading


def auto_round(config: Fields, text: Fields) -> Reading:
    """AutoRound: packed integers, ``extra_config`` by module."""
    if config.str("data_type", default="int") in ("fp", "nv_fp", "mx_fp"):
        return Reading([((), NVFP4 if config.int("group_size", default=16) == 16 else MXFP4)])
    reading = gptq(config, text)
    extra = config.raw.get("extra_config")
    if isinstance(extra, Mapping):
        for name, change in list(extra.items())[:20_000]:
            if isinstance(change, Mapping) and change.get("bits") in (16, 32):
                reading.ignored.append(str(name))
    scheme = reading.groups[-1][1]
    reading.groups[-1] = ((), replace(scheme, act_order=False))
    blocks = config.raw.get("block_name_to_quantize")
    towers = isinstance(blocks, str | list) and any(t in str(blocks) for t in ("visual", "vision"))
    reading.plain_towers = not towers
    return reading


def compressed_tensors(config: Fields, _text: Fields) -> Reading:
    """compressed-tensors: schemes by group of targets (compressed_tensors/compressed_tensors.py)."""
    reading = Reading(ignored=names_in(config, "ignore"))
    groups = config.raw.get("config_groups")
    for raw in list(groups.values())[:1000] if isinstance(groups, Mapping) else []:
        group = Fields(raw, f"{config.where}: config_groups")
        weights = group.sub("weights")
        if weights is None:
            continue
        targets = [str(t) for t in names_in(group, "targets")]
        scheme = weight_scheme(
            weights, group.sub("input_activations"), group.str("format", default=config.str("format"))
        )
        everything = not targets or any(t in ("Linear", "LinearBase") for t in targets)
        reading.groups.append(((), scheme) if everything else (tuple(targets), scheme))
        reading.head = reading.head or any("lm_head" in t for t in targets)
    reading.groups.sort(key=lambda entry: not entry[0])
    cache = config.sub("kv_cache_scheme") if isinstance(config.raw.get("kv_cache_scheme"), Mapping) else None
    reading.kv_hint = "fp8" if cache is not None and cache.int("num_bits", default=0) == 8 else None
    return reading


def weight_scheme(weights: Fields, inputs: Fields | None, layout: str) -> Scheme:
    """The scheme of one group of compressed-tensors."""
    bits = weights.int("num_bits", default=8, low=1)
    strategy = weights.str("strategy", default="channel")
    group = weights.maybe_int("group_size", low=-1) or 0
    kind = weights.str("type", default="int")
    static = inputs is not None and not inputs.raw.get("dynamic", True)
    if kind == "float" and bits == 4:
        mx = "mxfp4" in layout or group == 32
        return replace(MXFP4 if mx else NVFP4, static_input=inputs is not None and not mx)
    if kind == "float":
        if strategy == "block":
            shape = weights.raw.get("block_structure")
            side = shape[0] if isinstance(shape, list) and shape and isinstance(shape[0], int) else 128
            return replace(FP8_BLOCK, group=side)
        if strategy == "group" and group == 32:
            return MXFP8
        return replace(FP8_TENSOR if strategy == "tensor" else FP8_CHANNEL, static_input=static)
    if bits == 8 and inputs is not None:
        return replace(INT8_CHANNEL, static_input=static)
    grain = Grain.GROUP if strategy == "group" and group > 0 else Grain.CHANNEL
    ordered = weights.raw.get("actorder") in ("group", "dynamic", True)
    zeros = not weights.bool("symmetric", default=True)
    return Scheme("packed", bits, grain, max(group, 0), zeros=zeros, act_order=ordered)


def _is_later_expert(name: str) -> bool:
    """Whether ``name`` lies in an expert other than the first, which stands for them all."""
    _, found, rest = name.partition(".experts.")
    number = rest.partition(".")[0]
    return bool(found) and number.isdigit() and int(number) > 0


MODELOPT = {
    "FP8": FP8_STATIC,
    "FP8_PER_CHANNEL_PER_TOKEN": FP8_CHANNEL,
    "FP8_PB_WO": FP8_BLOCK,
    "NVFP4": NVFP4,
    "NVFP4_AWQ": NVFP4,
    "W4A16_NVFP4": replace(NVFP4, static_input=False),
    "W4A8_NVFP4_FP8": NVFP4,
    "MXFP8": MXFP8,
    "MXFP4": MXFP4,
    "W4A16_AWQ": Scheme("packed", 4, Grain.GROUP, 128),
    "INT4_AWQ": Scheme("packed", 4, Grain.GROUP, 128),
    "W8A8_SQ": INT8_CHANNEL,
}
"""ModelOpt's algorithms by name."""
MODELOPT_METHODS = {"NVFP4": "modelopt_fp4", "MXFP8": "modelopt_mxfp8", "MIXED_PRECISION": "modelopt_mixed"}


def modelopt(config: Fields, _text: Fields) -> Reading:
    """NVIDIA ModelOpt: one algorithm, or one for each listed layer (quantization/modelopt.py)."""
    inner = config.sub("quantization") or config
    algorithm = inner.str("quant_algo").upper()
    reading = Reading(
        ignored=names_in(inner, "exclude_modules", "ignore"),
        method=MODELOPT_METHODS.get(algorithm, "modelopt"),
        plain_towers=True,
    )
    listed = inner.raw.get("quantized_layers")
    by_algorithm: dict[str, list[str]] = {}
    if isinstance(listed, Mapping):
        for name, entry in list(listed.items())[:200_000]:
            if isinstance(entry, Mapping) and not _is_later_expert(str(name)):
                by_algorithm.setdefault(str(entry.get("quant_algo", "")).upper(), []).append(str(name))
    if by_algorithm:
        for name, modules in by_algorithm.items():
            if name in MODELOPT:
                reading.groups.append((tuple(modules), MODELOPT[name]))
        reading.head = any(m.endswith("lm_head") for group in by_algorithm.values() for m in group)
        # A packaged copy that names kinds of modules, since the file's own list is not at hand.
        reading.unlisted = any(m.startswith("re:") for group in by_algorithm.values() for m in group)
    elif algorithm in MODELOPT:
        reading.groups.append(((), MODELOPT[algorithm]))
        reading.unlisted = True
        reading.head = False
    cache = inner.raw.get("kv_cache_quant_algo")
    scheme = inner.raw.get("kv_cache_scheme")
    bits = scheme.get("num_bits") if isinstance(scheme, Mapping) else None
    if str(cache).upper() == "FP8" or bits == 8 or str(scheme).upper() == "FP8":
        reading.kv_hint = "fp8"
    elif str(cache).upper() == "NVFP4" or bits == 4:
        reading.kv_hint = "nvfp4"
    return reading


def mxfp4(_config: Fields, _text: Fields) -> Reading:
    """OpenAI's mxfp4: routed experts only (quantization/mxfp4.py leaves linear layers plain)."""
    return Reading([((), MXFP4)], [], experts_only=True)


def bitsandbytes(config: Fields, _text: Fields) -> Reading:
    """bitsandbytes: 4-bit blocks of 64, or 8 bits with a scale a row."""
    four = config.bool("load_in_4bit") or config.bool("_load_in_4bit")
    scheme = replace(NF4, nested=config.bool("bnb_4bit_use_double_quant")) if four else LLM_INT8
    skipped = [name for name in names_in(config, "llm_int8_skip_modules") if name != "lm_head"]
    return Reading([((), scheme)], skipped, substring=True)


def gguf(_config: Fields, _text: Fields) -> Reading:
    """GGUF named by a config: the type is in the file, Q4_K_M is taken."""
    return Reading([((), Scheme("gguf", 4.85, Grain.GROUP, 256))], head=True)


def quark(config: Fields, _text: Fields) -> Reading:
    """AMD Quark: one global scheme (quantization/quark/quark.py)."""
    whole = config.sub("global_quant_config")
    weight = whole.raw.get("weight") if whole is not None else None
    first = weight[0] if isinstance(weight, list) and weight else weight
    found = str(first.get("dtype", "")) if isinstance(first, Mapping) else ""
    per = str(first.get("qscheme", "")) if isinstance(first, Mapping) else ""
    scheme = FP8_CHANNEL if per == "per_channel" else FP8_STATIC
    if found in ("fp4", "mx4"):
        scheme = MXFP4
    elif found == "int8":
        scheme = INT8_CHANNEL
    elif found in ("int4", "uint4"):
        scheme = Scheme("packed", 4, Grain.GROUP, 128, zeros=found == "uint4")
    return Reading([((), scheme)], names_in(config, "exclude"))


READERS: dict[str, Reader] = {
    "fp8": fp8,
    "deepseek-v4-fp8": fp8,
    "fbgemm_fp8": fbgemm,
    "awq": awq,
    "gptq": gptq,
    "gptqmodel": gptq,
    "auto-round": auto_round,
    "compressed-tensors": compressed_tensors,
    "modelopt": modelopt,
    "modelopt-fp4": modelopt,
    "modelopt-mixed": modelopt,
    "mxfp4": mxfp4,
    "bitsandbytes": bitsandbytes,
    "gguf": gguf,
    "quark": quark,
}
"""Readers by method; a method that is not here is treated as plain weights."""
