"""What of a model beside text can be traced with the files that are there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_PROCESSORS = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "tekken.json")
_ENCODERS = ("vision_config", "audio_config", "vision_encoder", "visual", "audio_encoder_config", "vit_config")
_KINDS = ("image", "video", "audio")


def with_what_is_there(options: Any) -> None:
    """Profile the encoder with the model's own processor, or take text alone where its files are missing."""
    folder = Path(options.model or "")
    if not (folder / "config.json").is_file():
        return
    config = json.loads((folder / "config.json").read_text())
    if not any(config.get(each) for each in _ENCODERS):
        return
    if all(any((folder / each).is_file() for each in names) for names in (_PROCESSORS, _TOKENIZERS)):
        options.skip_tokenizer_init = False  # the processor asks for it
    elif hasattr(options, "language_model_only"):
        options.language_model_only = True
    else:
        options.limit_mm_per_prompt = dict.fromkeys(_KINDS, 0)


def encoder(model: Any) -> str:
    """``profiled``, or ``left out`` where the launch takes text alone of a model that takes more; empty without one."""
    modal = getattr(model, "multimodal_config", None)
    if modal is None:
        return ""
    limits = dict(getattr(modal, "limit_per_prompt", None) or {})
    counts = [getattr(each, "count", each) for each in limits.values()]
    text_only = getattr(modal, "language_model_only", False) or (counts and not any(counts))
    return "left out" if text_only else "profiled"
