"""Which CUDA graphs a launch captures: the mode and the batch sizes.

Mirrors config/vllm.py: VllmConfig.__post_init__ and _set_cudagraph_sizes.
"""

from __future__ import annotations

from functools import lru_cache

from kvroom.devices.device import Device
from kvroom.models.shape import ModelShape
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.rules import Rules

_GPT_OSS = "GptOssForCausalLM"
_STATES_WITHOUT_FULL = frozenset({"Lfm2ForCausalLM", "MiniMaxText01ForCausalLM"})


def graph_mode(args: EngineArgs, shape: ModelShape, rules: Rules, engine: str, *, pooling: bool) -> str:
    """The CUDA graph mode of the configuration, before an attention backend may lower it."""
    if args.enforce_eager:
        return "NONE"
    if engine == "V0":
        return "FULL"
    level = str(args.given.get("optimization_level", "2"))
    mode = args.cudagraph_mode
    if mode is None:
        mode = rules["graph_mode_by_level"].get(level, rules["graph_mode"])
        if shape.has_state and rules["graph_mode_states"] and shape.architecture not in _STATES_WITHOUT_FULL:
            mode = rules["graph_mode_states"]
    if args.compilation_mode is not None and args.compilation_mode != 3:
        mode = _uncompiled(mode, rules["graph_mode_uncompiled"], chosen=args.cudagraph_mode is not None)
    if mode.startswith("FULL"):
        context_parallel = max(args.decode_context_parallel_size, args.prefill_context_parallel_size) > 1
        if context_parallel and rules["graph_mode_context_parallel"]:
            return str(rules["graph_mode_context_parallel"])
        if pooling and rules["graph_mode_pooling"]:
            return str(rules["graph_mode_pooling"])
    if shape.is_encoder_decoder and not pooling and mode not in ("NONE", "FULL_DECODE_ONLY"):
        return str(rules["graph_mode_encoder_decoder"] or mode)
    return mode


def _uncompiled(mode: str, rule: str, *, chosen: bool) -> str:
    """What is left of ``mode`` when torch.compile does not cut the model into pieces."""
    if rule == "none" or (rule == "none_by_default" and not chosen):
        return "NONE"
    if "PIECEWISE" not in mode or rule == "none_by_default":
        return mode
    return "FULL_DECODE_ONLY" if rule == "without_piecewise" and mode == "FULL_AND_PIECEWISE" else "NONE"


def capture_sizes(
    args: EngineArgs,
    shape: ModelShape,
    rules: Rules,
    device: Device,
    *,
    engine: str,
    mode: str,
    seqs: int,
    tokens: int,
    drafts: int,
) -> tuple[int, ...]:
    """The batch sizes captured as graphs, ascending; ``drafts`` is the number of speculative tokens."""
    if mode == "NONE":
        return ()
    chosen = args.cudagraph_capture_sizes
    if chosen:
        return tuple(size for size in sorted(set(chosen)) if size <= tokens)
    if engine == "V0" or rules["graph_grid"] == "to_seqs":
        return _grid_to_seqs(seqs)
    most = args.max_cudagraph_capture_size
    oss = rules["graph_cap_gpt_oss"] if shape.architecture == _GPT_OSS and most is None else None
    if rules["graph_grid"] == "step8":
        return _step8(oss["fixed"] if oss else most or _cap(rules, device, seqs, 1), tokens, bool(oss))
    if most is None and oss:
        most = oss["fixed"]
    query = 1 + drafts if rules["graph_cap_counts_drafts"] else 1
    decode: tuple[int, ...] = ()
    if most is None:
        most = _cap(rules, device, seqs, query)
        decode = _decode_sizes(rules, device, seqs, query, most)
    interactive = bool(rules["graph_interactivity"]) and args.performance_mode == "interactivity"
    return _step16(min(most, tokens), tokens, interactive, bool(rules["graph_sizes_add_tokens"]), decode)


def _cap(rules: Rules, device: Device, seqs: int, query: int) -> int:
    cap = rules["graph_cap"]
    if "fixed" in cap:
        return int(cap["fixed"])
    capability = device.compute_capability
    most = cap["blackwell"] if "blackwell" in cap and capability and capability[0] == 10 else cap["most"]
    return int(min(seqs * query * 2, most))


def _decode_sizes(rules: Rules, device: Device, seqs: int, query: int, most: int) -> tuple[int, ...]:
    """Sizes that uniform decode batches have: whole requests of ``query`` tokens, and all requests."""
    if query > 1 and rules["graph_sizes_add_decode"]:
        capability = device.compute_capability
        cap = rules["graph_cap"]
        largest = cap["blackwell"] if capability and capability[0] == 10 else cap["most"]
        return tuple(n * query for n in _counts(min(seqs, largest)) if n * query <= most)
    if query == 1 and rules["graph_sizes_add_seqs"] and seqs <= most:
        return (seqs,)
    return ()


@lru_cache(maxsize=64)
def _counts(most: int) -> tuple[int, ...]:
    counts = {n for n in (1, 2, 4) if n <= most} | {most}
    counts |= {*range(8, min(most + 1, 256), 8), *range(256, most + 1, 16)}
    return tuple(sorted(counts))


@lru_cache(maxsize=64)
def _grid_to_seqs(seqs: int) -> tuple[int, ...]:
    """1, 2, 4, then every 8 up to the first that holds ``seqs`` (V0)."""
    grid = (1, 2, 4, *range(8, 8193, 8))
    end = next((size for size in grid if size >= seqs), grid[-1])
    return tuple(size for size in grid if size <= end)


@lru_cache(maxsize=64)
def _step8(most: int, tokens: int, widens: bool) -> tuple[int, ...]:
    """1, 2, 4, then every 8 (``widens``: every 16 from 256, as gpt-oss asks) up to ``most``."""
    most = min(most, tokens)
    upper = (*range(8, 256, 8), *range(256, most + 1, 16)) if widens else tuple(range(8, most + 1, 8))
    return tuple(size for size in (1, 2, 4, *upper) if size <= tokens)


@lru_cache(maxsize=256)
def _step16(most: int, tokens: int, interactive: bool, adds_tokens: bool, decode: tuple[int, ...]) -> tuple[int, ...]:
    """1, 2, 4, every 8 below 256, every 16 from there up to ``most``, and the sizes of decode batches."""
    sizes = set(range(1, min(most, 32) + 1)) if interactive else {size for size in (1, 2, 4) if size <= most}
    sizes |= {*range(8, min(most + 1, 256), 8), *range(256, most + 1, 16)}
    if adds_tokens and tokens <= most:
        sizes.add(tokens)
    sizes.update(size for size in decode if size <= tokens)
    return tuple(sorted(sizes))
