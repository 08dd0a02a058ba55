"""What the profile run of a multimodal model takes for its encoder: the pass itself, and what stays for the text.

vLLM fills the encoder with the largest items of one modality, as many as ``max_num_batched_tokens`` or one item
leaves room for, and keeps their outputs, and in runner V1 their pixels, while the language model runs
(v1/worker/gpu_model_runner.py: profile_run; multimodal/encoder_budget.py: MultiModalBudget).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvroom.ledger.estimate import Estimate, scaled
from kvroom.models.shape import ModelShape, VisionTower
from kvroom.units import cdiv
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.kv.pages import DTYPE_BYTES
from kvroom.vllm.settings import Settings

_ITEMS = {
    "qwen2_vl": "encoder_items_qwen2_vl",
    "qwen2_5_vl": "encoder_items_qwen2_vl",
    "qwen3_vl": "encoder_items_qwen3_vl",
    "qwen3_vl_moe": "encoder_items_qwen3_vl",
    "qwen3_5": "encoder_items_qwen3_vl",
    "qwen3_5_moe": "encoder_items_qwen3_vl",
    "gemma3": "encoder_items_gemma3",
    "gemma4": "encoder_items_gemma4",
    "llama4": "encoder_items_llama4",
}
"""Model types and the rule that sizes their items."""
_FIXED = ("llava", "mistral3", "ministral3", "pixtral")
"""Types whose largest image is ``image_size`` on each side."""
_UNKNOWN_TOKENS = 16384
"""Tokens of the largest image where nothing states it."""
_LEARNED_POSITIONS = ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
"""Types whose tower keeps the embeddings of its positions through all layers."""


@dataclass(frozen=True, slots=True)
class Item:
    """The largest item of one modality."""

    kind: str
    """``image`` or ``video``."""
    counted: int
    """Tokens that it takes of the encoder's budget."""
    encoded: int
    """Tokens that the encoder returns."""
    patches: int
    sure: bool = True
    """Sized as the model's code sizes it."""


def encodes(shape: ModelShape, args: EngineArgs) -> bool:
    """Whether the profile run takes a vision encoder along."""
    if shape.vision is None or args.language_model_only or args.skip_mm_profiling:
        return False
    limits = args.limit_mm_per_prompt or {}
    return not limits or any(_limit(value) != 0 for value in limits.values())


def _limit(value: object) -> object:
    return value.get("count", 1) if isinstance(value, dict) else value


def largest_item(tower: VisionTower, args: EngineArgs, settings: Settings) -> Item:
    """The item that the encoder is profiled with: the one of most tokens among the modalities that are allowed."""
    limits = args.limit_mm_per_prompt or {}
    rule = _ITEMS.get(tower.kind)
    if rule is not None:
        found = [
            _item(kind, stated, settings.max_model_len)
            for kind, stated in settings.rules[rule].items()
            if _limit(limits.get(kind)) != 0
        ]
        return max(found, key=lambda item: item.counted, default=Item("image", 0, 0, 0))
    side = (tower.image_size or 0) // tower.patch_size
    merged = tower.spatial_merge_size**2
    if side and tower.kind in _FIXED:
        rows = side // tower.spatial_merge_size
        ends = rows if merged > 1 else 0  # Pixtral ends each row of patches with a token
        return Item("image", side * side // merged + ends, side * side // merged, side * side)
    return Item("image", _UNKNOWN_TOKENS, _UNKNOWN_TOKENS, _UNKNOWN_TOKENS * max(merged, 1), sure=False)


def _item(kind: str, stated: dict[str, Any], max_model_len: int) -> Item:
    if "frames" not in stated:
        return Item(kind, stated["counted"], stated["encoded"], stated["patches"])
    # Pairs of frames as large as the largest image, as many as the context holds.
    room = max_model_len - (_UNKNOWN_TOKENS if stated["after_image"] else 0)
    pairs = min(max(room // _UNKNOWN_TOKENS, 1), stated["frames"] // 2)
    tokens = pairs * _UNKNOWN_TOKENS
    return Item(kind, tokens, tokens, 4 * tokens)


def items_profiled(item: Item, settings: Settings) -> int:
    """How many items fill the encoder's budget."""
    if not item.counted:
        return 0
    budget = max(settings.max_num_batched_tokens, item.counted)
    of_requests = settings.max_num_seqs * max(1, settings.max_model_len // item.counted)
    return max(1, min(budget // item.counted, of_requests))


def encoder_peak(shape: ModelShape, args: EngineArgs, settings: Settings) -> Estimate:
    """Bytes alive in the widest layer of the tower while it encodes the profiled items.

    A layer holds its input, its residual and normed copy, and what its feed-forward widens them to; the pixels and,
    of some towers, the embeddings of positions stay alive. Traced for Qwen's towers, which lie within 4 %.
    """
    tower = shape.vision
    assert tower is not None
    item = largest_item(tower, args, settings)
    count = items_profiled(item, settings)
    size = DTYPE_BYTES.get(settings.dtype, 2)
    copies = 4 if tower.kind in _LEARNED_POSITIONS else 3
    inner = cdiv(tower.intermediate_size, args.tensor_parallel_size) * (3 if tower.gated else 2)
    per_patch = copies * tower.hidden_size + inner + tower.values_per_patch
    n_bytes = count * item.patches * per_patch * size
    n_bytes += count * item.encoded * (tower.output_copies - 1) * shape.hidden_size * size * 2 // 3
    if settings.engine == "V0":  # it fills every sequence of its profile run with items, not one budget
        return scaled(n_bytes, 0.7, 3.5)
    return scaled(n_bytes, *((0.85, 1.25) if item.sure else (0.4, 2.6)))


def encoder_kept(shape: ModelShape, args: EngineArgs, settings: Settings) -> Estimate:
    """Bytes of the encoder's outputs, and of its pixels, that stay alive while the language model is profiled."""
    tower = shape.vision
    assert tower is not None
    item = largest_item(tower, args, settings)
    count = items_profiled(item, settings)
    size = DTYPE_BYTES.get(settings.dtype, 2)
    width = shape.hidden_size * tower.output_copies * size
    n_bytes = count * item.encoded * width
    if settings.rules["encoder_outputs_padded"] and item.counted > item.encoded:
        n_bytes = count * item.counted * width + item.encoded * width
    if settings.model_runner != "V2":
        n_bytes += count * item.patches * tower.values_per_patch * size
    return scaled(n_bytes, *((0.9, 1.1) if item.sure else (0.3, 1.8)))
