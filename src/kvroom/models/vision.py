"""The vision tower of a multimodal config: what the encoder's profiling run depends on."""

from __future__ import annotations

from kvroom.models.fields import Fields
from kvroom.models.shape import VisionTower

_OUTPUT_WIDTH = frozenset(["qwen2_vl"])
_GATED = ("qwen2_5_vl", "gemma4", "mistral3", "ministral3", "pixtral", "glm4v")
"""Types of models whose tower has a gate in its feed-forward layers."""
_COLOURS = 3
VISION_PARTS = ("vision_config", "vision_tower_config", "visual", "vision_encoder", "vit_config")


def read_vision(config: Fields) -> VisionTower | None:
    """The vision tower of the whole ``config``; None for a text model. Raises BadConfig for absurd sizes."""
    tower = next((part for name in VISION_PARTS if (part := _part(config, name)) is not None), None)
    if tower is None:
        return None
    patch = _side(tower, "patch_size") or 14
    image = _side(tower, "image_size")
    kind = config.str("model_type")
    names: tuple[str, ...] = ("hidden_size", "embed_dim", "vt_hidden_size", "width")
    if kind in _OUTPUT_WIDTH:  # their hidden_size is the language model's
        names = ("embed_dim", *names)
    hidden = tower.int(*names, default=0)
    inner = tower.int("intermediate_size", "vt_intermediate_size", default=0)
    deepstack = tower.raw.get("deepstack_visual_indexes")
    return VisionTower(
        hidden_size=hidden,
        layers=tower.int("num_hidden_layers", "depth", "vt_num_hidden_layers", "layers", default=0),
        patch_size=patch,
        image_size=image,
        tokens_per_item=_tokens(config, image, patch),
        spatial_merge_size=_side(tower, "spatial_merge_size") or _side(config, "spatial_merge_size") or 1,
        kind=kind,
        intermediate_size=inner or 4 * hidden,
        gated=any(kind.startswith(each) for each in _GATED),
        values_per_patch=_COLOURS * (_side(tower, "temporal_patch_size") or 1) * patch * patch,
        output_copies=1 + len(deepstack) if isinstance(deepstack, list) else 1,
    )


def _part(config: Fields, name: str) -> Fields | None:
    return config.sub(name) if isinstance(config.raw.get(name), dict) else None


def _side(fields: Fields, name: str) -> int | None:
    """A size that may be written as one number or as a list of equal sides (the first counts)."""
    value = fields.raw.get(name)
    if isinstance(value, list | tuple) and value:
        return Fields({name: value[0]}, fields.where).maybe_int(name, low=1)
    return fields.maybe_int(name, low=1) if value is not None else None


def _tokens(config: Fields, image: int | None, patch: int) -> int | None:
    """Language tokens of one image where the config fixes them: Gemma 3's 256, LLaVA's grid of patches."""
    kind = config.str("model_type")
    if kind == "gemma3":
        return config.int("mm_tokens_per_image", default=256)
    if kind.startswith("gemma4"):
        return config.int("vision_soft_tokens_per_image", default=280)
    if kind == "llava" and image:
        return (image // patch) ** 2
    return None
