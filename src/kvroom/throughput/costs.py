"""What one step of a launch reads and computes on one GPU, from the ledger's own weights and KV layout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from kvroom.errors import EngineError
from kvroom.ledger.predict import Prediction
from kvroom.models.shape import ModelShape
from kvroom.models.weights.tensor import Part
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.kv.pages import FULL_KINDS, WINDOWED_KINDS, SpecKind
from kvroom.vllm.weights.loaded import loaded_weights

_UNREAD = (Part.VISION.value, Part.BUFFERS.value, Part.DRAFT.value, Part.LORA.value)
"""Parts that a step of text does not read."""


@dataclass(frozen=True, slots=True)
class Costs:
    """One pipeline stage on one GPU. Bytes, and floating point operations."""

    weights: int
    """Bytes read in every step, routed experts aside."""
    experts: int
    """Bytes of the routed experts that lie here."""
    expert_share: float
    """Of the experts, the share that one token is routed to; 0 without."""
    flops: float
    """Of one token in linear layers, routed experts aside."""
    expert_flops: float
    """Of one token in the experts that lie here."""
    attention_flops: float
    """Of one token attending to one other."""
    cache: int
    """Bytes that a decoding sequence reads for each token of its context."""
    windows: tuple[tuple[int, int], ...]
    """(bytes for each token, window) of layers that look back a limited distance."""
    state: int
    """Bytes of recurrent states that a sequence reads and writes in a step."""
    layers: int
    hidden: int
    vocab: int
    heads_here: bool
    """The output head is on this stage."""
    tp: int
    pp: int
    dp: int
    gathers: bool
    """Replicas share the experts, so that their tokens travel."""
    bits: int
    """In which the arithmetic is done: 16, 8 or 4."""
    unpacks: bool
    """Weights are stored smaller than they are computed with."""
    eager: bool
    overlaps: bool
    """Batches are scheduled while the last one runs."""

    def read(self, context: float) -> float:
        """Bytes that a decoding sequence of ``context`` tokens reads of its cache."""
        windowed = sum(size * min(context, window) for size, window in self.windows)
        return self.cache * context + windowed + self.state

    def seen(self, context: float) -> float:
        """Tokens of ``context`` that an average attention layer looks at."""
        whole = self.cache + sum(size for size, _ in self.windows)
        if not whole:
            return 0.0
        near = sum(size * min(context, window) for size, window in self.windows)
        return (self.cache * context + near) / whole


def costs_of(prediction: Prediction) -> Costs:
    """The costs of the stage that limits ``prediction``; EngineError where vLLM refuses the launch."""
    setup, settings, layout = prediction.setup, prediction.settings, prediction.layout
    if settings is None or layout is None:
        raise EngineError(f"vLLM {setup.release} refuses this launch: {prediction.verdict.message}")
    shape, args, device = setup.shape, setup.args, setup.machine.device
    held = dict(loaded_weights(shape, args, prediction.rules, device, stage=prediction.stage, draft=setup.draft).parts)
    plain_args = replace(args, quantization=None, cpu_offload_gb=0.0) if args.quantization else args
    plain = dict(loaded_weights(_plain(shape), plain_args, prediction.rules, device, stage=prediction.stage).parts)
    last = prediction.stage == args.pipeline_parallel_size - 1
    element = 4 if settings.dtype == "float32" else 2
    share = shape.experts.per_token / shape.experts.routed if shape.experts.routed else 0.0
    cache, state = 0, 0
    windows: dict[int, int] = {}
    for group in layout.groups:
        for layer in group.layers:
            spec = layer.spec
            size = spec.unit_bytes // spec.tokens_per_state
            if spec.kind in FULL_KINDS:
                cache += size
            elif spec.kind in WINDOWED_KINDS or spec.kind is SpecKind.CHUNKED:
                windows[spec.window or 1] = windows.get(spec.window or 1, 0) + size
            elif spec.kind is SpecKind.MAMBA:
                state += 2 * spec.unit_bytes
    layers = -(-shape.layers // args.pipeline_parallel_size)
    bits, unpacks = _arithmetic(shape, args, device.compute_capability)
    attending = sum(1 for layer in shape.caches if not hasattr(layer.cache, "state_size"))
    width = 4 * shape.heads * _head(shape) * min(attending, shape.layers) / args.pipeline_parallel_size
    return Costs(
        weights=_read(held, shape, last),
        experts=held.get(Part.EXPERTS.value, 0),
        expert_share=share,
        flops=2.0 * _read(plain, shape, last) / element,
        expert_flops=2.0 * plain.get(Part.EXPERTS.value, 0) * share / element,
        attention_flops=width / args.tensor_parallel_size,
        cache=cache,
        windows=tuple((size, window) for window, size in windows.items()),
        state=state,
        layers=layers,
        hidden=shape.hidden_size,
        vocab=shape.vocab_size,
        heads_here=last,
        tp=args.tensor_parallel_size,
        pp=args.pipeline_parallel_size,
        dp=args.data_parallel_size,
        gathers=shape.is_moe and args.data_parallel_size > 1,
        bits=bits,
        unpacks=unpacks,
        eager=not settings.capture_sizes,
        overlaps=settings.async_scheduling,
    )


def _read(parts: dict[str, int], shape: ModelShape, last: bool) -> int:
    """Bytes of ``parts`` that every step reads; of the embedding only rows, unless it is the head as well."""
    left_out = {*_UNREAD, Part.EXPERTS.value}
    if not (shape.tied_embeddings and last):
        left_out.add(Part.EMBEDDING.value)
    return sum(size for part, size in parts.items() if part not in left_out and size > 0)


def _head(shape: ModelShape) -> int:
    if shape.mla is not None:
        return (shape.qk_nope_head_size + shape.mla.rope_size + shape.v_head_size) // 2
    return shape.head_size


@lru_cache(maxsize=64)
def _plain(shape: ModelShape) -> ModelShape:
    """The model in 16 bits; remembered, since everything about a model is cached by identity."""
    return replace(shape, quantization=None) if shape.quantization is not None else shape


def _arithmetic(shape: ModelShape, args: EngineArgs, capability: tuple[int, int] | None) -> tuple[int, bool]:
    """Bits in which most products are computed, and whether weights are unpacked for it."""
    quantization = shape.quantization
    scheme = quantization.scheme if quantization is not None else None
    if args.quantization in {"fp8", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "ptpc_fp8"}:
        name = "fp8"
    elif scheme is None:
        return 16, False
    else:
        name = scheme.format
    have = capability or (9, 0)
    if name in {"fp8", "mxfp8"}:
        return (8, False) if have >= (8, 9) else (16, True)
    if name == "int8":
        return 8, False
    if name in {"nvfp4", "mxfp4"}:
        return (4, False) if have >= (10, 0) and name == "nvfp4" else (16, True)
    return 16, True
